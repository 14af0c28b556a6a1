//! SaslAuthenticate, key 36, versions 0 to 2.
//!
//! This handler serves clients on listeners without authentication, and authenticated clients. The
//! listener handles all others.

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    cold::messages::{SaslAuthenticateRequest, SaslAuthenticateResponse},
};

use super::{Answer, Call, text};

pub(super) fn handle(call: &Call<'_>, body: Bytes, out: &mut Vec<Bytes>) -> Result<Answer, String> {
    let _: SaslAuthenticateRequest = call.decode(body)?;
    let reason = "SaslAuthenticate request received after successful authentication";
    let response = SaslAuthenticateResponse::default()
        .with_error_code(ErrorCode::ILLEGAL_SASL_STATE.0)
        .with_error_message(Some(text(reason)));
    call.answer(&response, out)
}
