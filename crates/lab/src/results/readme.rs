//! The part of the README made from the results: a picture and a table.

use super::{
    Cluster, Invalid,
    chart::{Panel, draw},
    claims::{CLAIMS, Metric, PICTURE, Picture},
    number::Unit,
    page,
    rows::{self, Row, row},
    store::Results,
};

const BEGIN: &str = "<!-- results -->\n";
const END: &str = "<!-- end of results -->\n";

const SHOWN: &str = "
![p99.9 produce latency of Curtail and other clients on Apache Kafka while brokers are killed, slow or restarted, and while leaders
move](docs/results/faults.svg)

All clients of a panel ran in turn on the same brokers. A bar is the median turn; its line spans the least and the most.
";

/// p99.9 of all clients under faults, on Apache Kafka.
pub(super) fn picture(results: &Results) -> String {
    let panels: Vec<Panel> = PICTURE.iter().map(|picture| panel(results, picture)).collect();
    draw("p99.9 produce latency on Apache Kafka: less is better", &panels)
}

fn panel(results: &Results, picture: &Picture) -> Panel {
    let runs = rows::last(results.of(Cluster::Apache, picture.experiment), picture.arm);
    let mut panel = Panel::new(picture.title, Unit::Ms);
    panel.client("Curtail", rows::ours(picture.arm, Metric::P999, &runs));
    for other in rows::others(picture.arm, Metric::P999, &runs) {
        panel.client(other.client, Some(other.spread));
    }
    panel
}

/// The picture as the README shows it, if a panel of it has another client.
fn shown(results: &Results) -> &'static str {
    let compared = |picture: &Picture| {
        let runs = rows::last(results.of(Cluster::Apache, picture.experiment), picture.arm);
        !rows::others(picture.arm, Metric::P999, &runs).is_empty()
    };
    if PICTURE.iter().any(compared) { SHOWN } else { "" }
}

/// The README with the picture and the table between its marks.
pub(super) fn with_table(results: &Results, name: &str, text: &str) -> Result<String, Invalid> {
    let missing = |mark: &str| Invalid::new(format!("{name} has no line {}", mark.trim()));
    let (head, rest) = text.split_once(BEGIN).ok_or_else(|| missing(BEGIN))?;
    let (_, tail) = rest.split_once(END).ok_or_else(|| missing(END))?;
    Ok([head, BEGIN, shown(results), &table(results), END, tail].concat())
}

/// One row per claim of the README, on the first cluster with a run: Apache Kafka, if there is one.
fn front(results: &Results) -> Vec<Row<'_>> {
    let claims = CLAIMS.iter().filter(|claim| claim.front);
    let found = claims.filter_map(|claim| {
        let mut clusters = claim.clusters.iter();
        clusters.find_map(|cluster| row(claim, *cluster, results.of(*cluster, claim.experiment)))
    });
    found.collect()
}

fn table(results: &Results) -> String {
    let rows = front(results);
    if rows.is_empty() {
        return "\nNo runs are on file.\n\n".to_owned();
    }
    let lines = rows.iter().map(|row| {
        let cells = [
            page::link(row, "docs/results/", &page::claimed(row)),
            page::ours(row),
            page::other(row),
            row.cluster.title().to_owned(),
        ];
        format!("| {} |\n", cells.map(|text| page::cell(&text)).join(" | "))
    });
    let head = "\n| | Curtail | best other client | on |\n|---|---|---|---|\n";
    format!("{head}{}\n", lines.collect::<String>())
}
