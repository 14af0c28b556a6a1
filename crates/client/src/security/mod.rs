//! How a connection is made safe: TLS over its socket, SASL over its first requests.

pub(crate) mod oidc;
pub(crate) mod sasl;
mod tls;

use std::fmt;

use curtail_proto::sasl::{Derivation, SaltedPassword};
use parking_lot::Mutex;

pub(crate) use tls::{secure, session_error};

/// What connections share, so that it is read and worked out once.
#[derive(Default)]
pub(crate) struct Cache {
    tls: Mutex<Option<tls::Loaded>>,
    /// What SCRAM derived last: renewals and further connections need not do it again (RFC 5802, 5.1).
    salted: Mutex<Option<(Derivation, SaltedPassword)>>,
    oidc: Mutex<Option<oidc::Kept>>,
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cache")
    }
}
