//! How a connection is made safe: TLS over its socket, SASL over its first requests.

pub(crate) mod oidc;
pub(crate) mod sasl;
mod tls;

use std::{fmt, sync::Arc};

use curtail_proto::sasl::{Derivation, SaltedPassword};
use parking_lot::Mutex;

pub(crate) use tls::{secure, session_error};

/// What connections share, so that it is read and worked out once.
#[derive(Default)]
pub(crate) struct Cache {
    tls: Mutex<Option<tls::Loaded>>,
    /// Why the files as they are now cannot be used, while certificates read before stay in use.
    outdated: Mutex<Option<Arc<str>>>,
    /// What SCRAM derived last: renewals and further connections need not do it again (RFC 5802, 5.1).
    salted: Mutex<Option<(Derivation, SaltedPassword)>>,
    oidc: Mutex<Option<oidc::Kept>>,
}

impl Cache {
    /// Why certificates read before are still in use although their files have changed; `None` while they are not.
    pub(crate) fn outdated(&self) -> Option<Arc<str>> {
        self.outdated.lock().clone()
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cache")
    }
}
