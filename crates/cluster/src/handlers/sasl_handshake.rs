//! SaslHandshake, key 17, version 1 (0 is advertised and refused).
//!
//! This handler serves clients on listeners without authentication, and authenticated clients. The
//! listener handles all others.

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    cold::messages::{SaslHandshakeRequest, SaslHandshakeResponse},
};

use super::{Answer, Call};

pub(super) fn handle(call: &Call<'_>, body: Bytes, out: &mut Vec<Bytes>) -> Result<Answer, String> {
    let _: SaslHandshakeRequest = call.decode(body)?;
    let code = ErrorCode::ILLEGAL_SASL_STATE;
    call.answer(&SaslHandshakeResponse::default().with_error_code(code.0), out)
}
