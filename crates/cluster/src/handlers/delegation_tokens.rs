//! CreateDelegationToken, key 38, and DescribeDelegationToken, key 41, versions 1 to 3;
//! RenewDelegationToken, key 39, and ExpireDelegationToken, key 40, versions 1 and 2.
//!
//! The cluster has no tokens. It responds as Kafka does without `delegation.token.secret.key`.

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    cold::messages::{
        CreateDelegationTokenRequest, CreateDelegationTokenResponse,
        DescribeDelegationTokenRequest, DescribeDelegationTokenResponse,
        ExpireDelegationTokenRequest, ExpireDelegationTokenResponse, RenewDelegationTokenRequest,
        RenewDelegationTokenResponse,
    },
};

use super::{Answer, Call, text};
use crate::admission::Principal;

/// A point in time that does not exist.
const NEVER: i64 = -1;
const USER: &str = "User";
/// First version that names the requester as well as the owner.
const WITH_REQUESTER: i16 = 3;

pub(super) fn create(call: &Call<'_>, body: Bytes, out: &mut Vec<Bytes>) -> Result<Answer, String> {
    let request: CreateDelegationTokenRequest = call.decode(body)?;
    let requester = call.principal.user().unwrap_or_default();
    let owner = request.owner_principal_name.as_deref().filter(|name| !name.is_empty());
    let is_user = |kind: &str| kind == USER;
    let code = match refusal(call) {
        ErrorCode::DELEGATION_TOKEN_AUTH_DISABLED
            if !request.renewers.iter().all(|renewer| is_user(&renewer.principal_type)) =>
        {
            ErrorCode::INVALID_PRINCIPAL_TYPE
        }
        code => code,
    };
    let response = CreateDelegationTokenResponse::default()
        .with_error_code(code.0)
        .with_principal_type(text(USER))
        .with_principal_name(text(owner.unwrap_or(requester)))
        .with_issue_timestamp_ms(NEVER)
        .with_expiry_timestamp_ms(NEVER)
        .with_max_timestamp_ms(NEVER);
    if call.version() < WITH_REQUESTER {
        return call.answer(&response, out);
    }
    let response = response
        .with_token_requester_principal_type(text(USER))
        .with_token_requester_principal_name(text(requester));
    call.answer(&response, out)
}

pub(super) fn renew(call: &Call<'_>, body: Bytes, out: &mut Vec<Bytes>) -> Result<Answer, String> {
    let _: RenewDelegationTokenRequest = call.decode(body)?;
    let response = RenewDelegationTokenResponse::default().with_expiry_timestamp_ms(NEVER);
    call.answer(&response.with_error_code(refusal(call).0), out)
}

pub(super) fn expire(call: &Call<'_>, body: Bytes, out: &mut Vec<Bytes>) -> Result<Answer, String> {
    let _: ExpireDelegationTokenRequest = call.decode(body)?;
    let response = ExpireDelegationTokenResponse::default().with_expiry_timestamp_ms(NEVER);
    call.answer(&response.with_error_code(refusal(call).0), out)
}

pub(super) fn describe(
    call: &Call<'_>,
    body: Bytes,
    out: &mut Vec<Bytes>,
) -> Result<Answer, String> {
    let _: DescribeDelegationTokenRequest = call.decode(body)?;
    let response = DescribeDelegationTokenResponse::default();
    call.answer(&response.with_error_code(refusal(call).0), out)
}

/// Only authenticated clients may use tokens at all.
fn refusal(call: &Call<'_>) -> ErrorCode {
    if *call.principal == Principal::anonymous() {
        return ErrorCode::DELEGATION_TOKEN_REQUEST_NOT_ALLOWED;
    }
    ErrorCode::DELEGATION_TOKEN_AUTH_DISABLED
}
