//! Numbers with their units, and the spread of several.

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// Milliseconds; printed in seconds from a second on.
    Ms,
    /// Microseconds.
    Us,
    /// Megabytes (1024 * 1024 bytes) per second.
    Mbps,
    Percent,
    PerSecond,
    Count,
}

/// A figure with its unit, rounded to three significant digits.
pub(super) fn with_unit(value: f64, unit: Unit) -> String {
    if !value.is_finite() {
        return "not seen".to_owned();
    }
    let number = |value| without_unit(value, unit);
    match unit {
        Unit::Ms if value.abs() >= 1000.0 => format!("{} s", number(value / 1000.0)),
        Unit::Ms => format!("{} ms", number(value)),
        Unit::Us => format!("{} us", number(value)),
        Unit::Mbps => format!("{} MB/s", number(value)),
        Unit::Percent => format!("{}%", number(value)),
        Unit::PerSecond => format!("{}/s", number(value)),
        Unit::Count => number(value),
    }
}

/// A figure rounded to three significant digits, for a column whose header has the unit.
pub(super) fn without_unit(value: f64, unit: Unit) -> String {
    match unit {
        _ if !value.is_finite() => "not seen".to_owned(),
        Unit::Count => thousands(value.round() as i64),
        _ => digits(value),
    }
}

fn digits(value: f64) -> String {
    let text = match value.abs() {
        size if size >= 100.0 => return thousands(value.round() as i64),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        size if size >= 0.1 => format!("{value:.3}"),
        _ => format!("{value:.4}"),
    };
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// `1,234,567`.
pub(super) fn thousands(value: i64) -> String {
    let plain = value.unsigned_abs().to_string();
    let mut text = if value < 0 { "-".to_owned() } else { String::new() };
    for (at, digit) in plain.chars().enumerate() {
        if at > 0 && (plain.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Least, median and most of some figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) least: f64,
    pub(super) median: f64,
    pub(super) most: f64,
    pub(super) count: usize,
}

impl Spread {
    /// `None` without a finite figure.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let (middle, count) = (values.len() / 2, values.len());
        let median = match count % 2 {
            0 => f64::midpoint(values[middle - 1], values[middle]),
            _ => values[middle],
        };
        Some(Self { least, median, most, count })
    }

    /// `51 ms (48 to 55 ms)`, or the figure alone if there is one.
    pub(super) fn text(&self, unit: Unit) -> String {
        let median = with_unit(self.median, unit);
        if self.count == 1 {
            return median;
        }
        let (least, most) = (with_unit(self.least, unit), with_unit(self.most, unit));
        // From a second on milliseconds are seconds: the two may differ.
        let least = match (least.rsplit_once(' '), most.rsplit_once(' ')) {
            (Some((number, its)), Some((_, other))) if its == other => number,
            _ => &least,
        };
        format!("{median} ({least} to {most})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_and_a_unit() {
        let ms = |value| with_unit(value, Unit::Ms);
        let texts = [0.0231, 0.183, 7.21, 48.96, 250.0, 999.4, 8934.0, 123_456.0].map(ms);
        let expected =
            ["0.0231 ms", "0.183 ms", "7.21 ms", "49 ms", "250 ms", "999 ms", "8.93 s", "123 s"];
        assert_eq!(texts, expected);
        assert_eq!(with_unit(1_234_567.0, Unit::Count), "1,234,567");
        assert_eq!(with_unit(-1_169.7, Unit::Ms), "-1.17 s");
        assert_eq!(with_unit(0.0, Unit::PerSecond), "0/s");
        assert_eq!(with_unit(-0.00001, Unit::Ms), "0 ms");
        assert_eq!(with_unit(f64::NAN, Unit::Percent), "not seen");
        assert_eq!(without_unit(12.345, Unit::Mbps), "12.3");
        assert_eq!(without_unit(f64::NAN, Unit::Mbps), "not seen");
        assert_eq!([thousands(-12), thousands(-1234)], ["-12", "-1,234"]);
    }

    #[test]
    fn a_spread_ignores_figures_that_are_missing() {
        let spread = Spread::of([4.0, f64::NAN, 1.0, 2.0, 3.0]).unwrap();
        assert_eq!(spread, Spread { least: 1.0, median: 2.5, most: 4.0, count: 4 });
        assert_eq!(Spread::of([f64::NAN]), None);
        assert_eq!(spread.text(Unit::Ms), "2.5 ms (1 to 4 ms)");
        assert_eq!(Spread::of([800.0, 1200.0]).unwrap().text(Unit::Ms), "1 s (800 ms to 1.2 s)");
        assert_eq!(Spread::of([3.0]).unwrap().text(Unit::Percent), "3%");
    }
}
