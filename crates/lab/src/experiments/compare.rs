//! Comparisons of arms: within one run, whose turns were interleaved, and between two runs.

#[cfg(test)]
pub(crate) mod tests;

use super::{ArmReport, Report, RoundReport};

/// A compared metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Median latency.
    P50,
    /// 99th percentile.
    P99,
    /// 99.9th percentile.
    P999,
    /// Longest latency.
    Max,
    /// Records per second.
    Throughput,
    /// CPU time per record.
    Cpu,
}

impl Metric {
    /// All metrics, in display order.
    pub const ALL: [Self; 6] =
        [Self::P50, Self::P99, Self::P999, Self::Max, Self::Throughput, Self::Cpu];

    /// Name in a table.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::P50 => "p50",
            Self::P99 => "p99",
            Self::P999 => "p99.9",
            Self::Max => "max",
            Self::Throughput => "records/s",
            Self::Cpu => "CPU/record",
        }
    }

    fn of_arm(self, arm: &ArmReport) -> f64 {
        match self {
            Self::P50 => arm.latency_us.p50,
            Self::P99 => arm.latency_us.p99,
            Self::P999 => arm.latency_us.p999,
            Self::Max => arm.latency_us.max,
            Self::Throughput => arm.throughput_rps,
            Self::Cpu => arm.cpu_us_per_record,
        }
    }

    fn of_round(self, round: &RoundReport) -> f64 {
        match self {
            Self::P50 => round.latency_us.p50,
            Self::P99 => round.latency_us.p99,
            Self::P999 => round.latency_us.p999,
            Self::Max => round.latency_us.max,
            Self::Throughput => round.throughput_rps,
            Self::Cpu => round.cpu_us_per_record,
        }
    }
}

/// Significance of a ratio, judged by the turns on both sides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// One side ran once, so a difference cannot be told from noise.
    Single,
    /// The turns of both sides overlap: the difference may be noise.
    Noise,
    /// Every turn of one side is beyond every turn of the other; equal sides do so by chance with this probability.
    Apart(f64),
}

/// Ratio of an arm's figure to another arm's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// The metric.
    pub metric: Metric,
    /// First figure divided by the second; `None` if they are not comparable.
    pub ratio: Option<f64>,
    /// Significance.
    pub verdict: Verdict,
}

/// Meaning of the marks next to these ratios.
#[must_use]
pub fn legend(rows: &[Row]) -> &'static str {
    let single = |row: &Row| row.ratios.iter().all(|ratio| ratio.verdict == Verdict::Single);
    match rows.iter().all(single) {
        true => "an arm ran only once, so differences may be noise",
        false => {
            "~: turns overlap, so the difference may be noise; ?: an arm ran only once; no mark: every turn of one is \
             beyond every turn of the other"
        }
    }
}

impl Row {
    /// The ratios as text; without marks if all would have the same one.
    #[must_use]
    pub fn cells(&self, rows: &[Self]) -> Vec<String> {
        let single = |ratio: &Ratio| ratio.verdict == Verdict::Single;
        let marks = !rows.iter().flat_map(|row| &row.ratios).all(single);
        self.ratios.iter().map(|ratio| ratio.text(marks)).collect()
    }
}

impl Ratio {
    fn text(&self, marks: bool) -> String {
        let Some(ratio) = self.ratio else { return "-".to_owned() };
        let mark = match self.verdict {
            _ if !marks => "",
            Verdict::Single => " ?",
            Verdict::Noise => " ~",
            Verdict::Apart(_) => "",
        };
        let text = match ratio {
            _ if ratio > 0.0 && ratio <= 0.1 => format!("{:.0} times less", 1.0 / ratio),
            _ if ratio >= 10.0 => format!("{ratio:.0} times more"),
            _ => format!("{ratio:.2}x"),
        };
        text + mark
    }
}

/// Ratios of an arm to another one.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Name of the arm.
    pub arm: String,
    /// Client of the arm.
    pub client: String,
    /// One ratio per [`Metric::ALL`].
    pub ratios: Vec<Ratio>,
}

/// Ratios of one experiment's arms to the arms of the same names in another run.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// The experiment.
    pub experiment: String,
    /// Other differences between the runs, and reasons why arms cannot be compared.
    pub notes: Vec<String>,
    /// The arms that both runs have.
    pub rows: Vec<Row>,
}

/// Ratios of a report's other arms to its first one.
#[must_use]
pub fn within(report: &Report) -> Vec<Row> {
    let Some((first, others)) = report.arms.split_first() else { return Vec::new() };
    others.iter().map(|arm| row(arm, first)).collect()
}

/// Ratios of the second run to the first, experiment by experiment.
///
/// # Errors
/// The runs have no experiment, or no arm, in common; one line.
pub fn between(first: &[Report], second: &[Report]) -> Result<Vec<Comparison>, String> {
    let names = |reports: &[Report]| {
        let names: Vec<&str> = reports.iter().map(|report| &*report.experiment).collect();
        if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
    };
    let mut comparisons = Vec::new();
    for before in first {
        let same = |after: &&Report| after.experiment == before.experiment;
        let Some(after) = second.iter().find(same) else { continue };
        comparisons.push(of_experiment(before, after));
    }
    if comparisons.is_empty() {
        return Err(format!(
            "the runs have no experiment in common: the first has {}, the second {}",
            names(first),
            names(second)
        ));
    }
    if comparisons.iter().all(|comparison| comparison.rows.is_empty()) {
        let names: Vec<_> = comparisons.iter().map(|c| &*c.experiment).collect();
        return Err(format!("the runs have no arm of {} in common", names.join(", ")));
    }
    Ok(comparisons)
}

fn of_experiment(before: &Report, after: &Report) -> Comparison {
    let mut notes = Vec::new();
    let mut differ = |what: &str, one: String, other: String| {
        if one != other {
            notes.push(format!("{what} differs: {one} and {other}"));
        }
    };
    differ("the cluster", before.cluster.clone(), after.cluster.clone());
    differ("the scale", before.scale.to_string(), after.scale.to_string());
    differ("the seed", before.seed.to_string(), after.seed.to_string());
    let machine = |report: &Report| {
        let environment = &report.environment;
        format!("{} cores of {}", environment.cores, environment.processor)
    };
    differ("the machine", machine(before), machine(after));
    let build = |report: &Report| {
        let build = if report.environment.release_build { "release" } else { "development" };
        build.to_owned()
    };
    differ("the build", build(before), build(after));
    let mut rows = Vec::new();
    for arm in &after.arms {
        let same = |other: &&ArmReport| other.name == arm.name && other.client == arm.client;
        match before.arms.iter().find(same) {
            Some(other) => rows.push(row(arm, other)),
            None => notes.push(format!("{} of {} is only in the second run", arm.name, arm.client)),
        }
    }
    for arm in &before.arms {
        if !rows.iter().any(|row| row.arm == arm.name && row.client == arm.client) {
            notes.push(format!("{} of {} is only in the first run", arm.name, arm.client));
        }
    }
    Comparison { experiment: before.experiment.clone(), notes, rows }
}

fn row(arm: &ArmReport, by: &ArmReport) -> Row {
    let ratio = |metric: Metric| {
        let comparable = match metric {
            Metric::Throughput => true,
            Metric::Cpu => arm.cpu_includes_brokers == by.cpu_includes_brokers,
            _ => arm.latency_until == by.latency_until,
        };
        let ratio = metric.of_arm(arm) / metric.of_arm(by);
        Ratio {
            metric,
            ratio: (comparable && ratio.is_finite()).then_some(ratio),
            verdict: verdict(&turns(arm, metric), &turns(by, metric)),
        }
    };
    let ratios = Metric::ALL.map(ratio).to_vec();
    Row { arm: arm.name.clone(), client: arm.client.clone(), ratios }
}

fn turns(arm: &ArmReport, metric: Metric) -> Vec<f64> {
    arm.rounds.iter().map(|round| metric.of_round(round)).collect()
}

fn verdict(one: &[f64], other: &[f64]) -> Verdict {
    if one.len() < 2 || other.len() < 2 {
        return Verdict::Single;
    }
    let least = |of: &[f64]| of.iter().copied().fold(f64::INFINITY, f64::min);
    let most = |of: &[f64]| of.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if least(one) <= most(other) && least(other) <= most(one) {
        return Verdict::Noise;
    }
    Verdict::Apart(chance(one.len(), other.len()))
}

/// Probability that, of this many equal turns, all of one side lie on the same side of all of the other: two
/// of the possible arrangements.
fn chance(one: usize, other: usize) -> f64 {
    let arrangements = (1..=one).map(|k| (other + k) as f64 / k as f64).product::<f64>();
    2.0 / arrangements
}
