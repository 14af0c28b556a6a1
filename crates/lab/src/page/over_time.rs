//! Latency over time, with the faults of the run.

use super::{
    markup::{Element, el, figure, table},
    plot::{Frame, Scale, hint, label, legend, line, polyline, rectangle, short},
};
use crate::{
    experiments::{ArmReport, FaultSpan, Report, RoundReport},
    over_time::Slot,
};

const FRAME: Frame =
    Frame { width: 760.0, height: 204.0, left: 62.0, right: 18.0, top: 38.0, bottom: 40.0 };
/// Most rows of a table of numbers; slots are merged to stay below it.
const ROWS: usize = 40;

/// A line of the plot: its name, its classes, and the figure of a slot.
type Line = (&'static str, &'static str, fn(&Slot) -> f64);

/// Lowest first.
const LINES: [Line; 3] = [
    ("median", "series c4 d4", |slot| slot.p50),
    ("99th percentile", "series c0 d0", |slot| slot.p99),
    ("longest", "series c3 d3", |slot| slot.max),
];

/// A plot for each arm, all on the same axes; `None` if no arm has latencies over time.
pub(super) fn plot(report: &Report, names: &[String]) -> Option<Element> {
    let shown: Vec<(&String, Shown<'_>)> = names
        .iter()
        .zip(&report.arms)
        .filter_map(|(name, arm)| Some((name, Shown::of(arm)?)))
        .collect();
    let slots = shown.iter().flat_map(|(_, shown)| shown.slots);
    let end = shown.iter().map(|(_, shown)| shown.end()).reduce(f64::max)?;
    let x = Scale::linear(end / 1000.0, FRAME.across());
    let values = slots.flat_map(|slot| [slot.p50, slot.p99, slot.max]);
    let y = Scale::logarithmic(values.map(|us| us / 1000.0), FRAME.up());
    let caption = "Latency over time, by the intended send time";
    let mut plots = Vec::new();
    let mut numbers = Vec::new();
    for (name, shown) in &shown {
        let (rounds, number) = (shown.rounds, shown.number);
        let which = match rounds {
            1 => (*name).clone(),
            _ => format!("{name}, turn {number} of {rounds}: the one with the highest p99.9"),
        };
        plots.push(shown.draw(&which, &x, &y));
        numbers.push(shown.table(&which));
    }
    let sample = |at: usize| line(LINES[at].1, (0.0, 6.0), (34.0, 6.0));
    plots.push(legend(LINES.map(|(name, ..)| name), sample));
    Some(figure(caption, plots, numbers))
}

/// The turn of an arm to show.
struct Shown<'a> {
    number: usize,
    rounds: usize,
    slot_ms: f64,
    slots: &'a [Slot],
    faults: &'a [FaultSpan],
}

impl<'a> Shown<'a> {
    fn of(arm: &'a ArmReport) -> Option<Self> {
        let p999 = |round: &RoundReport| round.latency_us.p999;
        let rounds = arm.rounds.iter().enumerate();
        let (at, round) = rounds.max_by(|(_, a), (_, b)| p999(a).total_cmp(&p999(b)))?;
        let over_time = round.over_time.as_ref()?;
        Some(Self {
            number: at + 1,
            rounds: arm.rounds.len(),
            slot_ms: over_time.slot_ms,
            slots: &over_time.slots,
            faults: &round.faults,
        })
    }

    /// End of the turn, in milliseconds.
    fn end(&self) -> f64 {
        self.slots.last().map_or(0.0, |slot| slot.from_ms + self.slot_ms)
    }

    fn draw(&self, name: &str, x: &Scale, y: &Scale) -> Element {
        let faults: Vec<String> = self.faults.iter().map(in_words).collect();
        let faults = if faults.is_empty() { "none".to_owned() } else { faults.join("; ") };
        let says = format!("{name}: latency over time; faults: {faults}.");
        let ticks = x.ticks().into_iter().map(|(at, _)| (x.at(at), short(at)));
        FRAME
            .svg(&says)
            .children(self.faults.iter().map(|fault| mark(fault, x)))
            .child(FRAME.rows(y))
            .child(FRAME.columns(ticks))
            .child(FRAME.titles("seconds", "ms"))
            .children(LINES.iter().flat_map(|(what, class, of)| self.lines(what, class, *of, x, y)))
            .child(label("start", FRAME.left, 14.0, name).class("strong"))
    }

    /// A line with gaps where no record was due.
    fn lines(
        &self,
        what: &str,
        class: &str,
        of: fn(&Slot) -> f64,
        x: &Scale,
        y: &Scale,
    ) -> Vec<Element> {
        let together = |a: &Slot, b: &Slot| b.from_ms - a.from_ms < 1.5 * self.slot_ms;
        let parts = self.slots.chunk_by(together).map(|part| {
            let middle = |slot: &Slot| x.at((slot.from_ms + self.slot_ms / 2.0) / 1000.0);
            let mut points: Vec<_> =
                part.iter().map(|slot| (middle(slot), y.at(of(slot) / 1000.0))).collect();
            if let [(x, y)] = points[..] {
                points = vec![(x - 2.0, y), (x + 2.0, y)];
            }
            el("g").child(hint(what)).child(polyline(class, &points))
        });
        parts.collect()
    }

    fn table(&self, name: &str) -> Element {
        let columns = ["from, s", "records", "median, ms", "p99, ms", "longest, ms"];
        let most = |part: &[Slot], of: fn(&Slot) -> f64| {
            short(part.iter().map(of).fold(0.0, f64::max) / 1000.0)
        };
        let row = |part: &[Slot]| {
            let records: u64 = part.iter().map(|slot| slot.records).sum();
            let from = part.first().map_or(0.0, |slot| slot.from_ms / 1000.0);
            let mut row = vec![short(from), records.to_string()];
            row.extend(LINES.map(|(_, _, of)| most(part, of)));
            row
        };
        let together = self.slots.len().div_ceil(ROWS).max(1);
        let rows = self.slots.chunks(together).map(row).collect();
        let what = match together {
            1 => String::new(),
            n => format!("; the highest of every {n} slots"),
        };
        let faults = self.faults.iter().map(|fault| format!("; {}", in_words(fault)));
        let caption = format!("{name}{what}{}", faults.collect::<String>());
        table(&caption, &columns.map(str::to_owned), rows)
    }
}

fn in_words(fault: &FaultSpan) -> String {
    let FaultSpan { from_ms, until_ms, what } = fault;
    let (from, until) = (short(from_ms / 1000.0), short(until_ms / 1000.0));
    match from == until {
        true => format!("{what} at {from} s"),
        false => format!("{what} from {from} s to {until} s"),
    }
}

/// A band as long as the fault, with its description.
fn mark(fault: &FaultSpan, x: &Scale) -> Element {
    let (bottom, top) = FRAME.up();
    let (from, until) = (x.at(fault.from_ms / 1000.0), x.at(fault.until_ms / 1000.0));
    let band = rectangle("fault", from, top, (until - from).max(1.5), bottom - top);
    // Where it fits: after the beginning, or before it.
    let (anchor, at) = match from < f64::midpoint(FRAME.left, FRAME.width) {
        true => ("start", from + 3.0),
        false => ("end", until.max(from + 1.5) - 3.0),
    };
    let text = label(anchor, at, top - 5.0, &fault.what).class("fault");
    el("g").child(hint(&in_words(fault))).child(band).child(text)
}
