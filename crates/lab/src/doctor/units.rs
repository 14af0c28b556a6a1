//! Times and throughputs as users write them.

#[cfg(test)]
mod tests;

use std::time::Duration;

/// A time: a number and us, ms, s, m or h, such as `50ms` or `1.5s`.
///
/// # Errors
/// The expected format.
pub fn duration(text: &str) -> Result<Duration, String> {
    let expected = || format!("'{text}': expected a time above 0 such as 50ms, 1.5s or 800us");
    let (number, unit) = split(text).ok_or_else(expected)?;
    let seconds = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(expected()),
    };
    let duration = Duration::try_from_secs_f64(number * seconds).map_err(|_| expected())?;
    if duration.is_zero() { Err(expected()) } else { Ok(duration) }
}

/// A throughput in bytes per second: a number and B/s, KB/s, MB/s or GB/s, such as `90MB/s`. As in Kafka's
/// tools, an MB is 1024 KB and a KB 1024 bytes; KiB, MiB and GiB are the same.
///
/// # Errors
/// The expected format.
pub fn throughput(text: &str) -> Result<f64, String> {
    let expected = || format!("'{text}': expected a throughput above 0 such as 90MB/s or 500KB/s");
    let (number, unit) = split(text).ok_or_else(expected)?;
    let bytes = match unit.strip_suffix("/s").ok_or_else(expected)? {
        "B" => 1.0,
        "KB" | "kB" | "KiB" => 1024.0,
        "MB" | "MiB" => 1024.0 * 1024.0,
        "GB" | "GiB" => 1024.0 * 1024.0 * 1024.0,
        _ => return Err(expected()),
    };
    let rate = number * bytes;
    if rate.is_finite() && rate > 0.0 { Ok(rate) } else { Err(expected()) }
}

/// Splits a number from its unit.
fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    Some((text[..end].parse().ok()?, text[end..].trim_start()))
}
