//! The client's tokio runtime, for callers outside it.
//!
//! A call may be polled on a plain thread's executor or on another tokio runtime, which may have neither timers nor
//! sockets. Timers and sockets of a call must belong to the client's runtime.

use std::{
    future::{Future, poll_fn},
    pin::pin,
};

use tokio::runtime::Handle;

/// Polls a future within a runtime: its timers, sockets and tasks belong there.
///
/// # Cancel safety
/// As the future.
pub(crate) async fn within<F: Future>(runtime: &Handle, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|cx| {
        let _entered = runtime.enter();
        future.as_mut().poll(cx)
    })
    .await
}
