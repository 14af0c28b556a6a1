//! Forms of values: what a property's text means, and how a value is shown.

pub(super) mod security;

use std::{str::FromStr, sync::Arc, time::Duration};

use curtail_wire::fetch::IsolationLevel;

use super::{
    Acks, Assignor, DnsLookup, GroupProtocol, OffsetReset, PartitionerLoad, RecoveryStrategy,
    Secret, SecurityProtocol, redact,
};
#[cfg(feature = "arms")]
use super::{BufferedPartitions, LeaderDiscovery};
use crate::producer::{Partitioner, partitioner};

/// The texts of a property.
pub(super) struct Form<T> {
    /// What an error says is expected.
    pub(super) expected: &'static str,
    pub(super) read: fn(&str) -> Option<T>,
    pub(super) show: fn(&T) -> String,
}

macro_rules! form {
    ($name:ident: $type:ty = $expected:expr, $read:expr, $show:expr) => {
        pub(in crate::config) const $name: Form<$type> =
            Form { expected: $expected, read: $read, show: $show };
    };
}
pub(super) use form;

/// A choice between words. Some settings accept any case, as in Java.
macro_rules! choice {
    ($name:ident: $type:ident = $expected:literal, $($case:ident)? { $($word:literal => $variant:ident,)+ }) => {
        form!($name: $type = $expected,
            |text| match choice!(@text text $($case)?) {
                $($word => Some($type::$variant),)+
                _ => None,
            },
            |value| match value {
                $($type::$variant => $word,)+
            }
            .to_owned()
        );
    };
    (@text $text:ident) => { $text };
    (@text $text:ident any_case) => { $text.to_ascii_lowercase().as_str() };
}

/// Greatest keepalive times of Linux, in seconds.
const KEEPALIVE_MAX: u64 = 32_767;

/// Range of a property that is an `int` in Java.
const INT_MILLIS_TEXT: &str = "milliseconds, 0 to 2147483647";
const INT_BYTES_TEXT: &str = "bytes, 0 to 2147483647";

/// Longest user name and password that a SOCKS5 proxy can receive (RFC 1929).
pub(super) const LONGEST_LOGIN: usize = 255;
const SHORT_TEXT: &str = "a text of up to 255 bytes";

form!(BOOLEAN: bool = "true or false", boolean, bool::to_string);
form!(TEXT: String = "a text", |text| Some(text.to_owned()), String::clone);
form!(OPTIONAL_TEXT: Option<String> = "a text",
    |text| Some(Some(text.to_owned()).filter(|text| !text.is_empty())),
    |text| text.clone().unwrap_or_default()
);
form!(NAME: Option<String> = "a text that is not empty",
    |text| (!text.is_empty()).then(|| Some(text.to_owned())),
    |name| name.clone().unwrap_or_default()
);
form!(SERVERS: Vec<String> = "host:port, separated by commas, with ports of 1 to 65535", servers, |s| s.join(","));

form!(PROXY: Option<String> = "host:port, with a port of 1 to 65535",
    |text| (text.is_empty() || host_and_port(text).is_some()).then(|| some_text(text)),
    |text| text.clone().unwrap_or_default()
);
form!(SHORT_NAME: Option<String> = SHORT_TEXT,
    |text| (text.len() <= LONGEST_LOGIN).then(|| some_text(text)),
    |text| text.clone().unwrap_or_default()
);
form!(SHORT_SECRET: Option<Secret> = SHORT_TEXT,
    |text| (text.len() <= LONGEST_LOGIN).then(|| some_text(text).map(Secret::from)),
    |secret| secret.as_ref().map_or("", |_| redact::HIDDEN).to_owned()
);

form!(INT_MILLIS: Duration = INT_MILLIS_TEXT, int_millis, show_millis);
form!(LONG_MILLIS: Duration = "milliseconds, 0 to 9223372036854775807", long_millis, show_millis);
form!(OPTIONAL_MILLIS: Option<Duration> = INT_MILLIS_TEXT,
    |text| int_millis(text).map(Some),
    |time| time.as_ref().map(show_millis).unwrap_or_default()
);
form!(POSITIVE_MILLIS: Duration = "milliseconds, 1 to 2147483647",
    |text| int_millis(text).filter(|time| !time.is_zero()),
    show_millis
);
form!(IDLE_METADATA: Duration = "milliseconds, 5000 to 9223372036854775807",
    |text| long_millis(text).filter(|idle| *idle >= Duration::from_secs(5)),
    show_millis
);
form!(IDLE_MILLIS: Option<Duration> =
    "milliseconds up to 9223372036854775807, or a negative number for no limit",
    idle_millis,
    |limit| limit.map_or("-1".to_owned(), |limit| show_millis(&limit))
);
form!(KEEPALIVE_IDLE: Duration = "seconds up to 32767, 0 for no keepalive",
    |text| number(text, 0, KEEPALIVE_MAX).map(Duration::from_secs),
    show_seconds
);
form!(KEEPALIVE_INTERVAL: Duration = "seconds, 1 to 32767",
    |text| number(text, 1, KEEPALIVE_MAX).map(Duration::from_secs),
    show_seconds
);

form!(INT_BYTES: usize = INT_BYTES_TEXT, |text| number(text, 0, i32::MAX as usize), usize::to_string);
form!(FETCH_BYTES: i32 = INT_BYTES_TEXT, |text| number(text, 0, i32::MAX), i32::to_string);
form!(LONG_BYTES: usize = "bytes, 0 to 9223372036854775807",
    |text| number(text, 0, i64::MAX as usize),
    usize::to_string
);
form!(POSITIVE_BYTES: usize = "bytes, 1 to 9223372036854775807",
    |text| number(text, 1, i64::MAX as usize),
    usize::to_string
);
form!(SOCKET_BUFFER: Option<usize> =
    "bytes up to 2147483647, or -1 to leave it to the operating system",
    buffer_size,
    |bytes| bytes.map_or_else(|| "-1".to_owned(), |b| b.to_string())
);

form!(COUNT: u32 = "a count, 0 to 2147483647", |text| number(text, 0, i32::MAX as u32), u32::to_string);
form!(POSITIVE_COUNT: usize = "a count, 1 to 2147483647",
    |text| number(text, 1, i32::MAX as usize),
    usize::to_string
);
form!(MULTIPLE: u32 = "a count, 1 to 4294967295", |text| number(text, 1, u32::MAX), u32::to_string);
form!(PERCENT: u32 = "a percentage up to 1000000, 0 for no bound",
    |text| number(text, 0, 1_000_000),
    u32::to_string
);

form!(ACKS: Acks = "all, -1, 0 or 1", acks, show_acks);
form!(OFFSET_RESET: OffsetReset =
    "earliest, latest, none or by_duration: with a duration such as PT1H",
    offset_reset,
    show_offset_reset
);
form!(ASSIGNORS: Vec<Assignor> =
    "range, roundrobin, sticky, cooperative-sticky or Java's classes of these, separated by commas",
    assignors,
    |assignors| assignors.iter().map(|assignor| assignor.name()).collect::<Vec<_>>().join(",")
);
form!(PARTITIONER: Option<Arc<dyn Partitioner>> = partitioner::CLASSES,
    partitioner::of_class,
    |partitioner| partitioner.as_ref().map_or("", |p| p.class()).to_owned()
);

#[cfg(feature = "arms")]
choice!(LEADER_DISCOVERY: LeaderDiscovery = "hint, refresh or refresh-and-back-off", {
    "hint" => Hint,
    "refresh" => Refresh,
    "refresh-and-back-off" => RefreshAndBackOff,
});
choice!(PARTITIONER_LOAD: PartitionerLoad = "wait or queued-batches", {
    "wait" => Wait,
    "queued-batches" => QueuedBatches,
});
#[cfg(feature = "arms")]
choice!(BUFFERED_PARTITIONS: BufferedPartitions = "credit, omit, skip-broker or skip-all", {
    "credit" => Credit,
    "omit" => Omit,
    "skip-broker" => SkipBroker,
    "skip-all" => SkipAll,
});
choice!(ISOLATION: IsolationLevel = "read_uncommitted or read_committed", {
    "read_uncommitted" => ReadUncommitted,
    "read_committed" => ReadCommitted,
});
choice!(GROUP_PROTOCOL: GroupProtocol = "classic or consumer", any_case {
    "classic" => Classic,
    "consumer" => Consumer,
});
choice!(RECOVERY: RecoveryStrategy = "rebootstrap or none", any_case {
    "rebootstrap" => Rebootstrap,
    "none" => None,
});
choice!(DNS_LOOKUP: DnsLookup = "use_all_dns_ips or resolve_canonical_bootstrap_servers_only", any_case {
    "use_all_dns_ips" => UseAllDnsIps,
    "resolve_canonical_bootstrap_servers_only" => ResolveCanonicalBootstrapServersOnly,
});

pub(super) fn number<T: FromStr + PartialOrd + Copy>(text: &str, low: T, high: T) -> Option<T> {
    text.parse().ok().filter(|n| *n >= low && *n <= high)
}

/// Milliseconds of a property that is an `int` in Java.
fn int_millis(text: &str) -> Option<Duration> {
    number(text, 0, i32::MAX as u64).map(Duration::from_millis)
}

/// Milliseconds of a property that is a `long` in Java.
fn long_millis(text: &str) -> Option<Duration> {
    number(text, 0, i64::MAX as u64).map(Duration::from_millis)
}

/// Java takes every negative number for no limit.
fn idle_millis(text: &str) -> Option<Option<Duration>> {
    let millis = number(text, i64::MIN, i64::MAX)?;
    Some(u64::try_from(millis).ok().map(Duration::from_millis))
}

fn show_millis(duration: &Duration) -> String {
    duration.as_millis().to_string()
}

pub(super) fn show_seconds(duration: &Duration) -> String {
    duration.as_secs().to_string()
}

fn some_text(text: &str) -> Option<String> {
    Some(text.to_owned()).filter(|text| !text.is_empty())
}

fn boolean(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

fn buffer_size(text: &str) -> Option<Option<usize>> {
    match number(text, -1, i32::MAX)? {
        -1 => Some(None),
        bytes => usize::try_from(bytes).ok().map(Some),
    }
}

fn acks(text: &str) -> Option<Acks> {
    match text {
        "all" | "-1" => Some(Acks::All),
        "1" => Some(Acks::Leader),
        "0" => Some(Acks::None),
        _ => None,
    }
}

fn show_acks(acks: &Acks) -> String {
    match acks {
        Acks::All => "all",
        Acks::Leader => "1",
        Acks::None => "0",
    }
    .to_owned()
}

fn offset_reset(text: &str) -> Option<OffsetReset> {
    match text {
        "earliest" => Some(OffsetReset::Earliest),
        "latest" => Some(OffsetReset::Latest),
        "none" => Some(OffsetReset::None),
        _ => text.strip_prefix("by_duration:").and_then(iso_duration).map(OffsetReset::ByDuration),
    }
}

/// A duration as `java.time.Duration` reads it, such as `P2DT3H` or `PT1.5S`, without signs.
fn iso_duration(text: &str) -> Option<Duration> {
    let text = text.to_ascii_uppercase();
    let text = text.strip_prefix('P')?;
    let (days, times) = match text.split_once('T') {
        Some((_, "")) => return None,
        Some((days, times)) => (days, times),
        None => (text, ""),
    };
    let mut parts = Vec::new();
    let mut rest = days;
    for (units, next) in [(&[('D', 86_400)][..], times), (&[('H', 3_600), ('M', 60), ('S', 1)], "")]
    {
        for (unit, seconds) in units {
            if let Some((amount, behind)) = rest.split_once(*unit) {
                parts.push((amount, *seconds));
                rest = behind;
            }
        }
        if !rest.is_empty() {
            return None;
        }
        rest = next;
    }
    if parts.is_empty() {
        return None;
    }
    parts.into_iter().try_fold(Duration::ZERO, |sum, (amount, seconds)| {
        let (whole, fraction) =
            amount.split_once('.').filter(|_| seconds == 1).unwrap_or((amount, ""));
        let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty() || fraction.len() > 9 || !digits(whole) || !digits(fraction) {
            return None;
        }
        let whole = whole.parse::<u64>().ok()?.checked_mul(seconds)?;
        let nanos: u32 = format!("{fraction:0<9}").parse().ok()?;
        sum.checked_add(Duration::new(whole, nanos))
    })
}

/// A duration in seconds, as `java.time.Duration` may show it.
fn show_iso_duration(duration: Duration) -> String {
    let nanos = format!("{:09}", duration.subsec_nanos());
    match nanos.trim_end_matches('0') {
        "" => format!("PT{}S", duration.as_secs()),
        fraction => format!("PT{}.{fraction}S", duration.as_secs()),
    }
}

/// Java's class names, and the protocols' names, which other clients use.
fn assignors(text: &str) -> Option<Vec<Assignor>> {
    let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    let mut assignors = Vec::new();
    for entry in entries {
        let class = entry.strip_prefix("org.apache.kafka.clients.consumer.");
        let assignor = match class {
            Some(class) => Assignor::ALL.into_iter().find(|a| class_of(*a) == class),
            None => Assignor::of_name(entry),
        }?;
        if assignors.contains(&assignor) {
            return None;
        }
        assignors.push(assignor);
    }
    Some(assignors).filter(|assignors| !assignors.is_empty())
}

fn class_of(assignor: Assignor) -> &'static str {
    match assignor {
        Assignor::Range => "RangeAssignor",
        Assignor::RoundRobin => "RoundRobinAssignor",
        Assignor::Sticky => "StickyAssignor",
        Assignor::CooperativeSticky => "CooperativeStickyAssignor",
    }
}

fn show_offset_reset(reset: &OffsetReset) -> String {
    match reset {
        OffsetReset::Earliest => "earliest".to_owned(),
        OffsetReset::Latest => "latest".to_owned(),
        OffsetReset::ByDuration(age) => format!("by_duration:{}", show_iso_duration(*age)),
        OffsetReset::None => "none".to_owned(),
    }
}

fn servers(text: &str) -> Option<Vec<String>> {
    let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    let servers: Vec<String> = entries
        .map(|entry| {
            let bare = without_protocol(entry)?;
            host_and_port(bare).map(|_| bare.to_owned())
        })
        .collect::<Option<_>>()?;
    Some(servers).filter(|s| !s.is_empty())
}

/// `PLAINTEXT://host:port` is how brokers write their listeners; Java takes it for `bootstrap.servers` too.
fn without_protocol(entry: &str) -> Option<&str> {
    match entry.split_once("://") {
        None => Some(entry),
        Some((protocol, rest)) => SecurityProtocol::by_name(protocol).map(|_| rest),
    }
}

/// Host and port of `host:port` or `[v6 address]:port`; `None` where it is neither.
pub(crate) fn host_and_port(entry: &str) -> Option<(&str, u16)> {
    let (host, port) = entry.rsplit_once(':')?;
    let port = number(port, 1, u16::MAX)?;
    let host = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']')?,
        None => host,
    };
    let plausible = |c: char| c.is_ascii_alphanumeric() || "-._:%".contains(c);
    (!host.is_empty() && host.chars().all(plausible)).then_some((host, port))
}
