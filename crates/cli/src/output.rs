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

/// Prints a line to standard output.
pub(crate) fn line(text: impl Display) -> Result<(), Failure> {
    print(&format!("{text}\n"))
}

/// Tells the user something that is not part of the output.
pub(crate) fn note(text: impl Display) {
    // Nobody is left to be told when this fails.
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Prints an error.
pub(crate) fn complain(text: &str) {
    note(format_args!("curtail: {text}"));
}
