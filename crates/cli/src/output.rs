//! Standard output and standard error.

use std::{
    fmt::Display,
    io::{self, Write as _},
};

use crate::failure::Failure;

/// Prints a text to standard output as it is.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Columns that are as wide as their widest value.
pub(crate) fn table(columns: &[&str], rows: &[Vec<impl Display>]) -> String {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(ToString::to_string).collect()).collect();
    let width = |at: usize, name: &str| {
        let values = rows.iter().filter_map(|row| row.get(at)).map(|value| value.chars().count());
        values.max().unwrap_or(0).max(name.chars().count())
    };
    let widths: Vec<usize> = columns.iter().enumerate().map(|(at, name)| width(at, name)).collect();
    let mut text = String::new();
    let header: Vec<String> = columns.iter().map(|name| (*name).to_owned()).collect();
    for row in std::iter::once(&header).chain(&rows) {
        let cells = row.iter().zip(&widths).map(|(value, width)| format!("{value:<width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// `1 broker`, `2 brokers`.
pub(crate) fn count(number: impl Display, thing: &str) -> String {
    let number = number.to_string();
    let plural = if number == "1" { "" } else { "s" };
    format!("{number} {thing}{plural}")
}

/// Prints a line to standard output.
pub(crate) fn line(text: impl Display) -> Result<(), Failure> {
    print(&format!("{text}\n"))
}

/// Prints a message for the user to standard error.
pub(crate) fn note(text: impl Display) {
    // If standard error is closed, the message is lost.
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Prints an error.
pub(crate) fn complain(text: &str) {
    note(format_args!("curtail: {text}"));
}
