//! The end of a command that serves until it is stopped.

mod parent;

use std::{io, pin::Pin};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Watches for Ctrl-C and SIGTERM, and for the end of the parent process if that is asked for.
pub(crate) struct Ending {
    interrupt: Signal,
    terminate: Signal,
    orphaned: Pin<Box<dyn Future<Output = ()>>>,
}

impl Ending {
    /// Begins to watch. What happens before [`Ending::come`] is not missed.
    pub(crate) fn watch(parent: bool) -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            orphaned: Box::pin(parent::gone(parent)),
        })
    }

    /// Returns once the command should end.
    pub(crate) async fn come(mut self) {
        tokio::select! {
            biased;
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            () = self.orphaned => {}
        }
    }
}
