//! Latency against percentile.

use std::f64::consts::LOG10_2;

use super::{
    markup::{Element, el, figure, table},
    plot::{Frame, Scale, hint, legend, line, polyline, series, short},
};
use crate::experiments::{ArmReport, PublishedFigure, Report};

const FRAME: Frame =
    Frame { width: 760.0, height: 360.0, left: 62.0, right: 18.0, top: 12.0, bottom: 44.0 };

/// The plot and its numbers; `None` if no arm has a curve.
pub(super) fn plot(report: &Report, names: &[String]) -> Option<Element> {
    let curves: Vec<Vec<(f64, f64)>> = report.arms.iter().map(points).collect();
    if curves.iter().all(Vec::is_empty) {
        return None;
    }
    let last = curves.iter().flatten().map(|(nines, _)| *nines).fold(1.0, f64::max);
    let published: Vec<Mark> = report.published().flat_map(|p| marks(p, report)).collect();
    let published = published.iter().filter(|mark| mark.nines <= last);
    let values = curves.iter().flatten().map(|(_, ms)| *ms);
    let values = values.chain(published.clone().map(|mark| mark.ms));
    let (x, y) = (Scale::linear(last, FRAME.across()), Scale::logarithmic(values, FRAME.up()));

    let until = report.arms.first().map(|arm| arm.latency_until).unwrap_or_default();
    let caption = format!("Latency against percentile, {}", until.words());
    let lines = curves.iter().zip(names).enumerate().map(|(at, (curve, name))| {
        let points: Vec<_> = curve.iter().map(|(nines, ms)| (x.at(*nines), y.at(*ms))).collect();
        el("g").child(hint(name)).child(polyline(&series(at), &points))
    });
    let says = format!("{caption}: a line for each of {}.", names.join(", "));
    let svg = FRAME
        .svg(&says)
        .child(FRAME.rows(&y))
        .child(FRAME.columns(ticks(last).map(|(nines, text)| (x.at(nines), text))))
        .child(FRAME.titles("percentile", "latency, ms"))
        .children(lines)
        .children(published.map(|mark| mark.draw(&x, &y)));
    let sample = |at: usize| line(&series(at), (0.0, 6.0), (34.0, 6.0));
    let mut plots = vec![svg, legend(names.iter().map(String::as_str), sample)];
    let mut note = "The end of a line is the longest latency.".to_owned();
    if report.published().next().is_some() {
        note += " Diamonds are published figures, in the colour of the arm they compare with and grey where there is none.";
    }
    plots.push(el("p").class("note").text(note));
    Some(figure(&caption, plots, vec![numbers(report, names, &caption)]))
}

/// A curve by the number of nines, in milliseconds. The longest latency follows the last resolved quantile.
fn points(arm: &ArmReport) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = Vec::with_capacity(arm.latency_curve.len());
    for point in &arm.latency_curve {
        let nines = match point.quantile < 1.0 {
            true => -(1.0 - point.quantile).log10(),
            false => points.last().map_or(0.0, |(nines, _)| *nines) + 0.02,
        };
        points.push((nines.max(0.0), point.us / 1000.0));
    }
    points
}

fn ticks(last: f64) -> impl Iterator<Item = (f64, String)> {
    let ticks = [(0.0, "0"), (LOG10_2, "50"), (1.0, "90"), (2.0, "99"), (3.0, "99.9")];
    let ticks = ticks.into_iter().chain([(4.0, "99.99"), (5.0, "99.999")]);
    ticks.filter(move |(nines, _)| *nines <= last).map(|(nines, text)| (nines, text.to_owned()))
}

/// A published figure in the plot.
struct Mark {
    /// The arm to compare with.
    arm: Option<usize>,
    nines: f64,
    ms: f64,
    text: String,
}

fn marks(published: &PublishedFigure, report: &Report) -> Vec<Mark> {
    let arm = report.arms.iter().position(|arm| arm.name == published.arm);
    let latency = &published.latency_us;
    let figures = [
        ("50th", LOG10_2, latency.p50),
        ("95th", 1.0 + LOG10_2, latency.p95),
        ("99th", 2.0, latency.p99),
        ("99.9th", 3.0, latency.p999),
    ];
    let marks = figures.into_iter().filter_map(|(name, nines, us)| {
        let ms = us? / 1000.0;
        let PublishedFigure { arm: of, source, .. } = published;
        let text = format!("{of}: {name} percentile {} ms ({source})", short(ms));
        Some(Mark { arm, nines, ms, text })
    });
    marks.collect()
}

impl Mark {
    fn draw(&self, x: &Scale, y: &Scale) -> Element {
        let (x, y) = (x.at(self.nines), y.at(self.ms));
        let diamond = format!("M{x:.1},{:.1}l4,5l-4,5l-4,-5z", y - 5.0);
        let class = self.arm.map_or_else(|| "mark".to_owned(), |at| format!("mark {}", series(at)));
        el("path").class(class).attr("d", diamond).child(hint(&self.text))
    }
}

/// A row of the table: its name, and the latency of an arm in microseconds.
type Row = (&'static str, fn(&ArmReport) -> Option<f64>);

fn numbers(report: &Report, names: &[String], caption: &str) -> Element {
    let mut columns = vec!["percentile".to_owned()];
    columns.extend(names.iter().cloned());
    let rows: [Row; 7] = [
        ("50", |arm| Some(arm.latency_us.p50)),
        ("90", |arm| quantile(arm, 0.9)),
        ("95", |arm| Some(arm.latency_us.p95)),
        ("99", |arm| Some(arm.latency_us.p99)),
        ("99.9", |arm| Some(arm.latency_us.p999)),
        ("99.99", |arm| quantile(arm, 0.9999)),
        ("100 (longest)", |arm| Some(arm.latency_us.max)),
    ];
    let cell = |us: Option<f64>| us.map_or_else(|| "–".to_owned(), |us| short(us / 1000.0));
    let rows = rows.map(|(name, of)| {
        let cells = report.arms.iter().map(|arm| cell(of(arm)));
        std::iter::once(name.to_owned()).chain(cells).collect()
    });
    table(&format!("{caption}, in ms"), &columns, rows.into())
}

/// A point of the curve, if the quantile is resolved.
fn quantile(arm: &ArmReport, quantile: f64) -> Option<f64> {
    let near = arm.latency_curve.iter().find(|point| (point.quantile - quantile).abs() < 1e-7);
    near.map(|point| point.us)
}
