//! Reports as one self-contained page of HTML: it needs no network, no font and no script.
//!
//! Its colours follow the reader's preference for light or dark. Every plot has a description, and its numbers follow as a
//! table.

mod bars;
mod latency;
pub(crate) mod markup;
mod over_time;
pub(crate) mod plot;
mod tables;
#[cfg(test)]
mod tests;

use self::markup::{Element, el};
use crate::experiments::{ArmReport, Report, compare::within};

const STYLE: &str = include_str!("page/style.css");
/// Opens the folded tables before the page is printed.
const SCRIPT: &str = "addEventListener('beforeprint', function () { \
     document.querySelectorAll('details').forEach(function (d) { d.open = true; }); });";

/// The page of these experiments.
#[must_use]
pub fn page(reports: &[Report]) -> String {
    let names: Vec<&str> = reports.iter().map(|report| &*report.experiment).collect();
    let found = match reports {
        [report] => report.conclusion(),
        _ => match reports.iter().filter(|report| !report.held()).count() {
            0 => "All conditions hold.".to_owned(),
            failed => {
                format!("Conditions of {failed} of {} experiments do not hold.", reports.len())
            }
        },
    };
    let title = format!("Curtail, {}: {found}", names.join(", "));
    let head = el("head")
        .child(el("meta").attr("charset", "utf-8"))
        .child(
            el("meta")
                .attr("name", "viewport")
                .attr("content", "width=device-width, initial-scale=1"),
        )
        .child(el("meta").attr("name", "color-scheme").attr("content", "light dark"))
        .child(el("title").text(&title))
        .child(el("style").text(STYLE))
        .child(el("script").text(SCRIPT));
    let mut main = el("main").child(el("h1").text(&title));
    if reports.len() > 1 {
        main = main.child(contents(reports));
    }
    let sections = reports.iter().enumerate().map(|(at, report)| section(at, report));
    let body = el("body").child(main.children(sections));
    let mut text = "<!DOCTYPE html>\n".to_owned();
    el("html").attr("lang", "en").child(head).child(body).write(&mut text);
    text
}

fn contents(reports: &[Report]) -> Element {
    let entry = |(at, report): (usize, &Report)| {
        let link = el("a").attr("href", format_args!("#experiment-{at}"));
        let link = link.text(format_args!("{} on {}", report.experiment, report.cluster));
        let failed = report.conditions.iter().filter(|condition| !condition.held).count();
        let state = match failed {
            0 => " – all conditions hold".to_owned(),
            n => format!(" – {n} of {} conditions NOT HELD", report.conditions.len()),
        };
        el("li").child(link).text(state)
    };
    let list = el("ol").children(reports.iter().enumerate().map(entry));
    el("nav").attr("aria-label", "Contents").child(list)
}

fn section(at: usize, report: &Report) -> Element {
    let Report { experiment, cluster, scale, seed, .. } = report;
    let names = names(report);
    let heading = format!("{experiment} on {cluster}");
    let about = format!("Scale {scale}, seed {seed}. After {}.", report.source());
    let limits = report.limits().into_iter().map(|limit| el("li").text(limit));
    let mut parts = vec![
        el("h2").text(heading),
        el("p").class("found").text(report.conclusion()),
        el("p").text(about),
        el("ul").class("limits").children(limits),
        el("h3").text("Conditions"),
        tables::conditions(report),
    ];
    let ratios = within(report);
    if let (Some(first), false) = (names.first(), ratios.is_empty()) {
        parts.push(el("h3").text("Ratios"));
        parts.extend(tables::ratios(first, &names[1..], &ratios));
    }
    parts.push(el("h3").text("Figures"));
    parts.extend(tables::figures(report, &names));
    parts.extend(latency::plot(report, &names));
    parts.extend(over_time::plot(report, &names));
    parts.push(bars::phases(report, &names));
    parts.extend(bars::brokers(report, &names));
    parts.extend(tables::extra(report, &names));
    parts.push(el("h3").text("The slowest records"));
    parts.push(tables::slowest(report, &names));
    parts.push(el("h3").text("Command and machine"));
    parts.push(tables::environment(report));
    el("section").attr("id", format_args!("experiment-{at}")).children(parts)
}

/// Names of the arms, with their clients if there are several.
fn names(report: &Report) -> Vec<String> {
    let mut clients: Vec<&str> = report.arms.iter().map(|arm| &*arm.client).collect();
    clients.sort_unstable();
    clients.dedup();
    let several = clients.len() > 1;
    let name = |arm: &ArmReport| match several {
        true => format!("{}, {}", arm.name, arm.client),
        false => arm.name.clone(),
    };
    report.arms.iter().map(name).collect()
}
