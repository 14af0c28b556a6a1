//! Bars: the phases of each arm, and its records by broker.

use super::{
    markup::{Element, el, figure, table},
    plot::{Frame, Scale, area, hint, label, legend, rectangle, short},
};
use crate::{
    experiments::{ArmReport, PHASES, Phase, Report},
    phases::meaning,
};

const BAR: f64 = 20.0;
const GAP: f64 = 10.0;

/// Frame with room for this number of bars and their names.
fn frame(bars: usize) -> Frame {
    let height = 50.0 + bars as f64 * (BAR + GAP);
    Frame { width: 760.0, height, left: 190.0, right: 18.0, top: 8.0, bottom: 42.0 }
}

/// A bar: its name, and its parts with the number of their colour and their names.
struct Bar<'a> {
    name: &'a str,
    parts: Vec<(usize, String, f64)>,
}

/// Bars with consecutive parts. Values are on the axis' scale; `text` is written into a part that has room.
fn bars(says: &str, unit: &str, until: f64, all: &[Bar<'_>], text: fn(f64) -> String) -> Element {
    let frame = frame(all.len());
    let x = Scale::linear(until, frame.across());
    let ticks = x.ticks().into_iter().map(|(value, _)| (x.at(value), short(value)));
    let drawn = all.iter().enumerate().flat_map(|(row, bar)| {
        let y = frame.top + GAP / 2.0 + row as f64 * (BAR + GAP);
        let mut done = 0.0;
        let mut elements = vec![label("end", frame.left - 8.0, y + 14.0, bar.name)];
        for (colour, name, value) in &bar.parts {
            let (from, to) = (x.at(done), x.at(done + value));
            done += value;
            let hint = hint(&format!("{}: {name} {} {unit}", bar.name, short(*value)));
            let rectangle = rectangle(&area(*colour), from, y, to - from, BAR);
            let mut part = el("g").child(hint).child(rectangle);
            let inside = text(*value);
            if to - from > 8.0 * inside.chars().count() as f64 {
                let middle = f64::midpoint(from, to);
                part = part.child(label("middle", middle, y + 14.0, &inside).class("inside"));
            }
            elements.push(part);
        }
        elements
    });
    let drawn: Vec<Element> = drawn.collect();
    frame.svg(says).child(frame.columns(ticks)).child(frame.titles(unit, "")).children(drawn)
}

fn area_sample(at: usize) -> Element {
    rectangle(&area(at), 0.0, 0.0, 34.0, 12.0)
}

/// Parts of a bar: the phases up to the poll; without a reader, the acknowledgement as the last one.
const PARTS: [&str; 6] = ["produce", "publish", "commit", "catch_up", "fetch", "acknowledge"];

fn parts(arm: &ArmReport) -> [Option<Phase>; 6] {
    let [produce, publish, commit, catch_up, fetch] = arm.phases_us.in_order().map(|(_, p)| p);
    let acknowledge = arm.acknowledge_us.filter(|_| fetch.is_none());
    [produce, publish, commit, catch_up, fetch, acknowledge]
}

/// The observed phases of each arm.
pub(super) fn phases(report: &Report, names: &[String]) -> Element {
    let seen = |arm: &ArmReport| parts(arm).iter().any(Option::is_some);
    if !report.arms.iter().any(seen) {
        return el("p").text("Phases: not measured.");
    }
    let caption = "Phases of a record's latency";
    let mut plots = Vec::new();
    for (name, of) in PERCENTILES.into_iter().take(3) {
        let all = names.iter().zip(&report.arms).map(|(name, arm)| {
            let parts = parts(arm).into_iter().enumerate().filter_map(|(at, phase)| {
                let ms = of(&phase?) / 1000.0;
                ms.is_finite().then(|| (at, PARTS[at].to_owned(), ms))
            });
            Bar { name, parts: parts.collect() }
        });
        let all: Vec<Bar<'_>> = all.collect();
        let sum = |bar: &Bar<'_>| bar.parts.iter().map(|(.., value)| value).sum::<f64>();
        let longest = all.iter().map(sum).fold(0.0, f64::max);
        let unit = format!("{name} of each phase, ms");
        plots.push(bars(&format!("{caption}: {unit}."), &unit, longest, &all, short));
    }
    let meanings = PARTS.map(|part| format!("{part}: {}", meaning(part)));
    plots.push(legend(meanings.iter().map(String::as_str), area_sample));
    plots.push(el("p").class("note").text(phase_notes(report)));
    figure(caption, plots, vec![phase_numbers(report, names, caption)])
}

/// A percentile by its name.
type Percentile = (&'static str, fn(&Phase) -> f64);

const PERCENTILES: [Percentile; 4] = [
    ("median", |phase| phase.p50),
    ("99th percentile", |phase| phase.p99),
    ("99.9th percentile", |phase| phase.p999),
    ("99.99th percentile", |phase| phase.p9999),
];

/// Explanation of the bars.
fn phase_notes(report: &Report) -> String {
    let mut notes =
        "Percentiles of phases do not add up to the percentile of the whole.".to_owned();
    let none = |at: usize| report.arms.iter().all(|arm| arm.phases_us.in_order()[at].1.is_none());
    let unseen = PHASES.into_iter().enumerate().filter(|(at, _)| none(*at));
    let unseen: Vec<&str> = unseen.map(|(_, phase)| phase).collect();
    if !unseen.is_empty() {
        notes += &format!(" Not measured in this run: {}.", unseen.join(", "));
    }
    if report.arms.iter().any(|arm| arm.phases_estimated) {
        notes += " Phases after produce are estimated from probes in a cluster without load. In 95 of 100 cases the error is no \
                  larger than in the table.";
    }
    notes
}

fn phase_numbers(report: &Report, names: &[String], caption: &str) -> Element {
    let mut columns = vec!["arm".to_owned()];
    columns.extend(PARTS.map(str::to_owned));
    let figures = |phase: &Phase| {
        let figure = |(_, of): Percentile| {
            let ms = of(phase) / 1000.0;
            if ms.is_finite() { short(ms) } else { "–".to_owned() }
        };
        PERCENTILES.map(figure).join(" / ")
    };
    let rows = names.iter().zip(&report.arms).map(|(name, arm)| {
        let errors = arm.error_us.unwrap_or_default().in_order().map(|(_, error)| error);
        let errors = errors.into_iter().chain([None]);
        let cells = parts(arm).into_iter().zip(errors).map(|(phase, error)| match (phase, error) {
            (Some(phase), Some(error)) => format!("{} ± {}", figures(&phase), figures(&error)),
            (Some(phase), None) => figures(&phase),
            (None, _) => "not measured".to_owned(),
        });
        std::iter::once(name.clone()).chain(cells).collect()
    });
    table(&format!("{caption}: median / p99 / p99.9 / p99.99 in ms"), &columns, rows.collect())
}

/// Records of each arm by broker; `None` if unknown.
pub(super) fn brokers(report: &Report, names: &[String]) -> Option<Element> {
    let mut ids: Vec<i32> =
        report.arms.iter().flat_map(|arm| arm.brokers.iter().map(|share| share.broker)).collect();
    ids.sort_unstable();
    ids.dedup();
    if ids.is_empty() {
        return None;
    }
    let caption = "Records by broker";
    let share = |arm: &ArmReport, id: i32| {
        arm.brokers.iter().find(|share| share.broker == id).map_or((0, 0), |s| (s.records, s.bytes))
    };
    let total = |arm: &ArmReport| arm.brokers.iter().map(|s| s.records).sum::<u64>().max(1);
    let percent = |arm: &ArmReport, id| 100.0 * share(arm, id).0 as f64 / total(arm) as f64;
    let named = |id: i32| format!("broker {id}");
    let all: Vec<Bar<'_>> = names
        .iter()
        .zip(&report.arms)
        .filter(|(_, arm)| !arm.brokers.is_empty())
        .map(|(name, arm)| {
            let parts = ids.iter().enumerate().map(|(at, &id)| (at, named(id), percent(arm, id)));
            Bar { name, parts: parts.collect() }
        })
        .collect();
    let text = |value: f64| format!("{value:.1}%");
    let plot = bars(&format!("{caption}."), "% of the records", 100.0, &all, text);
    let brokers: Vec<String> = ids.iter().map(|&id| named(id)).collect();
    let legend = legend(brokers.iter().map(String::as_str), area_sample);
    let mut columns = vec!["arm".to_owned()];
    columns.extend(brokers.iter().cloned());
    let rows = names.iter().zip(&report.arms).map(|(name, arm)| {
        let cells = ids.iter().map(|&id| match arm.brokers.is_empty() {
            true => "not measured".to_owned(),
            false => {
                let (records, bytes) = share(arm, id);
                format!("{records} records, {bytes} bytes ({})", text(percent(arm, id)))
            }
        });
        std::iter::once(name.clone()).chain(cells).collect()
    });
    let numbers = table(&format!("{caption}, warm-up included"), &columns, rows.collect());
    Some(figure(caption, vec![plot, legend], vec![numbers]))
}
