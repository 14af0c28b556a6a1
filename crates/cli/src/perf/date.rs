//! Dates in the numeric patterns of Java's `SimpleDateFormat`.

#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use jiff::{Timestamp, Zoned, tz::TimeZone};

/// Kafka's default pattern.
pub(super) const DEFAULT: &str = "yyyy-MM-dd HH:mm:ss:SSS";

/// A parsed pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Field(char, usize),
}

impl Pattern {
    /// Parses `y M d H m s S` in any number, quoted text, and everything that is not a letter.
    pub(super) fn parse(pattern: &str) -> Result<Self, String> {
        let mut parts: Vec<Part> = Vec::new();
        let mut chars = pattern.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                'y' | 'M' | 'd' | 'H' | 'm' | 's' | 'S' => {
                    let mut width = 1;
                    while chars.next_if_eq(&c).is_some() {
                        width += 1;
                    }
                    parts.push(Part::Field(c, width));
                }
                '\'' => parts.push(Part::Text(quoted(&mut chars)?)),
                c if c.is_ascii_alphabetic() => {
                    return Err(format!(
                        "the date pattern letter '{c}' is not supported, only y M d H m s S"
                    ));
                }
                c => parts.push(Part::Text(c.into())),
            }
        }
        Ok(Self(parts))
    }

    /// Formats milliseconds since 1970-01-01 UTC in the local time zone.
    pub(super) fn format(&self, ms: i64) -> String {
        let time = Timestamp::from_millisecond(ms).unwrap_or_default();
        self.show(&time.to_zoned(TimeZone::system()))
    }

    fn show(&self, time: &Zoned) -> String {
        let mut text = String::new();
        for part in &self.0 {
            let (field, width) = match part {
                Part::Text(part) => {
                    text.push_str(part);
                    continue;
                }
                Part::Field(field, width) => (*field, *width),
            };
            let value = match field {
                // Two letters mean two digits.
                'y' if width == 2 => i64::from(time.year()).rem_euclid(100),
                'y' => i64::from(time.year()),
                'M' => i64::from(time.month()),
                'd' => i64::from(time.day()),
                'H' => i64::from(time.hour()),
                'm' => i64::from(time.minute()),
                's' => i64::from(time.second()),
                _ => i64::from(time.millisecond()),
            };
            // Writing to a string does not fail.
            let _ = write!(text, "{value:0width$}");
        }
        text
    }
}

fn quoted(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Result<String, String> {
    if chars.next_if_eq(&'\'').is_some() {
        return Ok("'".into());
    }
    let mut text = String::new();
    while let Some(c) = chars.next() {
        if c != '\'' {
            text.push(c);
        } else if chars.next_if_eq(&'\'').is_some() {
            text.push('\'');
        } else {
            return Ok(text);
        }
    }
    Err("the date pattern has a quote without an end".into())
}
