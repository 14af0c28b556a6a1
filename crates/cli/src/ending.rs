//! The end of a command that serves until it is stopped.

mod parent;

use std::{io, pin::Pin};

use crate::signals;

/// Watches for Ctrl-C and SIGTERM, and for the end of the parent process if that is asked for.
pub(crate) struct Ending {
    asked: Pin<Box<dyn Future<Output = ()>>>,
    orphaned: Pin<Box<dyn Future<Output = ()>>>,
}

impl Ending {
    /// Begins to watch. What happens before [`Ending::come`] is not missed.
    pub(crate) fn watch(parent: bool) -> io::Result<Self> {
        Ok(Self { asked: Box::pin(signals::end()?), orphaned: Box::pin(parent::gone(parent)) })
    }

    /// Returns once the command should end.
    pub(crate) async fn come(self) {
        tokio::select! {
            biased;
            () = self.asked => {}
            () = self.orphaned => {}
        }
    }
}
