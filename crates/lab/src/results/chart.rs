//! Bar charts as SVG files that follow the reader's preference for light or dark.

use super::number::{Spread, Unit};
use crate::{
    page::{
        markup::{Element, el},
        plot::{hint, label, line, rectangle},
    },
    text::wrapped,
};

/// A phone shows 368 pixels of it at most: its text then has 10 of its 13 pixels.
const WIDTH: f64 = 480.0;
const TITLE: f64 = 30.0;
const LINE: f64 = 18.0;
const ROW: f64 = 22.0;
const BAR: f64 = 14.0;
const MARGIN: f64 = 10.0;
/// Between a bar and the text at either end.
const GAP: f64 = 8.0;
/// Width of a character in the widest of the usual fonts.
const CHARACTER: f64 = 6.6;
/// Characters of a line of a title, which is bold.
const LINE_CHARACTERS: usize = 58;

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

    /// Curtail against the best other client. Figures at or below 0 have no ratio.
    fn finding(&self) -> Option<String> {
        let of = |class: &str| self.bars.iter().find(|(name, _)| class_of(name) == class);
        let (_, ours) = of("ours")?;
        let (client, best) = of("other")?;
        if ours.least.min(best.least) <= 0.0 {
            return None;
        }
        if ours.least <= best.most && best.least <= ours.most {
            return Some(format!("The ranges of Curtail and {client} overlap"));
        }
        let once = if ours.count.max(best.count) == 1 { " (one turn each)" } else { "" };
        Some(match ours.median < best.median {
            true => {
                let times = best.median / ours.median;
                format!("Curtail: {times:.1} times less than {client}{once}")
            }
            false => {
                let times = ours.median / best.median;
                format!("Curtail: {times:.1} times as much as {client}{once}")
            }
        })
    }

    /// Height of the title and the finding.
    fn head(&self) -> f64 {
        let lines =
            wrapped(&self.title, LINE_CHARACTERS).len() + usize::from(self.finding().is_some());
        TITLE + LINE * (lines.max(1) - 1) as f64
    }

    fn height(&self) -> f64 {
        self.head() + ROW * self.bars.len().max(1) as f64
    }

    /// The panel in words.
    fn says(&self) -> String {
        let bars =
            self.bars.iter().map(|(name, spread)| format!("{name} {}", spread.text(self.unit)));
        let bars: Vec<String> = bars.collect();
        let finding = self.finding().map(|finding| format!(" {finding}."));
        match bars.is_empty() {
            true => format!("{}: no run on file.", self.title),
            false => {
                format!("{}: {}.{}", self.title, bars.join(", "), finding.unwrap_or_default())
            }
        }
    }

    fn draw(&self, top: f64, columns: Columns) -> Element {
        let title = wrapped(&self.title, LINE_CHARACTERS);
        let lines = title.into_iter().map(|line| (line, "strong"));
        let lines = lines.chain(self.finding().map(|finding| (finding, "quiet")));
        let lines = lines.enumerate().map(|(at, (line, class))| {
            label("start", MARGIN, top + 19.0 + LINE * at as f64, &line).class(class)
        });
        let drawn = el("g").children(lines);
        let top = top + self.head();
        if self.is_empty() {
            return drawn
                .child(label("start", MARGIN, top + 12.0, "no run on file").class("quiet"));
        }
        let sizes =
            self.bars.iter().flat_map(|(_, spread)| [spread.least.abs(), spread.most.abs()]);
        let longest = sizes.fold(0.0, f64::max);
        let longest = if longest > 0.0 { longest } else { 1.0 };
        let rows = self.bars.iter().enumerate().map(|(at, bar)| {
            let y = top + ROW * at as f64;
            row(bar, y, self.unit, &|value| columns.at(value / longest))
        });
        drawn.children(rows)
    }
}

/// Where the bars of a chart begin, and where the longest one ends.
#[derive(Clone, Copy)]
struct Columns {
    left: f64,
    right: f64,
}

impl Columns {
    /// Leaves room for the longest name and the longest figures.
    fn of(panels: &[Panel]) -> Self {
        let bars =
            || panels.iter().flat_map(|panel| panel.bars.iter().map(|bar| (bar, panel.unit)));
        let names = bars().map(|((name, _), _)| name.chars().count()).max();
        let figures = bars().map(|((_, spread), unit)| spread.text(unit).chars().count()).max();
        let width = |count: Option<usize>| CHARACTER * count.unwrap_or(0) as f64 + GAP + MARGIN;
        Self { left: width(names), right: WIDTH - width(figures) }
    }

    /// The pixel of a part of the longest bar.
    fn at(self, part: f64) -> f64 {
        self.left + (self.right - self.left) * part.clamp(0.0, 1.0)
    }
}

/// A bar with its name before it and its figures after it.
fn row((name, spread): &(String, Spread), y: f64, unit: Unit, x: &dyn Fn(f64) -> f64) -> Element {
    let (middle, base, left) = (y + BAR / 2.0, y + 12.0, x(0.0));
    let figures = spread.text(unit);
    let width = (x(spread.median) - left).max(1.0);
    let bar =
        rectangle(class_of(name), left, y, width, BAR).child(hint(&format!("{name}: {figures}")));
    let mut row = el("g").child(label("end", left - GAP, base, name)).child(bar);
    if spread.count > 1 {
        row = row.child(line("range", (x(spread.least), middle), (x(spread.most), middle)));
    }
    let end = x(spread.most).max(left + width);
    row.child(label("start", end + GAP, base, &figures))
}

/// The colour of a bar: Curtail, an arm that it is compared with, or another client.
fn class_of(name: &str) -> &'static str {
    match name {
        "Curtail" => "ours",
        arm if arm.starts_with("Curtail, ") => "arm",
        _ => "other",
    }
}

/// A file with these panels, one below the other.
pub(super) fn draw(title: &str, panels: &[Panel]) -> String {
    let head = TITLE + MARGIN;
    let height = head + panels.iter().map(|panel| panel.height() + MARGIN).sum::<f64>();
    let says: Vec<String> = panels.iter().map(Panel::says).collect();
    let columns = Columns::of(panels);
    let mut top = head;
    let drawn = panels.iter().map(|panel| {
        let element = panel.draw(top, columns);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(ours: &[f64], java: &[f64]) -> Option<String> {
        let mut panel = Panel::new("A broker is killed", Unit::Ms);
        panel.client("Curtail", Spread::of(ours.iter().copied()));
        panel.client("java", Spread::of(java.iter().copied()));
        panel.finding()
    }

    #[test]
    fn a_panel_with_another_client_states_the_ratio() {
        let text = |ours, java| finding(ours, java).unwrap();
        assert_eq!(text(&[2.0], &[9.0]), "Curtail: 4.5 times less than java (one turn each)");
        assert_eq!(text(&[2.0, 4.0], &[9.0, 9.0]), "Curtail: 3.0 times less than java");
        assert_eq!(text(&[6.0, 6.0], &[4.0, 4.0]), "Curtail: 1.5 times as much as java");
        assert_eq!(text(&[2.0, 5.0], &[4.0, 9.0]), "The ranges of Curtail and java overlap");
    }

    #[test]
    fn a_panel_without_a_ratio_states_none() {
        assert_eq!(finding(&[2.0], &[]), None);
        assert_eq!(finding(&[], &[2.0]), None);
        assert_eq!(finding(&[-2.0], &[2.0]), None);
    }

    #[test]
    fn long_titles_have_several_lines_of_bounded_length() {
        let title =
            "A broker is unresponsive for 20 s; 3 replicas, keyed: stall beyond the election";
        let lines = wrapped(title, LINE_CHARACTERS);
        assert_eq!(lines.len(), 2);
        assert!(lines.iter().all(|line| line.len() <= LINE_CHARACTERS), "{lines:?}");
        assert_eq!(lines.join(" "), title);
    }

    #[test]
    fn long_names_and_figures_keep_their_room_beside_the_bars() {
        let mut panel = Panel::new("", Unit::Ms);
        let name = "Curtail, many-all-baseline";
        panel.client(name, Spread::of([633.0, 2270.0]));
        let figures = panel.bars[0].1.text(Unit::Ms);
        let columns = Columns::of(&[panel]);
        assert!(columns.left >= MARGIN + GAP + CHARACTER * name.len() as f64);
        assert!(WIDTH - columns.right >= MARGIN + GAP + CHARACTER * figures.len() as f64);
        assert!(columns.right - columns.left > 60.0);
    }
}
