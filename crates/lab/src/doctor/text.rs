//! The report as text.

#[cfg(test)]
mod tests;

use curtail::{ProducerConfig, config::Acks};

use super::{
    Limit, Phase, Report, Severity, Tried, Verdict,
    units::{Throughput, Time},
};
use crate::text::{count, meaning, table};

/// The target and the throughput; the text of a report uses the same units.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Asked {
    /// Target of the 99th percentile.
    pub target: Time,
    /// The throughput.
    pub rate: Throughput,
}

impl Asked {
    /// A latency in the target's unit.
    fn latency(self, micros: f64) -> String {
        let unit = self.target.unit();
        format!("{} {}", unit.number(micros / 1e6), unit.name())
    }
}

fn ms(micros: f64) -> f64 {
    micros / 1000.0
}

/// The whole report, for a terminal.
#[must_use]
pub fn text(report: &Report, producer: &ProducerConfig, asked: Asked) -> String {
    let mut lines = vec![verdict(report, asked)];
    let best = report.recommended().into_iter().next();
    lines.extend(best.map(|best| remedy(best, asked)));
    let latency = &report.latency_us;
    let rounds: Vec<String> =
        report.rounds_p99_us.iter().map(|p99| format!("{:.1}", ms(*p99))).collect();
    lines.push(format!(
        "Latency from the intended send time to the poll: {:.2} ms 50th, {:.2} ms 99th, {:.2} ms 99.9th, {:.2} ms max \
         (99th of each round: {} ms).",
        ms(latency.p50),
        ms(latency.p99),
        ms(latency.p999),
        ms(latency.max),
        rounds.join(", ")
    ));
    lines.push(basis(report.brokers.iter().map(|broker| broker.records).sum()));
    if report.errors + report.missing > 0 {
        lines.push(format!(
            "WARNING: {} not acknowledged, and {} acknowledged but not read. First error: {}.",
            count(report.errors, "record"),
            report.missing,
            report.first_error.as_deref().unwrap_or("none")
        ));
    }
    lines.extend(report.limit.map(|limit| limited(limit, report)));
    lines.push(String::new());
    lines.push(phases(report, producer));
    lines.push(tried(report, asked.rate));
    lines.push(advice(report));
    lines.extend(brokers(report));
    for finding in &report.findings {
        lines.push(format!("{}: {}", word(finding.severity), finding.text));
    }
    lines.join("\n") + "\n"
}

fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Warning => "WARNING",
        Severity::Note => "note",
    }
}

fn verdict(report: &Report, asked: Asked) -> String {
    let Asked { target, rate } = asked;
    let reached = rate.unit().number(report.bytes_per_second);
    let p99 = asked.latency(report.latency_us.p99);
    let holds = if report.holds { "holds" } else { "does NOT hold" };
    format!(
        "The target {holds}: the 99th percentile is {p99}, the target {target}, at {reached} of {rate}."
    )
}

/// The most effective recommended setting: whether the target holds with it in each round, and what it costs.
fn remedy(best: &Tried, asked: Asked) -> String {
    let holds = if best.holds { "the target holds" } else { "the target still does not hold" };
    let (setting, p99) = (&best.setting, asked.latency(best.worst_p99_us()));
    format!("With {setting} {holds}: {p99} of {}; cost: {}.", asked.target, cost(best, asked.rate))
}

/// The measured cost of a setting; without one, the caution to read before it is applied.
fn cost(tried: &Tried, rate: Throughput) -> String {
    let mut measured = Vec::new();
    if tried.bytes_per_second > 0.0 {
        let reached = rate.unit().number(tried.bytes_per_second);
        measured.push(format!("throughput {reached} of {rate}"));
    }
    if tried.base_busy > 0.0 && tried.busy > 0.0 {
        let [before, after] = [tried.base_busy, tried.busy].map(|busy| busy * 100.0);
        measured.push(format!("CPU busy {before:.0}% -> {after:.0}%"));
    }
    match measured.is_empty() {
        true => tried.caution.unwrap_or("not measured").to_owned(),
        false => measured.join(", "),
    }
}

/// Fewest records of a slowest hundredth with a stable percentile.
const FEW: u64 = 10;

/// The number of records behind the percentiles.
fn basis(records: u64) -> String {
    let measured = format!("{} measured", count(records, "record"));
    let more = "For a reliable one use a longer duration or a higher throughput.";
    match records / 100 {
        0 => format!("WARNING: {measured}, too few for a 99th percentile. {more}"),
        1 => format!("WARNING: {measured}: the 99th percentile rests on the slowest one. {more}"),
        slowest if slowest < FEW => {
            format!(
                "WARNING: {measured}: the 99th percentile rests on the slowest {slowest}. {more}"
            )
        }
        slowest => format!("{measured}: the 99th percentile rests on the slowest {slowest}."),
    }
}

fn limited(limit: Limit, report: &Report) -> String {
    let busy = report.busy * 100.0;
    match limit {
        Limit::Machine => format!(
            "The limit is this machine, not the cluster (its CPUs are {busy:.0}% busy): run the doctor on a larger machine, or \
             with a lower throughput."
        ),
        Limit::Link => {
            "The limit is the network: sockets do not accept records as fast as they are due."
                .into()
        }
        Limit::Brokers => {
            "The brokers are the limit: they do not accept records as fast as they are due.".into()
        }
    }
}

fn phases(report: &Report, producer: &ProducerConfig) -> String {
    let rows: Vec<Vec<String>> = report
        .phases
        .iter()
        .map(|phase| {
            vec![
                phase.phase.name().to_owned(),
                format!("{:.2}", ms(phase.us)),
                format!("+-{:.2}", ms(phase.error_us)),
                (if phase.estimate { "estimate" } else { "measured" }).to_owned(),
                match phase.phase {
                    Phase::Produce => format!(
                        "waiting in the client for its batch (linger.ms={}) and for a request",
                        producer.get_linger().as_millis()
                    ),
                    phase => meaning(phase.name()).to_owned(),
                },
            ]
        })
        .collect();
    let split = match producer.get_acks() {
        Acks::All => "publish and commit are split by runs with acks=1",
        _ => "commit is the additional time of acks=all",
    };
    format!(
        "Phases of the slowest 1% of records ({split};\ncatch_up and fetch are split by the consumer's position at the \
         acknowledgement):\n{}Most of their time is {}: {}.\n",
        table(&["PHASE", "MS", "ERROR, MS", "KIND", "MEANING"], &rows),
        report.blamed.name(),
        meaning(report.blamed.name())
    )
}

fn tried(report: &Report, rate: Throughput) -> String {
    let rows: Vec<Vec<String>> = report
        .tried
        .iter()
        .map(|tried| {
            let rounds = |all: &[f64]| {
                all.iter().map(|p99| format!("{:.1}", ms(*p99))).collect::<Vec<_>>().join(" ")
            };
            let verdict = match tried.comparison.verdict {
                Verdict::Better => format!("better by {:.0}%", tried.comparison.gain * 100.0),
                Verdict::Worse => format!("worse by {:.0}%", -tried.comparison.gain * 100.0),
                Verdict::NoDifference => "no difference beyond the noise".to_owned(),
            };
            vec![
                tried.setting.clone(),
                rounds(&tried.base_p99_us),
                rounds(&tried.p99_us),
                rate.unit().number(tried.bytes_per_second),
                verdict,
            ]
        })
        .collect();
    let unit = rate.unit().name().to_uppercase();
    let columns = ["SETTING", "P99 WITHOUT IT, MS", "P99 WITH IT, MS", &*unit, "RESULT"];
    format!(
        "Settings tried in turn with the current ones, one figure per round:\n{}",
        table(&columns, &rows)
    )
}

fn advice(report: &Report) -> String {
    let recommended = report.recommended();
    let mut text = String::new();
    for tried in &recommended {
        let caution = caution(tried);
        text += &format!(
            "RECOMMENDED: {} (99th percentile {:.0}% lower){caution}\n",
            tried.setting,
            tried.comparison.gain * 100.0
        );
    }
    for tried in report.tried.iter().filter(|tried| !tried.recommended && tried.setting == "acks=1")
    {
        text += &format!("{}{}\n", tried.setting, caution(tried));
    }
    if recommended.is_empty() {
        text += match report.holds {
            true => "No change is needed, so no other setting was tried.\n",
            false => "No setting that was tried helps beyond the noise of the rounds.\n",
        };
    }
    text
}

fn caution(tried: &Tried) -> String {
    tried.caution.map_or_else(String::new, |caution| format!(": {caution}"))
}

fn brokers(report: &Report) -> Option<String> {
    if report.brokers.is_empty() {
        return None;
    }
    let rows: Vec<Vec<String>> = report
        .brokers
        .iter()
        .map(|broker| {
            let clock = broker.clock.map_or_else(
                || "-".to_owned(),
                |clock| format!("{:+.1} to {:+.1}", clock.at_least_ms, clock.at_most_ms),
            );
            vec![
                broker.id.to_string(),
                broker.records.to_string(),
                format!("{:.2}", ms(broker.request_us.p50)),
                format!("{:.2}", ms(broker.request_us.p99)),
                clock,
            ]
        })
        .collect();
    let columns = ["BROKER", "RECORDS", "REQUEST P50, MS", "REQUEST P99, MS", "CLOCK AHEAD, MS"];
    Some(table(&columns, &rows))
}
