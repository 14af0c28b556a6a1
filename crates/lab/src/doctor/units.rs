//! Times and throughputs as users write them.

#[cfg(test)]
mod tests;

use std::{fmt, time::Duration};

/// A unit as the user wrote it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unit {
    name: &'static str,
    /// Seconds, or bytes per second.
    size: f64,
}

impl Unit {
    /// The name, as in `MB/s`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.name
    }

    /// An amount of seconds or bytes per second in this unit, with two decimals, up to six below 1, and none from 10,000 on.
    #[must_use]
    pub fn number(self, amount: f64) -> String {
        let number = amount / self.size;
        let decimals = match number {
            number if number >= 10_000.0 => 0,
            number if number >= 0.995 || number <= 0.0 => 2,
            number if number >= 0.1 => 3,
            number if number >= 0.01 => 4,
            number if number >= 0.001 => 5,
            _ => 6,
        };
        format!("{number:.decimals$}")
    }
}

/// A time with its unit, which is that of the user's text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Time {
    /// The time.
    pub duration: Duration,
    number: f64,
    unit: Unit,
}

/// A throughput with its unit, which is that of the user's text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throughput {
    /// Bytes per second.
    pub bytes_per_second: f64,
    number: f64,
    unit: Unit,
}

impl Time {
    /// The unit for measured times: the user's one, or milliseconds if that is longer than a second.
    #[must_use]
    pub fn unit(self) -> Unit {
        if self.unit.size <= 1.0 { self.unit } else { MILLISECONDS }
    }
}

/// In milliseconds.
impl From<Duration> for Time {
    fn from(duration: Duration) -> Self {
        let number = duration.as_nanos() as f64 / 1e6;
        Self { duration, number, unit: MILLISECONDS }
    }
}

impl Throughput {
    /// A throughput in bytes per second.
    #[must_use]
    pub fn bytes(bytes_per_second: f64) -> Self {
        Self { bytes_per_second, number: bytes_per_second, unit: BYTES }
    }

    /// The user's unit.
    #[must_use]
    pub fn unit(self) -> Unit {
        self.unit
    }
}

/// As the user wrote it.
impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.number, self.unit.name)
    }
}

/// As the user wrote it.
impl fmt::Display for Throughput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.number, self.unit.name)
    }
}

const MILLISECONDS: Unit = Unit { name: "ms", size: 1e-3 };
const BYTES: Unit = Unit { name: "B/s", size: 1.0 };

const TIMES: [Unit; 6] = [
    Unit { name: "us", size: 1e-6 },
    MILLISECONDS,
    Unit { name: "s", size: 1.0 },
    Unit { name: "m", size: 60.0 },
    Unit { name: "min", size: 60.0 },
    Unit { name: "h", size: 3600.0 },
];

const THROUGHPUTS: [Unit; 8] = [
    BYTES,
    Unit { name: "KB/s", size: KB },
    Unit { name: "kB/s", size: KB },
    Unit { name: "KiB/s", size: KB },
    Unit { name: "MB/s", size: KB * KB },
    Unit { name: "MiB/s", size: KB * KB },
    Unit { name: "GB/s", size: KB * KB * KB },
    Unit { name: "GiB/s", size: KB * KB * KB },
];

/// Bytes of a KB, as in Kafka's tools.
const KB: f64 = 1024.0;

/// A time: a number and us, ms, s, m or h, such as `50ms` or `1.5s`.
///
/// # Errors
/// The expected format.
pub fn duration(text: &str) -> Result<Time, String> {
    let expected = || format!("'{text}': expected a time above 0 such as 50ms, 1.5s or 800us");
    let (number, unit) = split(text, &TIMES).ok_or_else(expected)?;
    let duration = Duration::try_from_secs_f64(number * unit.size).map_err(|_| expected())?;
    if duration.is_zero() { Err(expected()) } else { Ok(Time { duration, number, unit }) }
}

/// A throughput in bytes per second: a number and B/s, KB/s, MB/s or GB/s, such as `90MB/s`. As in Kafka's
/// tools, an MB is 1024 KB and a KB 1024 bytes; KiB, MiB and GiB are the same.
///
/// # Errors
/// The expected format.
pub fn throughput(text: &str) -> Result<Throughput, String> {
    let expected = || format!("'{text}': expected a throughput above 0 such as 90MB/s or 500KB/s");
    let (number, unit) = split(text, &THROUGHPUTS).ok_or_else(expected)?;
    let bytes_per_second = number * unit.size;
    match bytes_per_second.is_finite() && bytes_per_second > 0.0 {
        true => Ok(Throughput { bytes_per_second, number, unit }),
        false => Err(expected()),
    }
}

/// Splits a number from its unit.
fn split(text: &str, units: &[Unit]) -> Option<(f64, Unit)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let name = text[end..].trim_start();
    let unit = units.iter().find(|unit| unit.name == name)?;
    Some((text[..end].parse().ok()?, *unit))
}
