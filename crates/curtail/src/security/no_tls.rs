//! Replaces `tls` in builds without the feature. `SecurityConfig::validate` has refused TLS by then.

use std::{io, sync::Arc};

use curtail_net::Socket;

use crate::{Error, Result, config::CommonConfig, conn::authentication_error, security::SslConfig};

/// Refuses the connection.
pub(crate) async fn secure(
    _: &CommonConfig,
    _: Box<dyn Socket>,
    _: &str,
    peer: &Arc<str>,
) -> Result<Box<dyn Socket>> {
    Err(authentication_error(peer, "this build has no TLS"))
}

/// No socket has TLS.
pub(crate) fn session_error(_: &Arc<str>, _: &SslConfig, _: &io::Error) -> Option<Error> {
    None
}
