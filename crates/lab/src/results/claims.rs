//! The claims of the page, as data.

use super::{Cluster, number::Unit, number::with_unit};
use crate::experiments::{ArmReport, RoundReport};

/// A figure of an arm and its aim.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) experiment: &'static str,
    /// Clusters on which the claim is made.
    pub(super) clusters: &'static [Cluster],
    /// The arm of Curtail; other clients are compared in their arm of the same name.
    pub(super) arm: &'static str,
    pub(super) metric: Metric,
    pub(super) aim: Aim,
    /// The circumstances; the metric's name follows.
    pub(super) sentence: &'static str,
    /// Whether the README's table has it.
    pub(super) front: bool,
}

/// A figure of an arm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Metric {
    P50,
    P99,
    P999,
    Max,
    /// CPU time per record.
    Cpu,
    /// MB of values per second, of all measured records.
    Throughput,
    /// A figure that the experiment notes under this name.
    Noted(&'static str, &'static str, Unit),
    /// A noted amount per noted seconds.
    Rate {
        amount: &'static str,
        seconds: &'static str,
    },
}

/// What a figure must reach. `Limit` is "at least" for metrics of which more is better, and "at most" for the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Aim {
    Limit(f64),
    /// Curtail's other arm in the same turn, times `factor`, plus `plus`.
    Arm {
        arm: &'static str,
        factor: f64,
        plus: f64,
    },
    /// A noted figure of the same arm times `factor`.
    Noted {
        figure: &'static str,
        words: &'static str,
        factor: f64,
    },
    /// The best other client in the same turn.
    Others,
}

impl Metric {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::P50 => "p50",
            Self::P99 => "p99",
            Self::P999 => "p99.9",
            Self::Max => "slowest record",
            Self::Cpu => "CPU time per record",
            Self::Throughput => "throughput",
            Self::Noted(_, words, _) => words,
            Self::Rate { .. } => "throughput without a limit",
        }
    }

    pub(super) fn unit(self) -> Unit {
        match self {
            Self::P50 | Self::P99 | Self::P999 | Self::Max => Unit::Ms,
            Self::Cpu => Unit::Us,
            Self::Throughput => Unit::Mbps,
            Self::Noted(.., unit) => unit,
            Self::Rate { .. } => Unit::Mbps,
        }
    }

    pub(super) fn more_is_better(self) -> bool {
        matches!(self, Self::Rate { .. } | Self::Throughput)
    }

    /// The figure of all turns together.
    pub(super) fn of_arm(self, arm: &ArmReport) -> f64 {
        let noted = |name| arm.extra.get(name).copied().unwrap_or(f64::NAN);
        match self {
            Self::P50 => arm.latency_us.p50 / 1000.0,
            Self::P99 => arm.latency_us.p99 / 1000.0,
            Self::P999 => arm.latency_us.p999 / 1000.0,
            Self::Max => arm.latency_us.max / 1000.0,
            Self::Cpu => arm.cpu_us_per_record,
            Self::Throughput => arm.throughput_mbps,
            Self::Noted(name, ..) => noted(name),
            Self::Rate { amount, seconds } => noted(amount) / noted(seconds),
        }
    }

    /// The figure of each turn; of noted figures, which reports have for all turns together, that one.
    pub(super) fn of_turns(self, arm: &ArmReport) -> Vec<f64> {
        let of_round: fn(&RoundReport) -> f64 = match self {
            Self::P50 => |round| round.latency_us.p50 / 1000.0,
            Self::P99 => |round| round.latency_us.p99 / 1000.0,
            Self::P999 => |round| round.latency_us.p999 / 1000.0,
            Self::Max => |round| round.latency_us.max / 1000.0,
            Self::Cpu => |round| round.cpu_us_per_record,
            Self::Throughput => |round| round.throughput_mbps,
            Self::Noted(..) | Self::Rate { .. } => return vec![self.of_arm(arm)],
        };
        match arm.rounds.is_empty() {
            true => vec![self.of_arm(arm)],
            false => arm.rounds.iter().map(of_round).collect(),
        }
    }
}

impl Aim {
    pub(super) fn text(self, metric: Metric) -> String {
        let more = metric.more_is_better();
        let word = if more { "at least" } else { "at most" };
        let times = |factor: f64| match factor {
            1.0 => String::new(),
            factor => format!("{factor} times "),
        };
        match self {
            Self::Limit(0.0) if !more => "none".to_owned(),
            Self::Limit(limit) => format!("{word} {}", with_unit(limit, metric.unit())),
            Self::Arm { arm, factor, plus } => {
                let more = match plus {
                    0.0 => String::new(),
                    plus => format!(" plus {}", with_unit(plus, metric.unit())),
                };
                format!("{word} {}that of `{arm}`{more}", times(factor))
            }
            Self::Noted { words, factor, .. } => format!("{word} {}{words}", times(factor)),
            Self::Others if more => "not below the best other client".to_owned(),
            Self::Others => "not above the best other client".to_owned(),
        }
    }
}

const ALL: &[Cluster] = &Cluster::ALL;
const APACHE: &[Cluster] = &[Cluster::Apache];
const EMBEDDED: &[Cluster] = &[Cluster::Embedded];
const SIM: &[Cluster] = &[Cluster::Sim];
const REAL_TIME: &[Cluster] = &[Cluster::Apache, Cluster::Embedded];
const OWN: &[Cluster] = &[Cluster::Embedded, Cluster::Sim];

/// Stall beyond the time that the cluster needs to name other leaders.
const BEYOND: Metric =
    Metric::Noted("stall_beyond_election_ms", "stall beyond the cluster's own election", Unit::Ms);
const SHARE: Metric =
    Metric::Noted("slow_share_percent", "share of the bytes sent to it", Unit::Percent);
const RETURN: Metric = Metric::Noted("return_p99_ms", "p99", Unit::Ms);
const SILENCE: Metric =
    Metric::Noted("stall_ms", "longest time without an acknowledgement", Unit::Ms);

/// Fetch sessions that the broker took from their consumers for others.
const EVICTED: Metric = Metric::Noted("evictions_per_s", "evicted sessions", Unit::PerSecond);
/// Until every record of the backlog has been read.
const BACKLOG: Metric = Metric::Noted("caught_up_ms", "time to catch up", Unit::Ms);

/// After a load at a steady rate, one without a limit.
const FLAT_OUT: Metric = Metric::Rate { amount: "flat_out_mb", seconds: "flat_out_s" };

const ACKS_ALL: &str = "Steady rate, acks=all";
const ACKS_ONE: &str = "Steady rate, acks=1";
const REPLICAS: &str = "Steady rate, 3 replicas";
const TEN_MB: &str = "10 MB/s, default settings";
const FORTY_MB: &str = "40 MB/s, default settings";
const BURST: &str = "24 producers send at the same moment, `linger.ms` 0";
const BESIDE_FROZEN: &str = "A broker is unresponsive; partitions without a replica on it";
const BESIDE_SLOW: &str = "A broker responds 20 ms late; partitions without a replica on it";
const CAUGHT_UP: &str = "A consumer without a backlog";
const ONE_BEHIND: &str = "A backlog in one partition; the other partitions";
const MIN_ISR: &str = "`min.insync.replicas` 2, all replicas in sync";
const MIN_ISR_SLOW: &str = "`min.insync.replicas` 2, a slow replica";
const MIN_ISR_GONE: &str = "`min.insync.replicas` 2, one of 3 replicas stopped";

const fn claim(
    experiment: &'static str,
    clusters: &'static [Cluster],
    arm: &'static str,
    sentence: &'static str,
    metric: Metric,
    aim: Aim,
) -> Claim {
    Claim { experiment, clusters, arm, metric, aim, sentence, front: false }
}

/// A claim that the README shows too.
const fn front(claim: &Claim) -> Claim {
    Claim { front: true, ..*claim }
}

const fn limit(value: f64) -> Aim {
    Aim::Limit(value)
}

const fn arm(arm: &'static str, factor: f64, plus: f64) -> Aim {
    Aim::Arm { arm, factor, plus }
}

/// A panel of the README's picture.
pub(super) struct Picture {
    pub(super) title: &'static str,
    pub(super) experiment: &'static str,
    pub(super) arm: &'static str,
}

const fn picture(title: &'static str, experiment: &'static str, arm: &'static str) -> Picture {
    Picture { title, experiment, arm }
}

/// The README's picture: p99.9 on Apache Kafka.
pub(super) const PICTURE: [Picture; 4] = [
    picture("A broker is killed; 2 replicas, keyless", "killed-leader", "rf2-keyless"),
    picture("A broker responds 20 ms late; 2,048 records/s", "slow-broker", "default-2048"),
    picture("All brokers restart in turn; 12 partitions", "roll", "few-all"),
    picture("All leaders move at once; 6 partitions", "leader-move", "6-partitions"),
];

/// While preferred leaders return, compared with the time before.
const NEAR_THE_STEADY: Aim =
    Aim::Noted { figure: "steady_p99_ms", words: "that before", factor: 1.5 };

/// All claims, in the order of the page.
pub(super) const CLAIMS: &[Claim] = &[
    front(&claim(
        "killed-leader",
        ALL,
        "rf2-keyless",
        "A broker is killed; 2 replicas, keyless",
        Metric::P999,
        limit(250.0),
    )),
    claim(
        "killed-leader",
        APACHE,
        "rf3",
        "A broker is killed; 3 replicas, keyed",
        Metric::P999,
        Aim::Others,
    ),
    claim(
        "killed-leader",
        ALL,
        "rf3",
        "A broker is killed; 3 replicas, keyed",
        BEYOND,
        limit(150.0),
    ),
    front(&claim(
        "frozen-leader",
        ALL,
        "rf2-keyless",
        "A broker is unresponsive for 20 s; 2 replicas, keyless",
        Metric::P999,
        limit(1000.0),
    )),
    claim(
        "frozen-leader",
        ALL,
        "rf3",
        "A broker is unresponsive for 20 s; 3 replicas, keyed",
        BEYOND,
        limit(500.0),
    ),
    front(&claim(
        "slow-broker",
        ALL,
        "default-2048",
        "A broker responds 20 ms late; 2,048 records/s",
        Metric::P999,
        limit(220.0),
    )),
    claim(
        "slow-broker",
        ALL,
        "default-2048",
        "A broker responds 20 ms late; 2,048 records/s",
        Metric::P99,
        limit(5.0),
    ),
    claim(
        "slow-broker",
        ALL,
        "default-2048",
        "A broker responds 20 ms late; 2,048 records/s",
        SHARE,
        limit(0.5),
    ),
    claim(
        "slow-broker",
        ALL,
        "default-4096",
        "A broker responds 20 ms late; 4,096 records/s",
        Metric::P99,
        limit(5.0),
    ),
    claim(
        "slow-broker",
        ALL,
        "default-4096",
        "A broker responds 20 ms late; 4,096 records/s",
        SHARE,
        limit(0.5),
    ),
    front(&claim(
        "roll",
        APACHE,
        "few-all",
        "All brokers restart in turn; 12 partitions, acks=all",
        Metric::P999,
        Aim::Others,
    )),
    claim(
        "roll",
        APACHE,
        "few-all-keyless",
        "All brokers restart in turn; 12 partitions, acks=all, keyless",
        Metric::P999,
        Aim::Others,
    ),
    claim(
        "roll",
        APACHE,
        "few-all-keyless",
        "All brokers restart in turn; 12 partitions, acks=all, keyless",
        Metric::P99,
        Aim::Others,
    ),
    claim(
        "roll",
        APACHE,
        "few-all-keyless",
        "All brokers restart in turn; 12 partitions, acks=all, keyless",
        Metric::Max,
        Aim::Limit(1000.0),
    ),
    claim(
        "roll",
        APACHE,
        "many-all",
        "All brokers restart in turn; 120 partitions, acks=all",
        Metric::P999,
        Aim::Others,
    ),
    claim(
        "roll",
        APACHE,
        "many-all-keyless",
        "All brokers restart in turn; 120 partitions, acks=all, keyless",
        Metric::P999,
        Aim::Others,
    ),
    claim(
        "roll",
        APACHE,
        "few-1",
        "All brokers restart in turn; 12 partitions, acks=1",
        Metric::P999,
        Aim::Others,
    ),
    claim(
        "roll",
        APACHE,
        "many-1",
        "All brokers restart in turn; 120 partitions, acks=1",
        Metric::P999,
        Aim::Others,
    ),
    claim(
        "preferred-return",
        REAL_TIME,
        "few-keyless",
        "Preferred leaders return; 12 partitions, keyless",
        RETURN,
        NEAR_THE_STEADY,
    ),
    claim(
        "preferred-return",
        REAL_TIME,
        "few-keyed",
        "Preferred leaders return; 12 partitions, keyed",
        RETURN,
        NEAR_THE_STEADY,
    ),
    claim(
        "preferred-return",
        REAL_TIME,
        "many-keyless",
        "Preferred leaders return; 120 partitions, keyless",
        RETURN,
        NEAR_THE_STEADY,
    ),
    claim(
        "preferred-return",
        REAL_TIME,
        "many-keyed",
        "Preferred leaders return; 120 partitions, keyed",
        RETURN,
        NEAR_THE_STEADY,
    ),
    claim(
        "preferred-return",
        APACHE,
        "few-keyless",
        "Preferred leaders return; 12 partitions, keyless",
        Metric::P999,
        Aim::Others,
    ),
    claim(
        "preferred-return",
        APACHE,
        "few-keyed",
        "Preferred leaders return; 12 partitions, keyed",
        Metric::P999,
        Aim::Others,
    ),
    claim(
        "preferred-return",
        APACHE,
        "many-keyless",
        "Preferred leaders return; 120 partitions, keyless",
        Metric::P999,
        Aim::Others,
    ),
    claim(
        "preferred-return",
        APACHE,
        "many-keyed",
        "Preferred leaders return; 120 partitions, keyed",
        Metric::P999,
        Aim::Others,
    ),
    claim(
        "roll",
        ALL,
        "few-all",
        "All brokers restart in turn; 12 partitions, hints against none",
        Metric::P999,
        arm("few-all-baseline", 1.0, 0.0),
    ),
    claim(
        "roll",
        ALL,
        "many-all",
        "All brokers restart in turn; 120 partitions, hints against none",
        Metric::P999,
        arm("many-all-baseline", 1.0, 0.0),
    ),
    front(&claim(
        "leader-move",
        APACHE,
        "6-partitions",
        "All leaders move at once; 6 partitions",
        Metric::P999,
        limit(250.0),
    )),
    front(&claim(
        "leader-move",
        APACHE,
        "100-partitions",
        "All leaders move at once; 100 partitions",
        Metric::P999,
        limit(1000.0),
    )),
    claim(
        "leader-move",
        APACHE,
        "one-by-one",
        "100 leaders move one by one; keyless",
        Metric::P999,
        Aim::Others,
    ),
    claim(
        "leader-move",
        EMBEDDED,
        "hints",
        "100 leaders move one by one; leader hints",
        Metric::P999,
        arm("baseline", 0.12, 0.0),
    ),
    claim(
        "leader-move",
        EMBEDDED,
        "hints",
        "100 leaders move one by one; leader hints",
        Metric::P999,
        arm("refresh", 1.0, 0.0),
    ),
    claim(
        "leader-move",
        SIM,
        "hints",
        "All leaders move at once; leader hints",
        Metric::Max,
        arm("baseline", 1.0, 0.0),
    ),
    claim("bystanders", ALL, "frozen", BESIDE_FROZEN, Metric::P999, BEFORE),
    claim("bystanders", ALL, "slow", BESIDE_SLOW, Metric::P999, BEFORE),
    claim("bystanders", APACHE, "frozen", BESIDE_FROZEN, Metric::P999, Aim::Others),
    claim("bystanders", APACHE, "slow", BESIDE_SLOW, Metric::P999, Aim::Others),
    claim(
        "cold-start",
        REAL_TIME,
        "warm-up",
        "First 2 s of a producer after `warm_up`",
        Metric::Max,
        limit(15.0),
    ),
    front(&claim(
        "cold-start",
        REAL_TIME,
        "cold",
        "First 2 s of a new producer",
        Metric::Max,
        Aim::Others,
    )),
    claim(
        "metadata-churn",
        REAL_TIME,
        "snapshots",
        "A call of `send` while 250,000 partitions change",
        Metric::P99,
        limit(0.05),
    ),
    claim(
        "metadata-churn",
        REAL_TIME,
        "snapshots",
        "A call of `send` while 250,000 partitions change",
        Metric::P99,
        arm("locked", 0.025, 0.0),
    ),
    claim(
        "fetch-sessions",
        ALL,
        "credit",
        "24 consumers per broker, 16 slots for fetch sessions",
        EVICTED,
        limit(0.0),
    ),
    claim(
        "fetch-sessions",
        APACHE,
        "default",
        "24 consumers per broker, 16 slots for fetch sessions",
        EVICTED,
        Aim::Others,
    ),
    claim(
        "stalled-partition",
        REAL_TIME,
        "credit",
        "One of six partitions is paused; the other five",
        Metric::P99,
        Aim::Noted { figure: "drained_p99_ms", words: "that without a pause", factor: 1.25 },
    ),
    claim(
        "e2e",
        ALL,
        "classic-3",
        "Send to poll, one record at a time; 3 brokers, classic protocol",
        Metric::P999,
        limit(6.0),
    ),
    claim(
        "e2e",
        APACHE,
        "classic-3",
        "Send to poll, one record at a time; 3 brokers, classic protocol",
        Metric::P99,
        Aim::Others,
    ),
    claim(
        "e2e",
        ALL,
        "consumer-3",
        "Send to poll, one record at a time; 3 brokers, consumer protocol",
        Metric::P999,
        limit(7.0),
    ),
    claim(
        "e2e",
        ALL,
        "classic-1",
        "Send to poll, one record at a time; 1 broker, classic protocol",
        Metric::P999,
        limit(4.0),
    ),
    claim(
        "e2e",
        ALL,
        "consumer-1",
        "Send to poll, one record at a time; 1 broker, consumer protocol",
        Metric::P999,
        limit(4.0),
    ),
    claim("e2e", APACHE, "open-1", OPEN_LOOP, Metric::P50, Aim::Others),
    front(&claim("e2e", APACHE, "open-1", OPEN_LOOP, Metric::P99, Aim::Others)),
    claim("e2e", APACHE, "open-1", OPEN_LOOP, Metric::P999, Aim::Others),
    claim("e2e", APACHE, "open-1", OPEN_LOOP, Metric::Cpu, Aim::Others),
    claim("e2e", OWN, "open-1", OPEN_LOOP, Metric::P50, limit(0.32)),
    claim("e2e", OWN, "open-1", OPEN_LOOP, Metric::P99, limit(0.7)),
    claim("produce", APACHE, "max-100", FAST_100, Metric::Throughput, Aim::Others),
    claim("produce", APACHE, "max-100", FAST_100, Metric::P50, Aim::Others),
    claim("produce", APACHE, "max-100", FAST_100, Metric::P99, Aim::Others),
    claim("produce", APACHE, "max-100", FAST_100, Metric::Cpu, Aim::Others),
    claim("produce", APACHE, "max-1000", FAST_1000, Metric::Throughput, Aim::Others),
    claim("produce", APACHE, "max-1000", FAST_1000, Metric::P50, Aim::Others),
    claim("produce", APACHE, "max-1000", FAST_1000, Metric::P99, Aim::Others),
    claim("produce", APACHE, "rate-10000", STEADY, Metric::P50, Aim::Others),
    claim("produce", APACHE, "rate-10000", STEADY, Metric::P99, Aim::Others),
    claim("produce", APACHE, "rate-10000", STEADY, Metric::Cpu, Aim::Others),
    claim("consume", APACHE, "backlog-100", READ_100, Metric::Throughput, Aim::Others),
    claim("consume", APACHE, "backlog-100", READ_100, Metric::Cpu, Aim::Others),
    claim("consume", APACHE, "backlog-1000", READ_1000, Metric::Throughput, Aim::Others),
    claim("consume", APACHE, "backlog-1000", READ_1000, Metric::Cpu, Aim::Others),
    claim("acks", ALL, "all", ACKS_ALL, Metric::P99, limit(50.0)),
    claim("acks", APACHE, "all", ACKS_ALL, Metric::P99, Aim::Others),
    claim("acks", APACHE, "all", ACKS_ALL, Metric::P999, Aim::Others),
    claim("acks", APACHE, "1", ACKS_ONE, Metric::P99, Aim::Others),
    claim("acks", APACHE, "all", ACKS_ALL, FLAT_OUT, Aim::Others),
    claim("acks", ALL, "all", "acks=all against acks=1", FLAT_OUT, arm("1", 0.83, 0.0)),
    claim("replication-factor", ALL, "3", REPLICAS, Metric::P99, limit(50.0)),
    claim("replication-factor", APACHE, "3", REPLICAS, Metric::P99, Aim::Others),
    claim("replication-factor", APACHE, "3", REPLICAS, Metric::P999, Aim::Others),
    claim(
        "min-isr",
        ALL,
        "3",
        "`min.insync.replicas` 3 against 1, all replicas in sync",
        Metric::P50,
        arm("1", 1.25, 0.0),
    ),
    claim("min-isr", ALL, "2-gone", MIN_ISR_GONE, SILENCE, limit(500.0)),
    claim("min-isr", APACHE, "2", MIN_ISR, Metric::P99, Aim::Others),
    claim("min-isr", APACHE, "2-slow", MIN_ISR_SLOW, Metric::P99, Aim::Others),
    claim("min-isr", APACHE, "2-gone", MIN_ISR_GONE, SILENCE, Aim::Others),
    claim("linger", ALL, "5", "90 producers, `linger.ms` 5", Metric::P99, arm("0", 1.0, 5.0)),
    claim("linger", ALL, "10", "90 producers, `linger.ms` 10", Metric::P99, arm("0", 1.0, 10.0)),
    claim("linger", APACHE, "0", "90 producers, `linger.ms` 0", Metric::P99, Aim::Others),
    claim("linger", APACHE, "5", "90 producers, `linger.ms` 5", Metric::P99, Aim::Others),
    claim("latency-throughput", REAL_TIME, "default-40", FORTY_MB, Metric::P99, limit(50.0)),
    claim("latency-throughput", APACHE, "default-10", TEN_MB, Metric::P99, Aim::Others),
    claim("latency-throughput", APACHE, "default-40", FORTY_MB, Metric::P99, Aim::Others),
    claim(
        "latency-throughput",
        EMBEDDED,
        "sasl-ssl-lz4-40",
        "40 MB/s, SASL_SSL and lz4",
        Metric::P99,
        limit(50.0),
    ),
    claim(
        "micro-burst",
        ALL,
        "burst-linger",
        "24 producers send at the same moment, `linger.ms` 5",
        Metric::P99,
        arm("burst", 1.0, 5.0),
    ),
    claim(
        "micro-burst",
        ALL,
        "burst-linger",
        "24 producers send at the same moment, `linger.ms` 5",
        Metric::Noted("requests", "requests", Unit::Count),
        arm("burst", 0.8, 0.0),
    ),
    claim("micro-burst", APACHE, "burst", BURST, Metric::P99, Aim::Others),
    claim("micro-burst", APACHE, "burst", BURST, Metric::P999, Aim::Others),
    claim("catch-up", ALL, "caught-up", CAUGHT_UP, Metric::P99, limit(50.0)),
    claim("catch-up", ALL, "one-behind", ONE_BEHIND, Metric::P99, limit(50.0)),
    claim("catch-up", APACHE, "caught-up", CAUGHT_UP, Metric::P99, Aim::Others),
    claim("catch-up", APACHE, "one-behind", ONE_BEHIND, Metric::P99, Aim::Others),
    claim("catch-up", APACHE, "behind", "A backlog in every partition", BACKLOG, Aim::Others),
    claim(
        "head-of-line",
        ALL,
        "apart",
        "A slow replica elsewhere, separate connections",
        Metric::P99,
        arm("none", 2.0, 0.0),
    ),
    claim(
        "head-of-line",
        ALL,
        "shared",
        "A slow replica, one connection",
        Metric::Noted("lookup_p50_ms", "median time of a metadata request", Unit::Ms),
        limit(75.0),
    ),
];

const FAST_100: &str = "As fast as possible, 100 bytes; 1 broker";
const FAST_1000: &str = "As fast as possible, 1000 bytes; 1 broker";
const STEADY: &str = "10,000 records/s of 1000 bytes, `linger.ms` 0; 1 broker";
const READ_100: &str = "A backlog is read, 100 bytes; 1 broker";
const READ_1000: &str = "A backlog is read, 1000 bytes; 1 broker";
const OPEN_LOOP: &str = "Send to poll, 2,000 records/s; 1 broker";
const BEFORE: Aim =
    Aim::Noted { figure: "before_p999_ms", words: "that before the fault", factor: 1.25 };
