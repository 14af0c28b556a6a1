//! Checks of the member epochs that heartbeats, commits and lookups of offsets name (KIP-848, KIP-1071).

use curtail_wire::ErrorCode;

use super::step::Refused;

/// Checks the epoch of a heartbeat; 0 joins. The previous epoch is valid if the member's last response was lost; then it
/// owns nothing but what it was assigned.
pub(super) fn check_heartbeat(
    given: i32,
    known: i32,
    previous: i32,
    owns_no_more: impl FnOnce() -> bool,
) -> Result<(), Refused> {
    let lost_answer = || given == previous && owns_no_more();
    if given == 0 || given == known || given < known && lost_answer() {
        return Ok(());
    }
    let reason = format!("the member is in epoch {known}, not in {given}, and must join again");
    Err(Refused::new(ErrorCode::FENCED_MEMBER_EPOCH, reason))
}

/// Checks the epoch of a commit. A member in an earlier epoch may commit what it had then (KIP-1251).
///
/// # Errors
/// STALE_MEMBER_EPOCH.
pub(super) fn check_commit(
    given: i32,
    known: i32,
    had_all: impl FnOnce() -> bool,
) -> Result<(), ErrorCode> {
    if given == known || given < known && had_all() {
        return Ok(());
    }
    Err(ErrorCode::STALE_MEMBER_EPOCH)
}

/// Checks the sender of an offset lookup. A request without a member is allowed. `known` is the epoch of the named
/// member.
///
/// # Errors
/// UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH.
pub(super) fn check_fetch(
    member_id: Option<&str>,
    given: i32,
    known: impl FnOnce(&str) -> Option<i32>,
) -> Result<(), ErrorCode> {
    if member_id.is_none() && given < 0 {
        return Ok(());
    }
    match member_id.and_then(known) {
        None => Err(ErrorCode::UNKNOWN_MEMBER_ID),
        Some(known) if known == given => Ok(()),
        Some(_) => Err(ErrorCode::STALE_MEMBER_EPOCH),
    }
}
