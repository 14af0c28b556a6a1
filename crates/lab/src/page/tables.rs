//! Tables and lists of the page.

use super::{
    markup::{Element, el, table},
    plot::short,
};
use crate::experiments::{
    ArmReport, Condition, Environment, PHASES, PublishedFigure, Report,
    compare::{Metric, Row, legend},
};

/// Number of slowest records shown per arm.
const SLOWEST: usize = 20;

/// One row per condition, with whether it held. One row stands for all conditions of integrity that held.
pub(super) fn conditions(report: &Report) -> Element {
    let condition = |condition: Condition| {
        let (class, word) = if condition.held { ("held", "held") } else { ("failed", "NOT HELD") };
        let word = el("strong").class(class).text(word);
        el("li").child(word).text(": ").text(&condition.text)
    };
    match report.conditions.is_empty() {
        true => el("p").text("None."),
        false => {
            let conditions = report.folded_conditions().into_iter().map(condition);
            el("ul").class("conditions").children(conditions)
        }
    }
}

/// Ratios of the arms to the first one.
pub(super) fn ratios(first: &str, names: &[String], rows: &[Row]) -> Vec<Element> {
    let mut columns = vec!["arm".to_owned()];
    columns.extend(Metric::ALL.map(|metric| metric.name().to_owned()));
    let cells = names
        .iter()
        .zip(rows)
        .map(|(name, row)| std::iter::once(name.clone()).chain(row.cells(rows)).collect());
    let caption = format!("Ratio of each arm to {first}; turns were interleaved");
    vec![table(&caption, &columns, cells.collect()), el("p").class("note").text(legend(rows))]
}

const COLUMNS: [&str; 14] = [
    "arm",
    "records",
    "MB/s",
    "avg ms",
    "p50 ms",
    "p95 ms",
    "p99 ms",
    "p99.9 ms",
    "max ms",
    "CPU us/record",
    "lost",
    "dupl.",
    "reord.",
    "errors",
];

/// Columns of published figures, between the arm and the source.
const PUBLISHED: [&str; 7] = ["MB/s", "avg ms", "p50 ms", "p95 ms", "p99 ms", "p99.9 ms", "max ms"];

/// Measured figures, and in a second table the published ones.
pub(super) fn figures(report: &Report, names: &[String]) -> Vec<Element> {
    let rows = names.iter().zip(&report.arms).map(|(name, arm)| measured(name, arm));
    let brokers = report.arms.iter().any(|arm| arm.cpu_includes_brokers);
    let cpu = if brokers { "; the CPU time includes the brokers" } else { "" };
    let caption = format!("Measured in this run; MB of 1024 * 1024 bytes{cpu}");
    let mut tables = vec![table(&caption, &COLUMNS.map(str::to_owned), rows.collect())];
    let rows: Vec<Vec<String>> = report.published().map(published).collect();
    if !rows.is_empty() {
        let columns = ["arm"].into_iter().chain(PUBLISHED).chain(["source"]);
        let columns: Vec<String> = columns.map(str::to_owned).collect();
        tables.push(table("Published figures", &columns, rows));
    }
    tables
}

fn measured(name: &str, arm: &ArmReport) -> Vec<String> {
    let latency = &arm.latency_us;
    let mut row =
        vec![name.to_owned(), arm.records.to_string(), format!("{:.2}", arm.throughput_mbps)];
    let all = [latency.avg, latency.p50, latency.p95, latency.p99, latency.p999, latency.max];
    row.extend(all.map(|us| short(us / 1000.0)));
    row.push(short(arm.cpu_us_per_record));
    row.extend([arm.lost, arm.duplicated, arm.reordered, arm.errors].map(|n| n.to_string()));
    row
}

fn published(published: &PublishedFigure) -> Vec<String> {
    let PublishedFigure { arm, source, latency_us: latency, throughput_mbps, note } = published;
    let known = |figure: Option<f64>| figure.map_or_else(|| "–".to_owned(), short);
    let mut row = vec![arm.clone(), known(*throughput_mbps)];
    let all = [latency.avg, latency.p50, latency.p95, latency.p99, latency.p999, latency.max];
    row.extend(all.map(|us| known(us.map(|us| us / 1000.0))));
    row.push(if note.is_empty() { source.clone() } else { format!("{source}: {note}") });
    row
}

/// Figures specific to the experiment, if any.
pub(super) fn extra(report: &Report, names: &[String]) -> Option<Element> {
    let mut columns = vec!["figure".to_owned()];
    columns.extend(names.iter().cloned());
    let mut keys: Vec<&String> = report.arms.iter().flat_map(|arm| arm.extra.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    let row = |key: &String| {
        let figure =
            |arm: &ArmReport| arm.extra.get(key).filter(|figure| figure.is_finite()).copied();
        let cells = report.arms.iter().map(|arm| figure(arm).map_or_else(|| "–".to_owned(), short));
        std::iter::once(key.clone()).chain(cells).collect()
    };
    let rows: Vec<Vec<String>> = keys.into_iter().map(row).collect();
    let caption = "Figures specific to the experiment, with the unit at the end of the name";
    (!rows.is_empty()).then(|| table(caption, &columns, rows))
}

/// The slowest records of each arm, each with the phase to blame.
pub(super) fn slowest(report: &Report, names: &[String]) -> Element {
    let mut columns = ["arm", "turn", "due at, s", "partition", "offset", "leader", "latency ms"]
        .map(str::to_owned)
        .to_vec();
    columns.extend(PHASES.map(|phase| format!("{phase} ms")));
    columns.push("to blame".to_owned());
    let ms = |us: f64| short(us / 1000.0);
    let unseen = || "–".to_owned();
    let rows = names.iter().zip(&report.arms).flat_map(|(name, arm)| {
        arm.exemplars.iter().take(SLOWEST).map(move |slow| {
            let mut row = vec![
                name.clone(),
                (slow.round + 1).to_string(),
                short(slow.at_ms / 1000.0),
                slow.partition.to_string(),
                slow.offset.map_or_else(unseen, |offset| offset.to_string()),
                slow.leader.map_or_else(unseen, |leader| leader.to_string()),
                ms(slow.latency_us),
            ];
            let phase = |name| slow.phases_us.get(name).map_or_else(unseen, |us| ms(*us));
            row.extend(PHASES.map(phase));
            row.push(slow.blame.clone().unwrap_or_else(unseen));
            row
        })
    });
    let rows: Vec<Vec<String>> = rows.collect();
    if rows.is_empty() {
        return el("p").text("Single records: not measured.");
    }
    let caption = format!("The {SLOWEST} slowest records of each arm; –: not measured");
    table(&caption, &columns, rows)
}

/// The command, the machine, and the models.
pub(super) fn environment(report: &Report) -> Element {
    let Environment { system, processor, cores, memory_bytes, release_build, versions, .. } =
        &report.environment;
    let text = |text: &str| el("span").text(if text.is_empty() { "unknown" } else { text });
    let command = match report.command.is_empty() {
        true => text(""),
        false => el("code").text(&report.command),
    };
    let memory = memory_bytes.map_or_else(String::new, |bytes| {
        format!(", {} GiB of memory", short(bytes as f64 / f64::from(1 << 30)))
    });
    let machine = match cores {
        // A run in virtual time is the same on every machine.
        0 => String::new(),
        _ => format!("{cores} cores, {processor}{memory}"),
    };
    let build = if *release_build { "release" } else { "development" };
    let versions = versions.iter().map(|(name, version)| format!("{name} {version}"));
    let versions: Vec<String> = versions.chain([format!("build {build}")]).collect();
    let models = report.models.iter().map(|model| {
        let parameters = model.parameters.iter().map(|(name, value)| format!("{name} {value}"));
        let parameters: Vec<String> = parameters.collect();
        let parameters = match parameters.is_empty() {
            true => String::new(),
            false => format!(" ({})", parameters.join(", ")),
        };
        el("li").text(format_args!("{}{parameters}", model.what))
    });
    let models = match report.models.is_empty() {
        true => text("none"),
        false => el("ul").children(models),
    };
    let entries = [
        ("Command", command),
        ("System", text(system)),
        ("Machine", text(&machine)),
        ("Versions", text(&versions.join(", "))),
        ("Models", models),
    ];
    let entries = entries.into_iter();
    el("dl")
        .children(entries.flat_map(|(name, value)| [el("dt").text(name), el("dd").child(value)]))
}
