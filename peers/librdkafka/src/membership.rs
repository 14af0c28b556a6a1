//! Common parts of every driver's `group-consume`: its end, and its lines.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SigSet, Signal};

use crate::Failure;

static TERMINATED: AtomicBool = AtomicBool::new(false);

/// Threads started later also block the signal.
pub fn await_termination() -> Result<(), Failure> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    signals.thread_block()?;
    std::thread::spawn(move || {
        if signals.wait().is_ok() {
            TERMINATED.store(true, Ordering::SeqCst);
        }
    });
    Ok(())
}

pub fn terminated() -> bool {
    TERMINATED.load(Ordering::SeqCst)
}

/// Prints a line at once.
pub fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // A reader that is gone needs no line.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
