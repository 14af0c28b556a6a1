//! What the README has of the results: a picture and a table.

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

/// The README with the table between its marks.
pub(super) fn with_table(results: &Results, name: &str, text: &str) -> Result<String, Invalid> {
    let missing = |mark: &str| Invalid::new(format!("{name} has no line {}", mark.trim()));
    let (head, rest) = text.split_once(BEGIN).ok_or_else(|| missing(BEGIN))?;
    let (_, tail) = rest.split_once(END).ok_or_else(|| missing(END))?;
    Ok([head, BEGIN, &table(results), END, tail].concat())
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
        let claim = row.claim;
        let cells = [
            format!("{}: {}", claim.sentence, claim.metric.name()),
            page::ours(row),
            page::other(row),
            row.cluster.title().to_owned(),
            page::link(row, "docs/results/"),
        ];
        format!("| {} |\n", cells.map(|cell| page::escaped(&cell)).join(" | "))
    });
    let head = "\n| | Curtail | best other client | on | run |\n|---|---|---|---|---|\n";
    format!("{head}{}\n", lines.collect::<String>())
}
