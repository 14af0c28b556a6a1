//! `curtail produce` and `curtail consume`, in the manner of kcat.

pub(crate) mod consume;
mod format;
pub(crate) mod produce;
#[cfg(test)]
mod tests;

use std::fmt::Display;

use crate::output;

/// Prints a message that is no error, unless the user wants none (`--quiet`).
fn note(quiet: bool, text: impl Display) {
    if !quiet {
        output::note(text);
    }
}

/// Replaces `\n`, `\t`, `\r`, `\\`, `\0` and `\xNN`; a backslash before any other character stays.
pub(crate) fn unescape(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('r') => out.push('\r'),
            Some('0') => out.push('\0'),
            Some('\\') | None => out.push('\\'),
            Some('x') => match hexadecimal(chars.as_str()) {
                Some(value) => {
                    out.push(value);
                    chars.nth(1);
                }
                None => out.push_str("\\x"),
            },
            Some(other) => {
                out.push('\\');
                out.push(other);
            }
        }
    }
    out
}

/// The ASCII character of two hexadecimal digits.
fn hexadecimal(text: &str) -> Option<char> {
    let value = u8::from_str_radix(text.get(..2)?, 16).ok()?;
    value.is_ascii().then_some(value.into())
}
