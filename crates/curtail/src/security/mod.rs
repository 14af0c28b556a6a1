//! Settings of TLS and SASL.
//!
//! Connections speak TLS over the socket, and SASL in their first requests.

#[cfg(feature = "aws-msk-iam")]
pub(crate) mod aws;
#[cfg(feature = "oidc")]
pub(crate) mod http;
#[cfg(feature = "oidc")]
pub(crate) mod oidc;
pub(crate) mod sasl;
#[cfg_attr(not(feature = "tls"), path = "no_tls.rs")]
mod tls;

use std::{fmt, sync::Arc};

use curtail_proto::sasl::{Derivation, SaltedPassword};
use parking_lot::Mutex;

use crate::config::CommonConfig;
pub use crate::config::{
    aws::{AwsConfig, AwsCredentials, AwsCredentialsSource},
    oidc::{AssertionConfig, JwtRetriever, OidcConfig, SigningAlgorithm},
    security::{
        CipherSuite, HostCheck, Mechanism, OAuthBearerToken, SaslConfig, Secret, SecurityConfig,
        SecurityProtocol, SslConfig, Store, StoreType, TlsVersion, TokenSource,
    },
};

pub(crate) use tls::{secure, session_error};

/// Performs the TLS handshake of a client with these settings over `socket`. For `curtail proxy`; not part of the
/// interface.
///
/// # Errors
/// The certificates cannot be used, or the handshake fails.
#[doc(hidden)]
pub async fn connect_tls(
    common: &CommonConfig,
    socket: Box<dyn curtail_net::Socket>,
    host: &str,
) -> crate::Result<Box<dyn curtail_net::Socket>> {
    secure(common, socket, host, &host.into()).await
}

/// State shared by connections, so that it is read and computed once.
#[derive(Default)]
pub(crate) struct Cache {
    #[cfg(feature = "tls")]
    tls: Mutex<Option<tls::Loaded>>,
    /// Why the current files cannot be used, while previously read certificates stay in use.
    outdated: Mutex<Option<Arc<str>>>,
    /// SCRAM's last derived password, for renewals and further connections (RFC 5802, 5.1).
    salted: Mutex<Option<(Derivation, SaltedPassword)>>,
    #[cfg(feature = "oidc")]
    oidc: Mutex<Option<oidc::Kept>>,
    #[cfg(feature = "aws-msk-iam")]
    aws: Mutex<Option<aws::Kept>>,
    /// `bootstrap.servers` of the cluster that has last served a client, beyond handshakes.
    served: Mutex<Vec<String>>,
}

impl Cache {
    /// Why previously read certificates are still in use although their files have changed; `None` if they are not.
    pub(crate) fn outdated(&self) -> Option<Arc<str>> {
        self.outdated.lock().clone()
    }

    /// Whether a broker has served the client, so that `security.protocol` is that of the listeners.
    pub(crate) fn is_served(&self, common: &CommonConfig) -> bool {
        *self.served.lock() == common.bootstrap_servers
    }

    pub(crate) fn set_served(&self, common: &CommonConfig) {
        self.served.lock().clone_from(&common.bootstrap_servers);
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cache")
    }
}
