//! Bar charts as SVG files that follow the reader's preference for light or dark.

use super::number::{Spread, Unit};
use crate::page::{
    markup::{Element, el},
    plot::{hint, label, line, rectangle},
};

const WIDTH: f64 = 640.0;
/// Where bars begin; their names are before it.
const LEFT: f64 = 150.0;
/// Where the longest bar ends; its figures are behind it.
const RIGHT: f64 = 420.0;
const TITLE: f64 = 30.0;
const ROW: f64 = 22.0;
const BAR: f64 = 14.0;
const MARGIN: f64 = 10.0;

/// A background is drawn: a page may be light where the reader's system prefers dark.
const STYLE: &str = "
text { fill: #1b1f24; font-family: system-ui, sans-serif; font-size: 13px; }
.strong { font-weight: 600; font-size: 14px; }
.quiet { fill: #57606a; }
.back { fill: #fff; }
.ours { fill: #0072b2; }
.arm { fill: #8cc3e6; }
.other { fill: #b4bac1; }
.range { stroke: #1b1f24; stroke-width: 1.5; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6e9ec; }
  .quiet { fill: #a3adb7; }
  .back { fill: #14181d; }
  .ours { fill: #58aef0; }
  .arm { fill: #1f5f8f; }
  .other { fill: #59626c; }
  .range { stroke: #e6e9ec; }
}
";

/// A group of bars with a scale from 0.
pub(super) struct Panel {
    title: String,
    unit: Unit,
    bars: Vec<(String, Spread)>,
}

impl Panel {
    pub(super) fn new(title: impl Into<String>, unit: Unit) -> Self {
        Self { title: title.into(), unit, bars: Vec::new() }
    }

    /// Adds a bar; none without a figure.
    pub(super) fn client(&mut self, name: impl Into<String>, spread: Option<Spread>) {
        self.bars.extend(spread.map(|spread| (name.into(), spread)));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bars.is_empty()
    }

    fn height(&self) -> f64 {
        TITLE + ROW * self.bars.len().max(1) as f64
    }

    /// What the panel shows, in words.
    fn says(&self) -> String {
        let bars =
            self.bars.iter().map(|(name, spread)| format!("{name} {}", spread.text(self.unit)));
        let bars: Vec<String> = bars.collect();
        match bars.is_empty() {
            true => format!("{}: no run on file.", self.title),
            false => format!("{}: {}.", self.title, bars.join(", ")),
        }
    }

    fn draw(&self, top: f64) -> Element {
        let title = label("start", MARGIN, top + 19.0, &self.title).class("strong");
        let drawn = el("g").child(title);
        if self.is_empty() {
            let none = label("start", LEFT, top + TITLE + 13.0, "no run on file").class("quiet");
            return drawn.child(none);
        }
        let longest = self.bars.iter().map(|(_, spread)| spread.most).fold(0.0, f64::max);
        let longest = if longest > 0.0 { longest } else { 1.0 };
        let x = |value: f64| LEFT + (RIGHT - LEFT) * (value / longest).clamp(0.0, 1.0);
        let bars = self.bars.iter().enumerate().map(|(at, (name, spread))| {
            let y = top + TITLE + ROW * at as f64;
            let (middle, base) = (y + BAR / 2.0, y + 12.0);
            let class = match &**name {
                "Curtail" => "ours",
                arm if arm.starts_with("Curtail, ") => "arm",
                _ => "other",
            };
            let width = (x(spread.median) - LEFT).max(1.0);
            let bar = rectangle(class, LEFT, y, width, BAR)
                .child(hint(&format!("{name}: {}", spread.text(self.unit))));
            let mut row = el("g").child(label("end", LEFT - 8.0, base, name)).child(bar);
            if spread.count > 1 {
                let ends = ((x(spread.least), middle), (x(spread.most), middle));
                row = row.child(line("range", ends.0, ends.1));
            }
            let end = x(spread.most).max(LEFT + width);
            row.child(label("start", end + 8.0, base, &spread.text(self.unit)))
        });
        drawn.children(bars)
    }
}

/// A file with these panels, one below the other.
pub(super) fn draw(title: &str, panels: &[Panel]) -> String {
    let head = TITLE + MARGIN;
    let height = head + panels.iter().map(|panel| panel.height() + MARGIN).sum::<f64>();
    let says: Vec<String> = panels.iter().map(Panel::says).collect();
    let mut top = head;
    let drawn = panels.iter().map(|panel| {
        let element = panel.draw(top);
        top += panel.height() + MARGIN;
        element
    });
    let drawn: Vec<Element> = drawn.collect();
    let svg = el("svg")
        .attr("xmlns", "http://www.w3.org/2000/svg")
        .attr("viewBox", format_args!("0 0 {WIDTH} {height}"))
        .attr("width", WIDTH)
        .attr("height", height)
        .attr("role", "img")
        .attr("aria-label", format_args!("{title}. {}", says.join(" ")))
        .child(el("style").text(STYLE))
        .child(rectangle("back", 0.0, 0.0, WIDTH, height))
        .child(label("start", MARGIN, 26.0, title).class("strong"))
        .children(drawn);
    let mut text = String::new();
    svg.write(&mut text);
    text
}
