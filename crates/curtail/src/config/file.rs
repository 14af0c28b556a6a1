//! Java's `.properties` files.

use std::{iter::Peekable, path::Path, str::Chars};

use crate::error::ConfigError;

/// Reads a `.properties` file as Java does: `name=value`, `name: value` or `name value`. Comments begin with `#` or
/// `!`. A backslash at the end of a line continues it. The escapes are `\t \n \r \f \\ \uXXXX`.
///
/// The text is UTF-8, where Java reads ISO 8859-1. They agree on ASCII.
///
/// # Errors
/// [`ConfigError::File`] if the file cannot be read, is not UTF-8 or has an invalid `\u` escape.
pub fn load_properties(path: impl AsRef<Path>) -> Result<Vec<(String, String)>, ConfigError> {
    let path = path.as_ref();
    parse_properties(&text(path)?).map_err(|reason| unreadable(path, reason))
}

/// Returns the text of a file.
pub(super) fn text(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|error| unreadable(path, error.to_string()))
}

fn unreadable(path: &Path, reason: String) -> ConfigError {
    ConfigError::File { path: path.display().to_string(), reason }
}

/// Returns the properties in a text, in order. See [`load_properties`].
///
/// # Errors
/// Names the problem and its line.
pub fn parse_properties(text: &str) -> Result<Vec<(String, String)>, String> {
    let property = |Line { number, property }| {
        property.ok_or_else(|| format!("line {number}: {}", ConfigError::Escape))
    };
    lines(text).map(property).collect()
}

/// A logical line of a file.
pub(super) struct Line {
    /// Number of its first line, from 1.
    pub(super) number: usize,
    /// Name and value. `None` for an invalid `\u` escape.
    pub(super) property: Option<(String, String)>,
}

/// Returns the lines with properties, in order.
pub(super) fn lines(text: &str) -> impl Iterator<Item = Line> {
    let mut lines = text.lines().zip(1..);
    std::iter::from_fn(move || {
        let is_property = |line: &str| !line.is_empty() && !line.starts_with(['#', '!']);
        let mut trimmed = lines.by_ref().map(|(line, n)| (line.trim_start_matches(is_blank), n));
        let (first, number) = trimmed.find(|(line, _)| is_property(line))?;
        let mut logical = first.to_owned();
        while continues(&logical) {
            logical.pop();
            let Some((next, _)) = lines.next() else { break };
            logical.push_str(next.trim_start_matches(is_blank));
        }
        Some(Line { number, property: split(&logical) })
    })
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\u{c}')
}

/// Whether the line ends with an odd number of backslashes: then the last one is not itself escaped.
fn continues(line: &str) -> bool {
    line.chars().rev().take_while(|c| *c == '\\').count() % 2 == 1
}

fn split(line: &str) -> Option<(String, String)> {
    let mut chars = line.chars().peekable();
    let name = unescape(&mut chars, |c| is_blank(c) || c == '=' || c == ':')?;
    skip_blanks(&mut chars);
    if chars.next_if(|c| matches!(c, '=' | ':')).is_some() {
        skip_blanks(&mut chars);
    }
    let value = unescape(&mut chars, |_| false)?;
    Some((name, value))
}

fn skip_blanks(chars: &mut Peekable<Chars<'_>>) {
    while chars.next_if(|c| is_blank(*c)).is_some() {}
}

/// Reads up to an unescaped character that `ends` the part. `None` for an invalid `\u` escape.
fn unescape(chars: &mut Peekable<Chars<'_>>, ends: impl Fn(char) -> bool) -> Option<String> {
    let mut part = Vec::new();
    while let Some(c) = chars.next_if(|c| !ends(*c)) {
        let mut buffer = [0; 2];
        if c != '\\' {
            part.extend_from_slice(c.encode_utf16(&mut buffer));
            continue;
        }
        let unit = match chars.next() {
            Some('t') => '\t',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('f') => '\u{c}',
            Some('u') => {
                part.push(hexadecimal(chars)?);
                continue;
            }
            Some(other) => other,
            None => break,
        };
        part.extend_from_slice(unit.encode_utf16(&mut buffer));
    }
    String::from_utf16(&part).ok()
}

/// One UTF-16 unit: Java escapes characters beyond the basic plane as two.
fn hexadecimal(chars: &mut Peekable<Chars<'_>>) -> Option<u16> {
    let digits = (0..4).map(|_| chars.next()?.to_digit(16)).collect::<Option<Vec<_>>>()?;
    u16::try_from(digits.into_iter().fold(0, |unit, digit| unit * 16 + digit)).ok()
}
