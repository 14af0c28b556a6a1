//! Kafka's own `EndToEndLatency` in the same run.

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::{
    super::{Condition, Figure, Sample, Testbed, testbed::KafkaTool},
    SIZE, Test, in_ms,
};
use crate::perf::{Error, Result};

const LIMIT: Duration = Duration::from_secs(900);
/// Labels in the tool's last lines, and names of the figures; in ms, percentiles in whole ones.
const FIGURES: [(&str, &str); 4] = [
    ("Avg latency: ", "java_avg_ms"),
    ("50th = ", "java_p50_ms"),
    ("99th = ", "java_p99_ms"),
    ("99.9th = ", "java_p999_ms"),
];

/// Runs Kafka's tool on the same cluster, if Apache Kafka is installed, and adds its figures.
pub(super) fn beside(
    test: &Test,
    testbed: &Testbed,
    topic: &str,
    records: u64,
    sample: &mut Sample,
) -> Result<()> {
    let file = std::env::temp_dir().join(format!("curtail-{topic}-{}", std::process::id()));
    let text = test.arm.properties.iter().map(|(name, value)| format!("{name}={value}\n"));
    std::fs::write(&file, text.collect::<String>()).map_err(Error::Threads)?;
    let (bootstrap, records, size) = (testbed.bootstrap(), records.to_string(), SIZE.to_string());
    let path = file.to_string_lossy();
    let args = [
        "--bootstrap-server",
        &bootstrap,
        "--topic",
        topic,
        "--num-records",
        &records,
        "--producer-acks",
        "1",
        "--record-size",
        &size,
        "--command-config",
        &path,
    ];
    let class = "org.apache.kafka.tools.EndToEndLatency";
    let tool = KafkaTool { class, args: &args, clients: test.java, limit: LIMIT };
    let printed = testbed.tool(&tool);
    // The file is in a temporary directory anyway.
    let _ = std::fs::remove_file(&file);
    let Some(printed) = printed? else { return Ok(()) };
    for (label, name) in FIGURES {
        let figure = figure_after(&printed, label);
        let figure = figure.ok_or_else(|| Error::Unexpected(format!("no {label:?}: {printed}")))?;
        sample.note(name, Figure::Worst(figure));
    }
    Ok(())
}

/// Condition: Curtail is below Java, within the tool's resolution of whole milliseconds.
pub(super) fn condition(test: &Test, sample: &Sample) -> Option<Condition> {
    let ours = in_ms(&sample.latency);
    let theirs = FIGURES.map(|(_, name)| sample.figure(name));
    (!theirs[0].is_nan()).then(|| Condition {
        text: format!(
            "{}: average below, and percentiles in whole ms not above, those of Kafka's EndToEndLatency in the same run \
             ({ours:.3?} against {theirs:?} ms)",
            test.arm.name
        ),
        held: is_below(ours, theirs),
    })
}

fn is_below(ours: [f64; 4], theirs: [f64; 4]) -> bool {
    let not_above = |(ours, theirs): (&f64, &f64)| ours.floor() <= *theirs;
    ours[0] < theirs[0] && ours[1..].iter().zip(&theirs[1..]).all(not_above)
}

fn figure_after(text: &str, label: &str) -> Option<f64> {
    let behind = text.split_once(label)?.1;
    let digits: String = behind.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    digits.trim_end_matches('.').parse().ok()
}
