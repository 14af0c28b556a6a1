//! Tables, numbers and names of reports, as text.

use std::fmt::Display;

/// Columns that are as wide as their widest value.
#[must_use]
pub fn table(columns: &[&str], rows: &[Vec<impl Display>]) -> String {
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

/// A text in lines of at most `width` characters, as far as its words allow.
#[must_use]
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// `1 broker`, `2 brokers`.
#[must_use]
pub fn count(number: impl Display, thing: &str) -> String {
    let number = number.to_string();
    let plural = if number == "1" { "" } else { "s" };
    format!("{number} {thing}{plural}")
}

/// Meaning of a phase, by its name in reports; empty for an unknown name.
#[must_use]
pub fn meaning(phase: &str) -> &'static str {
    match phase {
        "produce" => "waiting in the client: linger.ms, buffer, requests in flight",
        "publish" => "request to the leader, until its log has the record",
        "commit" => "replication to the in-sync replicas",
        "catch_up" => "the consumer reads the records before it",
        "fetch" => "fetch response, until a poll returns the record",
        "acknowledge" => "until the producer has read the acknowledgement",
        _ => "",
    }
}
