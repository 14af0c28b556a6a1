//! What every driver's `group-consume` has in common: its end, and its lines.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SigSet, Signal};

use crate::Failure;

static TERMINATED: AtomicBool = AtomicBool::new(false);

/// Threads that are started later do not see the signal either.
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
    // Whoever read it is gone: there is nobody to tell.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
