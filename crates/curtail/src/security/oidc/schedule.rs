//! Time of a token's renewal, by Java's rule.

use std::time::Duration;

use crate::security::OidcConfig;

/// Returns when to renew a token, in milliseconds since the epoch. The token came at `now`, was issued at `issued`
/// and expires at `expires`; `random` is 0 to 1.
pub(super) fn renew_at(
    settings: &OidcConfig,
    now: i64,
    issued: Option<i64>,
    expires: i64,
    random: f64,
) -> i64 {
    let part = settings.refresh_window_factor + settings.refresh_window_jitter * random;
    let after =
        |from: i64| from.saturating_add((expires.saturating_sub(from) as f64 * part) as i64);
    let (least, buffer) = (millis(settings.refresh_min_period), millis(settings.refresh_buffer));
    if now.saturating_add(least).saturating_add(buffer) > expires {
        // The lifetime has no room for both.
        return after(now);
    }
    after(issued.unwrap_or(now)).min(expires - buffer).max(now + least)
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
