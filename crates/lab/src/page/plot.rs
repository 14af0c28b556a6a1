//! Axes and lines in SVG.

use super::markup::{Element, el};

/// Number of colours, and of dash patterns, so that no line is identified by its colour alone.
pub(crate) const COLOURS: usize = 8;

/// Mapping of values to pixels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    from: f64,
    until: f64,
    /// Pixels of `from` and `until`.
    pixels: (f64, f64),
    logarithmic: bool,
}

impl Scale {
    /// A linear axis from 0.
    pub(crate) fn linear(until: f64, pixels: (f64, f64)) -> Self {
        Self { from: 0.0, until: if until > 0.0 { until } else { 1.0 }, pixels, logarithmic: false }
    }

    /// A logarithmic axis over all of these values, from one power of ten to another. Values without a
    /// logarithm are placed at its beginning.
    pub(crate) fn logarithmic(values: impl Iterator<Item = f64>, pixels: (f64, f64)) -> Self {
        let positive = values.filter(|value| *value > 0.0 && value.is_finite());
        let bounds = positive.fold(None, |bounds: Option<(f64, f64)>, value| {
            let (least, most) = bounds.unwrap_or((value, value));
            Some((least.min(value), most.max(value)))
        });
        let (least, most) = bounds.unwrap_or((1.0, 10.0));
        let (from, until) = (least.log10().floor(), most.log10().ceil());
        let until = if until > from { until } else { from + 1.0 };
        Self { from, until, pixels, logarithmic: true }
    }

    /// The pixel of a value.
    pub(crate) fn at(&self, value: f64) -> f64 {
        let value = match self.logarithmic {
            true if value > 0.0 => value.log10(),
            true => self.from,
            false => value,
        };
        let part = ((value - self.from) / (self.until - self.from)).clamp(0.0, 1.0);
        self.pixels.0 + part * (self.pixels.1 - self.pixels.0)
    }

    /// Values of grid lines, and whether each has a label.
    pub(crate) fn ticks(&self) -> Vec<(f64, bool)> {
        if !self.logarithmic {
            let step = round_step(self.until / 8.0);
            let count = (self.until / step + 1e-9).floor() as u32;
            return (0..=count).map(|n| (f64::from(n) * step, true)).collect();
        }
        let narrow = self.until - self.from <= 2.0;
        let decades = (self.from as i32)..=(self.until as i32);
        let ticks = decades.flat_map(|decade| [1.0, 2.0, 5.0].map(|m| (m, 10f64.powi(decade))));
        let ticks = ticks.map(|(mantissa, power)| (mantissa * power, mantissa == 1.0 || narrow));
        ticks.filter(|(value, _)| value.log10() <= self.until + 1e-9).collect()
    }
}

/// The smallest 1, 2 or 5 times a power of ten that is at least `least`.
fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.max(1e-9).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    steps.into_iter().find(|step| *step >= least * 0.999).unwrap_or(10.0 * power)
}

/// Size of a plot and of the area inside its axes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) width: f64,
    pub(crate) height: f64,
    pub(crate) left: f64,
    pub(crate) right: f64,
    pub(crate) top: f64,
    pub(crate) bottom: f64,
}

impl Frame {
    pub(crate) fn across(&self) -> (f64, f64) {
        (self.left, self.width - self.right)
    }

    /// Pixels of the vertical axis, upwards.
    pub(crate) fn up(&self) -> (f64, f64) {
        (self.height - self.bottom, self.top)
    }

    /// An empty plot with a description.
    pub(crate) fn svg(&self, says: &str) -> Element {
        let Self { width, height, .. } = self;
        el("svg")
            .attr("viewBox", format_args!("0 0 {width} {height}"))
            .attr("role", "img")
            .attr("aria-label", says)
    }

    /// A horizontal line and its label for each tick of the vertical axis.
    pub(crate) fn rows(&self, scale: &Scale) -> Element {
        let (left, right) = self.across();
        let lines = scale.ticks().into_iter().flat_map(|(value, labelled)| {
            let y = scale.at(value);
            let label = labelled.then(|| label("end", left - 6.0, y + 4.0, &short(value)));
            [Some(line("grid", (left, y), (right, y))), label].into_iter().flatten()
        });
        el("g").children(lines)
    }

    /// A vertical line and its label at each of these places.
    pub(crate) fn columns(&self, ticks: impl IntoIterator<Item = (f64, String)>) -> Element {
        let (bottom, top) = self.up();
        let lines = ticks.into_iter().flat_map(|(x, text)| {
            [line("grid", (x, bottom), (x, top)), label("middle", x, bottom + 16.0, &text)]
        });
        el("g").children(lines)
    }

    /// Titles of the axes.
    pub(crate) fn titles(&self, horizontal: &str, vertical: &str) -> Element {
        let (left, right) = self.across();
        let (bottom, top) = self.up();
        let below = label("middle", f64::midpoint(left, right), bottom + 34.0, horizontal);
        let middle = f64::midpoint(top, bottom);
        let beside = label("middle", 0.0, 0.0, vertical);
        let turned = format!("translate(14 {middle:.1}) rotate(-90)");
        el("g").child(below).child(el("g").attr("transform", turned).child(beside))
    }
}

/// A text that begins, ends or is centred at a position.
pub(crate) fn label(anchor: &str, x: f64, y: f64, text: &str) -> Element {
    place(el("text"), x, y).attr("text-anchor", anchor).text(text)
}

fn place(element: Element, x: f64, y: f64) -> Element {
    element.attr("x", format_args!("{x:.1}")).attr("y", format_args!("{y:.1}"))
}

pub(crate) fn line(class: &str, from: (f64, f64), to: (f64, f64)) -> Element {
    let at = |value: f64| format!("{value:.1}");
    let line = el("line").class(class).attr("x1", at(from.0)).attr("y1", at(from.1));
    line.attr("x2", at(to.0)).attr("y2", at(to.1))
}

pub(crate) fn rectangle(class: &str, x: f64, y: f64, width: f64, height: f64) -> Element {
    place(el("rect").class(class), x, y)
        .attr("width", format_args!("{:.1}", width.max(0.0)))
        .attr("height", format_args!("{height:.1}"))
}

/// A line through points.
pub(crate) fn polyline(class: &str, points: &[(f64, f64)]) -> Element {
    let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    el("polyline").class(class).attr("points", points.join(" "))
}

/// Tooltip in a browser.
pub(crate) fn hint(text: &str) -> Element {
    el("title").text(text)
}

/// Classes of a series' line. After the last colour, they repeat with other dashes.
pub(crate) fn series(at: usize) -> String {
    format!("series c{} d{}", at % COLOURS, (at + at / COLOURS) % COLOURS)
}

/// The class of a series' area.
pub(crate) fn area(at: usize) -> String {
    format!("area f{}", at % COLOURS)
}

/// A sample of each line or area with its name.
pub(crate) fn legend<'a>(
    names: impl IntoIterator<Item = &'a str>,
    sample: impl Fn(usize) -> Element,
) -> Element {
    let entries = names.into_iter().enumerate().map(|(at, name)| {
        let sample = el("svg")
            .class("sample")
            .attr("viewBox", "0 0 34 12")
            .attr("aria-hidden", "true")
            .child(sample(at));
        el("li").child(sample).text(" ").text(name)
    });
    el("ul").class("legend").children(entries)
}

/// Formats a number as short as is readable.
pub(crate) fn short(value: f64) -> String {
    let text = match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    };
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}
