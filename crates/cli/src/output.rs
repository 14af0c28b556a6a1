//! Standard output and standard error.

use std::{
    fmt::Display,
    io::{self, Write as _},
};

pub(crate) use curtail_lab::text::{count, table};

use crate::failure::Failure;

/// Prints a text to standard output as it is.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
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
