//! Texts of times, APIs and error codes, the same in JSON, in scripts and on the command line.

use std::{fmt, str::FromStr, time::Duration};

use curtail_wire::{ApiKey, ErrorCode};

use super::Time;

/// Why a text is no time, API, error code or release.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseFaultError(pub(super) String);

/// The longest time. A longer one would overflow the clock.
pub(super) const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// Units, shortest first, with the length of each in nanoseconds.
const UNITS: [(&str, u64); 3] = [("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];

/// Reads a duration such as `20ms` or `1.5s`.
pub(super) fn parse_duration(text: &str) -> Result<Duration, ParseFaultError> {
    let wrong = || {
        ParseFaultError(format!(
            "'{text}' is no time; use a number with the unit us, ms or s, as in 20ms"
        ))
    };
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = &text[number.len()..];
    let (_, nanos) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() > 9 {
        return Err(wrong());
    }
    let whole: u64 = whole.parse().map_err(|_| wrong())?;
    let part: u64 = fraction.parse().map_err(|_| wrong())?;
    // At most 10^9 parts of at most 10^9 nanoseconds.
    let part = part * nanos / 10_u64.pow(fraction.len() as u32);
    let total = whole.checked_mul(*nanos).and_then(|whole| whole.checked_add(part));
    let total = Duration::from_nanos(total.ok_or_else(wrong)?);
    match total <= LONGEST {
        true => Ok(total),
        false => Err(ParseFaultError(format!("'{text}' is more than a year"))),
    }
}

/// Writes a duration in the largest unit without a fraction. Nanoseconds are not written.
pub(super) fn duration_text(duration: Duration) -> String {
    let micros = duration.as_micros();
    match micros {
        _ if micros.is_multiple_of(1_000_000) => format!("{}s", micros / 1_000_000),
        _ if micros.is_multiple_of(1_000) => format!("{}ms", micros / 1_000),
        _ => format!("{micros}us"),
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(time) => f.write_str(&duration_text(*time)),
            Self::Uniform(from, to) => {
                write!(f, "uniform({}, {})", duration_text(*from), duration_text(*to))
            }
            Self::Exponential(mean) => write!(f, "exponential({})", duration_text(*mean)),
        }
    }
}

impl FromStr for Time {
    type Err = ParseFaultError;

    fn from_str(text: &str) -> Result<Self, ParseFaultError> {
        let inner = |name: &str| text.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')');
        if let Some(range) = inner("uniform") {
            let wrong =
                || ParseFaultError(format!("'{text}' needs two times, as in uniform(10ms, 50ms)"));
            let (from, to) = range.split_once(',').ok_or_else(wrong)?;
            return Ok(Self::Uniform(parse_duration(from.trim())?, parse_duration(to.trim())?));
        }
        if let Some(mean) = inner("exponential") {
            return Ok(Self::Exponential(parse_duration(mean.trim())?));
        }
        parse_duration(text).map(Self::Fixed)
    }
}

impl TryFrom<String> for Time {
    type Error = ParseFaultError;

    fn try_from(text: String) -> Result<Self, ParseFaultError> {
        text.parse()
    }
}

impl From<Time> for String {
    fn from(time: Time) -> Self {
        time.to_string()
    }
}

/// Finds an API by Kafka's name.
pub(super) fn parse_api(name: &str) -> Result<ApiKey, ParseFaultError> {
    let known = ApiKey::all().find(|api| api.name() == name);
    known.ok_or_else(|| {
        ParseFaultError(format!(
            "'{name}' is no API; use Kafka's name, such as Produce or OffsetCommit"
        ))
    })
}

/// Finds an error code by Kafka's name or its number.
pub(super) fn parse_code(text: &str) -> Result<ErrorCode, ParseFaultError> {
    let named = |code: &ErrorCode| code.name() == text || code.0.to_string() == text;
    let mut known = (-1..i16::MAX).map(ErrorCode).take_while(|code| code.name() != UNKNOWN);
    known.find(named).ok_or_else(|| {
        ParseFaultError(format!(
            "'{text}' is no error code; use Kafka's name, such as NOT_LEADER_OR_FOLLOWER, or its number"
        ))
    })
}

/// The name of codes that Kafka does not define.
const UNKNOWN: &str = "UNKNOWN_CODE";

macro_rules! as_text {
    ($module:ident, $type:ty, $parse:path, $write:expr) => {
        pub(super) mod $module {
            use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

            pub(in crate::faults) fn serialize<S: Serializer>(
                value: &$type,
                serializer: S,
            ) -> Result<S::Ok, S::Error> {
                serializer.collect_str(&$write(*value))
            }

            pub(in crate::faults) fn deserialize<'de, D: Deserializer<'de>>(
                deserializer: D,
            ) -> Result<$type, D::Error> {
                let text = String::deserialize(deserializer)?;
                $parse(&text).map_err(D::Error::custom)
            }
        }
    };
}

as_text!(duration, std::time::Duration, super::parse_duration, super::duration_text);
as_text!(code, curtail_wire::ErrorCode, super::parse_code, |code: super::ErrorCode| code.name());

/// An optional address.
pub(super) mod address {
    use std::net::SocketAddr;

    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

    pub(in crate::faults) fn serialize<S: Serializer>(
        address: &Option<SocketAddr>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        address.serialize(serializer)
    }

    pub(in crate::faults) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<SocketAddr>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        let parse = |text: String| {
            let wrong = |_| format!("'{text}' is no address; use IP:PORT, as in 127.0.0.1:9092");
            text.parse().map_err(wrong)
        };
        text.map(parse).transpose().map_err(D::Error::custom)
    }
}

/// An optional API.
pub(super) mod api {
    use curtail_wire::ApiKey;
    use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

    pub(in crate::faults) fn serialize<S: Serializer>(
        api: &Option<ApiKey>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match api {
            Some(api) => serializer.serialize_str(api.name()),
            None => serializer.serialize_none(),
        }
    }

    pub(in crate::faults) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<ApiKey>, D::Error> {
        let name = Option::<String>::deserialize(deserializer)?;
        name.map(|name| super::parse_api(&name)).transpose().map_err(D::Error::custom)
    }
}
