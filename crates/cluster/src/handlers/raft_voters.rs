//! AddRaftVoter, key 80, versions 0 and 1, and RemoveRaftVoter, key 81, version 0. The quorum is static (`kraft.version`
//! 0), so both are refused with UNSUPPORTED_VERSION (KIP-853).

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    cold::{
        messages::{AddRaftVoterResponse, RemoveRaftVoterRequest, RemoveRaftVoterResponse},
        newer::AddRaftVoterRequest,
    },
};

use super::{Answer, Call, text};
use crate::acl::{Operation, Resource};

pub(super) fn add(call: &Call<'_>, body: Bytes, out: &mut Vec<Bytes>) -> Result<Answer, String> {
    let _: AddRaftVoterRequest = call.decode(body)?;
    let (code, reason) = refusal(call, "adding voter");
    let response = AddRaftVoterResponse::default().with_error_code(code.0);
    call.answer(&response.with_error_message(Some(text(&reason))), out)
}

pub(super) fn remove(call: &Call<'_>, body: Bytes, out: &mut Vec<Bytes>) -> Result<Answer, String> {
    let _: RemoveRaftVoterRequest = call.decode(body)?;
    let (code, reason) = refusal(call, "removing voter");
    let response = RemoveRaftVoterResponse::default().with_error_code(code.0);
    call.answer(&response.with_error_message(Some(text(&reason))), out)
}

fn refusal(call: &Call<'_>, what: &str) -> (ErrorCode, String) {
    if let Err(code) = call.require(Operation::Alter, Resource::Cluster) {
        return (code, code.message().to_owned());
    }
    let reason = format!("Cluster doesn't support {what} because the kraft.version feature is 0");
    (ErrorCode::UNSUPPORTED_VERSION, reason)
}
