//! The runtime of a client, and unique names.

use tokio::runtime::{Builder, Runtime};

use crate::error::{Error, Result};

/// The event loop of a client: one thread, in addition to the measuring thread.
pub(crate) fn client_runtime() -> Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("curtail-client")
        .enable_all()
        .build()
        .map_err(Error::Threads)
}

/// Random letters, for unique names.
pub(crate) fn unique() -> String {
    let entropy = curtail::Env::real().entropy;
    format!("{:012x}", entropy.next_u64() >> 16)
}
