//! Panics of interceptors, which end no task of the client.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls an interceptor of a `client` (producer or consumer). Returns whether it returned without a panic. A panic may
/// leave the interceptor's state inconsistent, but the client shares no state with it.
pub(crate) fn contained(client: &str, what: &str, call: impl FnOnce()) -> bool {
    let returned = catch_unwind(AssertUnwindSafe(call)).is_ok();
    if !returned {
        tracing::warn!(
            "a {client} interceptor panicked in {what}; the records continue without it"
        );
    }
    returned
}
