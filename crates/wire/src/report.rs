//! Errors with their causes, in one line.

use std::{error::Error, fmt};

/// An error and its causes in one line, as in `a: b: c`.
///
/// The text of an error of Curtail does not contain the texts of its causes: those are in its
/// [`source`](Error::source). A cause of another library that its parent's text repeats is left out.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a>(&'a (dyn Error + 'a));

impl<'a> Report<'a> {
    /// Makes the report of an error.
    #[must_use]
    pub fn new(error: &'a (dyn Error + 'a)) -> Self {
        Self(error)
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.0.to_string();
        let mut source = self.0.source();
        while let Some(cause) = source {
            source = cause.source();
            let next = cause.to_string();
            if text.contains(&next) {
                continue;
            }
            // Messages of brokers end with a full stop.
            write!(f, "{}: ", text.trim_end_matches('.'))?;
            text = next;
        }
        f.write_str(&text)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Layer {
        text: &'static str,
        source: io::Error,
    }

    fn layer(text: &'static str, source: &'static str) -> Layer {
        Layer { text, source: io::Error::other(source) }
    }

    #[test]
    fn a_report_is_the_chain_in_one_line() {
        for (text, source, report) in [
            ("cannot write", "the disk is full", "cannot write: the disk is full"),
            ("It is closed.", "Ask again.", "It is closed: Ask again."),
            (
                "cannot write: the disk is full",
                "the disk is full",
                "cannot write: the disk is full",
            ),
        ] {
            assert_eq!(Report::new(&layer(text, source)).to_string(), report);
        }
        let outer = io::Error::other(layer("a", "b"));
        assert_eq!(Report::new(&outer).to_string(), "a: b");
        assert_eq!(Report::new(&fmt::Error).to_string(), fmt::Error.to_string());
    }
}
