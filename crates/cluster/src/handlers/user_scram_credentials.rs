//! DescribeUserScramCredentials, key 50, and AlterUserScramCredentials, key 51, each version 0
//! (KIP-554).
//!
//! Clients salt passwords themselves, and the stored credential does not reveal the password.
//! Responses contain only the mechanism and the iterations. The response follows the controller's
//! decision; a broker uses a credential once its metadata contains it.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    num::NonZeroU32,
};

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    cold::messages::{
        AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse,
        DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse,
        alter_user_scram_credentials_request::ScramCredentialUpsertion,
        alter_user_scram_credentials_response::AlterUserScramCredentialsResult,
        describe_user_scram_credentials_response::{
            CredentialInfo, DescribeUserScramCredentialsResult,
        },
    },
};

use super::{Answer, Call, text};
use crate::{
    acl::{Operation, Resource},
    controller::Refusal,
    sasl::{Credential, Hash},
};

/// The allowed numbers of iterations.
const ITERATIONS: std::ops::RangeInclusive<u32> = 4096..=16_384;

fn refusal(code: ErrorCode) -> Refusal {
    (code, code.message().to_owned())
}

pub(super) fn describe(
    call: &Call<'_>,
    body: Bytes,
    out: &mut Vec<Bytes>,
) -> Result<Answer, String> {
    let request: DescribeUserScramCredentialsRequest = call.decode(body)?;
    let response = DescribeUserScramCredentialsResponse::default().with_error_message(None);
    if let Err(refused) = call.require(Operation::Describe, Resource::Cluster) {
        let message = Some(text(refused.message()));
        let response = response.with_error_code(refused.0).with_error_message(message);
        return call.answer(&response, out);
    }
    let image = call.broker.image();
    let mut known: BTreeMap<&str, Vec<CredentialInfo>> = BTreeMap::new();
    for ((user, mechanism), credential) in &image.credentials {
        let iterations = i32::try_from(credential.iterations.get()).unwrap_or(i32::MAX);
        let info =
            CredentialInfo::default().with_mechanism(mechanism.code()).with_iterations(iterations);
        known.entry(user).or_default().push(info);
    }
    let mut asked: BTreeMap<String, usize> = BTreeMap::new();
    for user in request.users.iter().flatten() {
        *asked.entry(user.name.to_string()).or_default() += 1;
    }
    if asked.is_empty() {
        asked = known.keys().map(|user| ((*user).to_owned(), 1)).collect();
    }
    let results = asked.into_iter().map(|(user, times)| {
        let result = DescribeUserScramCredentialsResult::default()
            .with_user(text(&user))
            .with_error_message(None);
        let refused = |code: ErrorCode, reason: String| {
            result.clone().with_error_code(code.0).with_error_message(Some(text(&reason)))
        };
        match known.get(&*user) {
            _ if times > 1 => refused(
                ErrorCode::DUPLICATE_RESOURCE,
                format!("Cannot describe SCRAM credentials for the same user twice in a single request: {user}"),
            ),
            None => refused(
                ErrorCode::RESOURCE_NOT_FOUND,
                format!("Attempt to describe a user credential that does not exist: {user}"),
            ),
            Some(infos) => result.clone().with_credential_infos(infos.clone()),
        }
    });
    call.answer(&response.with_results(results.collect()), out)
}

/// An edit of one user's credential.
enum Edit {
    Delete(Hash),
    Set(Hash, Credential),
}

pub(super) fn alter(call: &Call<'_>, body: Bytes, out: &mut Vec<Bytes>) -> Result<Answer, String> {
    let request: AlterUserScramCredentialsRequest = call.decode(body)?;
    let allowed = call.require(Operation::Alter, Resource::Cluster).map_err(refusal);
    let deletions = request.deletions.iter().map(|deletion| {
        let mechanism = check(&deletion.name, deletion.mechanism);
        (deletion.name.to_string(), mechanism.map(Edit::Delete))
    });
    let upsertions = request.upsertions.iter().map(|asked| (asked.name.to_string(), set(asked)));
    let mut edits: BTreeMap<String, Result<Edit, Refusal>> = BTreeMap::new();
    for (user, edit) in deletions.chain(upsertions) {
        match edits.entry(user) {
            Entry::Vacant(entry) => {
                entry.insert(allowed.clone().and(edit));
            }
            Entry::Occupied(mut entry) if entry.get().is_ok() => {
                let reason = "A user credential cannot be altered twice in the same request";
                *entry.get_mut() = Err((ErrorCode::DUPLICATE_RESOURCE, reason.to_owned()));
            }
            Entry::Occupied(_) => {}
        }
    }
    let controller = &call.broker.controller;
    let results = edits.into_iter().map(|(user, edit)| {
        let result = AlterUserScramCredentialsResult::default().with_user(text(&user));
        let done = edit.and_then(|edit| match edit {
            Edit::Delete(mechanism) => controller.delete_credential(user, mechanism),
            Edit::Set(mechanism, credential) => {
                controller.set_credential(user, mechanism, credential)
            }
        });
        match done {
            Ok(()) => result.with_error_message(None),
            Err((code, reason)) => {
                result.with_error_code(code.0).with_error_message(Some(text(&reason)))
            }
        }
    });
    let response = AlterUserScramCredentialsResponse::default().with_results(results.collect());
    call.answer(&response, out)
}

fn check(user: &str, mechanism: i8) -> Result<Hash, Refusal> {
    if user.is_empty() {
        let reason = "Username must not be empty".to_owned();
        return Err((ErrorCode::UNACCEPTABLE_CREDENTIAL, reason));
    }
    let unknown = || (ErrorCode::UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism".to_owned());
    Hash::of_code(mechanism).ok_or_else(unknown)
}

fn set(asked: &ScramCredentialUpsertion) -> Result<Edit, Refusal> {
    let mechanism = check(&asked.name, asked.mechanism)?;
    let iterations = u32::try_from(asked.iterations).ok().and_then(NonZeroU32::new);
    let refuse = |reason: &str| Err((ErrorCode::UNACCEPTABLE_CREDENTIAL, reason.to_owned()));
    let iterations = match iterations {
        Some(iterations) if ITERATIONS.contains(&iterations.get()) => iterations,
        Some(many) if many.get() > *ITERATIONS.end() => return refuse("Too many iterations"),
        _ => return refuse("Too few iterations"),
    };
    let salt = asked.salt.to_vec();
    let credential = Credential::of_salted(mechanism, &asked.salted_password, salt, iterations);
    Ok(Edit::Set(mechanism, credential))
}
