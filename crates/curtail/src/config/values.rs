//! What the texts of properties mean, and how values are shown.

use std::{str::FromStr, time::Duration};

use curtail_wire::fetch::IsolationLevel;

use super::{
    Acks, Assignor, BufferedPartitions, DnsLookup, GroupProtocol, LeaderDiscovery, OffsetReset,
    PartitionerLoad, RecoveryStrategy, SecurityProtocol,
};

pub(super) fn number<T: FromStr + PartialOrd + Copy>(text: &str, low: T, high: T) -> Option<T> {
    text.parse().ok().filter(|n| *n >= low && *n <= high)
}

/// Milliseconds of a property that is an `int` in Java.
pub(super) fn int_millis(text: &str) -> Option<Duration> {
    number(text, 0, i32::MAX as u64).map(Duration::from_millis)
}

/// Milliseconds of a property that is a `long` in Java.
pub(super) fn long_millis(text: &str) -> Option<Duration> {
    number(text, 0, i64::MAX as u64).map(Duration::from_millis)
}

/// Java takes every negative number for no limit.
pub(super) fn idle_millis(text: &str) -> Option<Option<Duration>> {
    let millis = number(text, i64::MIN, i64::MAX)?;
    Some(u64::try_from(millis).ok().map(Duration::from_millis))
}

pub(super) fn show_idle_millis(limit: &Option<Duration>) -> String {
    limit.map_or("-1".to_owned(), |limit| show_millis(&limit))
}

pub(super) fn show_millis(duration: &Duration) -> String {
    duration.as_millis().to_string()
}

pub(super) fn show_seconds(duration: &Duration) -> String {
    duration.as_secs().to_string()
}

pub(super) fn boolean(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

/// Any text. The option is what the table asks of every parser.
#[expect(clippy::unnecessary_wraps, reason = "one signature for the parsers of the table")]
pub(super) fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

pub(super) fn buffer_size(text: &str) -> Option<Option<usize>> {
    match number(text, -1, i32::MAX)? {
        -1 => Some(None),
        bytes => usize::try_from(bytes).ok().map(Some),
    }
}

pub(super) fn show_buffer(bytes: &Option<usize>) -> String {
    bytes.map_or_else(|| "-1".to_owned(), |b| b.to_string())
}

pub(super) fn acks(text: &str) -> Option<Acks> {
    match text {
        "all" | "-1" => Some(Acks::All),
        "1" => Some(Acks::Leader),
        "0" => Some(Acks::None),
        _ => None,
    }
}

pub(super) fn leader_discovery(text: &str) -> Option<LeaderDiscovery> {
    match text {
        "hint" => Some(LeaderDiscovery::Hint),
        "refresh" => Some(LeaderDiscovery::Refresh),
        "refresh-and-back-off" => Some(LeaderDiscovery::RefreshAndBackOff),
        _ => None,
    }
}

pub(super) fn show_leader_discovery(discovery: &LeaderDiscovery) -> String {
    match discovery {
        LeaderDiscovery::Hint => "hint",
        LeaderDiscovery::Refresh => "refresh",
        LeaderDiscovery::RefreshAndBackOff => "refresh-and-back-off",
    }
    .to_owned()
}

pub(super) fn partitioner_load(text: &str) -> Option<PartitionerLoad> {
    match text {
        "wait" => Some(PartitionerLoad::Wait),
        "queued-batches" => Some(PartitionerLoad::QueuedBatches),
        _ => None,
    }
}

pub(super) fn show_partitioner_load(load: &PartitionerLoad) -> String {
    match load {
        PartitionerLoad::Wait => "wait",
        PartitionerLoad::QueuedBatches => "queued-batches",
    }
    .to_owned()
}

pub(super) fn buffered_partitions(text: &str) -> Option<BufferedPartitions> {
    match text {
        "credit" => Some(BufferedPartitions::Credit),
        "omit" => Some(BufferedPartitions::Omit),
        "skip-broker" => Some(BufferedPartitions::SkipBroker),
        "skip-all" => Some(BufferedPartitions::SkipAll),
        _ => None,
    }
}

pub(super) fn show_buffered_partitions(what: &BufferedPartitions) -> String {
    match what {
        BufferedPartitions::Credit => "credit",
        BufferedPartitions::Omit => "omit",
        BufferedPartitions::SkipBroker => "skip-broker",
        BufferedPartitions::SkipAll => "skip-all",
    }
    .to_owned()
}

pub(super) fn show_acks(acks: &Acks) -> String {
    match acks {
        Acks::All => "all",
        Acks::Leader => "1",
        Acks::None => "0",
    }
    .to_owned()
}

pub(super) fn dns_lookup(text: &str) -> Option<DnsLookup> {
    match text.to_ascii_lowercase().as_str() {
        "use_all_dns_ips" => Some(DnsLookup::UseAllDnsIps),
        "resolve_canonical_bootstrap_servers_only" => {
            Some(DnsLookup::ResolveCanonicalBootstrapServersOnly)
        }
        _ => None,
    }
}

pub(super) fn show_dns_lookup(lookup: &DnsLookup) -> String {
    match lookup {
        DnsLookup::UseAllDnsIps => "use_all_dns_ips",
        DnsLookup::ResolveCanonicalBootstrapServersOnly => {
            "resolve_canonical_bootstrap_servers_only"
        }
    }
    .to_owned()
}

pub(super) fn recovery(text: &str) -> Option<RecoveryStrategy> {
    match text.to_ascii_lowercase().as_str() {
        "rebootstrap" => Some(RecoveryStrategy::Rebootstrap),
        "none" => Some(RecoveryStrategy::None),
        _ => None,
    }
}

pub(super) fn show_recovery(strategy: &RecoveryStrategy) -> String {
    match strategy {
        RecoveryStrategy::Rebootstrap => "rebootstrap",
        RecoveryStrategy::None => "none",
    }
    .to_owned()
}

pub(super) fn offset_reset(text: &str) -> Option<OffsetReset> {
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

pub(super) fn group_protocol(text: &str) -> Option<GroupProtocol> {
    match text.to_ascii_lowercase().as_str() {
        "classic" => Some(GroupProtocol::Classic),
        "consumer" => Some(GroupProtocol::Consumer),
        _ => None,
    }
}

pub(super) fn show_group_protocol(protocol: &GroupProtocol) -> String {
    match protocol {
        GroupProtocol::Classic => "classic".to_owned(),
        GroupProtocol::Consumer => "consumer".to_owned(),
    }
}

/// Java's class names, and the protocols' names, which other clients use.
pub(super) fn assignors(text: &str) -> Option<Vec<Assignor>> {
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

pub(super) fn show_assignors(assignors: &[Assignor]) -> String {
    assignors.iter().map(|assignor| assignor.name()).collect::<Vec<_>>().join(",")
}

pub(super) fn show_offset_reset(reset: &OffsetReset) -> String {
    match reset {
        OffsetReset::Earliest => "earliest".to_owned(),
        OffsetReset::Latest => "latest".to_owned(),
        OffsetReset::ByDuration(age) => format!("by_duration:{}", show_iso_duration(*age)),
        OffsetReset::None => "none".to_owned(),
    }
}

pub(super) fn isolation(text: &str) -> Option<IsolationLevel> {
    match text {
        "read_uncommitted" => Some(IsolationLevel::ReadUncommitted),
        "read_committed" => Some(IsolationLevel::ReadCommitted),
        _ => None,
    }
}

pub(super) fn show_isolation(level: &IsolationLevel) -> String {
    match level {
        IsolationLevel::ReadUncommitted => "read_uncommitted",
        IsolationLevel::ReadCommitted => "read_committed",
    }
    .to_owned()
}

pub(super) fn servers(text: &str) -> Option<Vec<String>> {
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
