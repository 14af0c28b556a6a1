//! From runs to rows: pure functions.

use super::{
    Cluster,
    claims::{Aim, Claim, Metric},
    number::Spread,
    store::Run,
};
use crate::{
    experiments::{ArmReport, Report},
    latency::{behind_p999, is_few_behind_p999},
    peers::Client,
};

/// Runs of a row at most, the newest ones.
pub(super) const LAST: usize = 5;

/// The name of Curtail in reports.
pub(super) const CURTAIL: &str = Client::Curtail.name();

/// The name of Curtail with a load that receives outcomes by batch.
const COMPLETIONS: &str = Client::CurtailCompletions.name();

/// A claim with the figures of its runs.
pub(super) struct Row<'a> {
    pub(super) claim: &'a Claim,
    /// The client whose figures these are: Curtail, with one of its loads.
    pub(super) client: &'static str,
    pub(super) cluster: Cluster,
    /// `None` if no figure was seen in any turn.
    pub(super) ours: Option<Spread>,
    /// The best other client of the same runs.
    pub(super) other: Option<Other<'a>>,
    /// Turns in which the aim held, of those that could be judged.
    pub(super) held: usize,
    pub(super) judged: usize,
    pub(super) turns: usize,
    /// The newest one last.
    pub(super) runs: Vec<&'a Run>,
}

/// Another client.
pub(super) struct Other<'a> {
    pub(super) client: &'a str,
    pub(super) spread: Spread,
}

impl Row<'_> {
    /// Records that the 99.9th percentile of the shortest turn rests on, if they are few.
    pub(super) fn few_behind(&self) -> Option<u64> {
        let arms =
            self.runs.iter().filter_map(|run| find(&run.report, self.claim.arm, self.client));
        let of_turns = arms.flat_map(|arm| match &*arm.rounds {
            [] => vec![arm.records],
            rounds => rounds.iter().map(|round| round.records).collect(),
        });
        let shortest = of_turns.filter(|_| self.claim.metric == Metric::P999).min()?;
        is_few_behind_p999(shortest).then(|| behind_p999(shortest))
    }

    /// Whether the aim held in every turn; `None` if it could not be judged.
    pub(super) fn is_held(&self) -> Option<bool> {
        (self.judged > 0).then_some(self.held == self.judged)
    }
}

/// The row of a claim, if a run on this cluster has its arm.
pub(super) fn row<'a>(claim: &'a Claim, cluster: Cluster, runs: &'a [Run]) -> Option<Row<'a>> {
    row_of(claim, cluster, runs, CURTAIL)
}

/// The rows of a claim: with one delivery awaited for each record, and with the load that costs least.
pub(super) fn rows<'a>(
    claim: &'a Claim,
    cluster: Cluster,
    runs: &'a [Run],
) -> impl Iterator<Item = Row<'a>> {
    [CURTAIL, COMPLETIONS]
        .into_iter()
        .filter_map(move |client| row_of(claim, cluster, runs, client))
}

fn row_of<'a>(
    claim: &'a Claim,
    cluster: Cluster,
    runs: &'a [Run],
    client: &'static str,
) -> Option<Row<'a>> {
    let runs = last_of(runs, claim.arm, client);
    let judged: Vec<(f64, Option<f64>)> =
        runs.iter().flat_map(|run| judged_turns(claim, &run.report, client)).collect();
    if judged.is_empty() {
        return None;
    }
    let holds = |value: f64, limit: f64| match claim.metric.more_is_better() {
        true => value >= limit,
        false => value <= limit,
    };
    let limits = judged.iter().filter_map(|(value, limit)| Some((*value, (*limit)?)));
    Some(Row {
        claim,
        client,
        cluster,
        ours: Spread::of(judged.iter().map(|(value, _)| *value)),
        other: others(claim.arm, claim.metric, &runs).into_iter().next(),
        held: limits.clone().filter(|(value, limit)| holds(*value, *limit)).count(),
        judged: limits.count(),
        turns: judged.len(),
        runs,
    })
}

/// The last runs with this arm, oldest first. Shortened runs count only if there is no longer one.
pub(super) fn last<'a>(runs: &'a [Run], arm: &str) -> Vec<&'a Run> {
    last_of(runs, arm, CURTAIL)
}

fn last_of<'a>(runs: &'a [Run], arm: &str, client: &str) -> Vec<&'a Run> {
    let with_arm = || runs.iter().filter(|run| find(&run.report, arm, client).is_some());
    let longest = with_arm().map(|run| run.report.scale).fold(0.0, f64::max);
    let mut last: Vec<&Run> = with_arm().filter(|run| run.report.scale >= longest).collect();
    last.drain(..last.len().saturating_sub(LAST));
    last
}

/// Other clients with this arm in these runs, the best one first.
pub(super) fn others<'a>(arm: &str, metric: Metric, runs: &[&'a Run]) -> Vec<Other<'a>> {
    let arms = || runs.iter().flat_map(|run| &run.report.arms).filter(|a| is_other(a, arm));
    let mut clients: Vec<&str> = arms().map(|arm| &*arm.client).collect();
    clients.sort_unstable();
    clients.dedup();
    let of_client = |client| {
        let turns = arms().filter(|arm| arm.client == client).flat_map(|a| metric.of_turns(a));
        Some(Other { client, spread: Spread::of(turns)? })
    };
    let mut others: Vec<Other<'_>> = clients.into_iter().filter_map(of_client).collect();
    others.sort_by(|a, b| {
        let order = a.spread.median.total_cmp(&b.spread.median);
        if metric.more_is_better() { order.reverse() } else { order }
    });
    others
}

/// Curtail's turns of an arm in these runs.
pub(super) fn ours(arm: &str, metric: Metric, runs: &[&Run]) -> Option<Spread> {
    let arms = runs.iter().filter_map(|run| find(&run.report, arm, CURTAIL));
    Spread::of(arms.flat_map(|arm| metric.of_turns(arm)))
}

/// The figure of each turn, and its limit where the run has one.
fn judged_turns(claim: &Claim, report: &Report, client: &str) -> Vec<(f64, Option<f64>)> {
    let Some(ours) = find(report, claim.arm, client) else { return Vec::new() };
    let values = claim.metric.of_turns(ours).into_iter().enumerate();
    values.map(|(turn, value)| (value, limit(claim, report, ours, turn))).collect()
}

fn limit(claim: &Claim, report: &Report, ours: &ArmReport, turn: usize) -> Option<f64> {
    let in_turn = |arm: &ArmReport| {
        let turns = claim.metric.of_turns(arm);
        turns.get(turn).copied().unwrap_or_else(|| claim.metric.of_arm(arm))
    };
    match claim.aim {
        Aim::Limit(limit) => Some(limit),
        Aim::Arm { arm, factor, plus } => {
            Some(factor * in_turn(find(report, arm, &ours.client)?) + plus)
        }
        Aim::Noted { figure, factor, .. } => Some(factor * ours.extra.get(figure)?),
        Aim::Others => {
            let others = report.arms.iter().filter(|arm| is_other(arm, claim.arm)).map(in_turn);
            let better = if claim.metric.more_is_better() { f64::max } else { f64::min };
            others.filter(|figure| figure.is_finite()).reduce(better)
        }
    }
}

fn find<'a>(report: &'a Report, arm: &str, client: &str) -> Option<&'a ArmReport> {
    report.arms.iter().find(|of| of.name == arm && of.client == client)
}

fn is_other(of: &ArmReport, arm: &str) -> bool {
    // Stored runs may have a load of Curtail that no longer exists.
    of.name == arm && !of.client.starts_with(CURTAIL)
}
