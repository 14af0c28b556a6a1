//! Progress on a terminal, nothing in a pipe.

use std::io::IsTerminal as _;

use curtail_lab::perf::Event;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar on standard error, hidden unless both outputs are terminals.
pub(super) struct Bar(ProgressBar);

impl Bar {
    pub(super) fn new() -> Self {
        let target = if std::io::stderr().is_terminal() {
            ProgressDrawTarget::stderr_with_hz(10)
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(None, target);
        let style =
            "{msg}{bar:40} {percent:>3}% {human_pos}/{human_len} records, {per_sec}, {eta} left";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// Shows the progress of an event.
    pub(super) fn show(&self, event: &Event<'_>) {
        match event {
            // Not within `around`: asking the bar there would wait for itself.
            Event::Preparing(what) if !self.0.is_hidden() => {
                self.around(|| crate::output::note(what));
            }
            Event::Started { total } => self.0.set_length(*total),
            Event::Advanced { done } => self.0.set_position(*done),
            _ => {}
        }
    }

    /// Hides the bar while `print` runs.
    pub(super) fn around<T>(&self, print: impl FnOnce() -> T) -> T {
        self.0.suspend(print)
    }

    /// Removes the bar.
    pub(super) fn finish(&self) {
        self.0.finish_and_clear();
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
