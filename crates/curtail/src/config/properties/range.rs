//! Ranges of numbers in error texts.

/// Range of a property that is an `int` in Java.
pub(super) const INT_MILLIS: &str = "milliseconds, 0 to 2147483647";
/// Range of a property that is a `long` in Java.
pub(super) const LONG_MILLIS: &str = "milliseconds, 0 to 9223372036854775807";
pub(super) const INT_BYTES: &str = "bytes, 0 to 2147483647";
pub(super) const BUFFER_BYTES: &str =
    "bytes up to 2147483647, or -1 to leave it to the operating system";
pub(super) const LONG_BYTES: &str = "bytes, 0 to 9223372036854775807";

/// Reduces a range up to the greatest `int` or `long` to the bound that the value violates.
pub(super) fn bound(expected: &str, value: &str) -> String {
    let range = GREATEST.iter().find_map(|greatest| {
        let (unit, low) =
            expected.strip_suffix(greatest)?.strip_suffix(" to ")?.rsplit_once(' ')?;
        Some((unit, low, greatest))
    });
    let Some((unit, low, greatest)) = range else { return expected.to_owned() };
    let is_digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let is_above = is_digits && value.trim_start_matches('0').len() >= greatest.len();
    let bound = if is_above { format!("at most {greatest}") } else { format!("at least {low}") };
    format!("{unit} {bound}")
}

/// Greatest values of Java's `int` and `long`.
const GREATEST: [&str; 2] = ["2147483647", "9223372036854775807"];
