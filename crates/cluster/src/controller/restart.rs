//! A controller that crashes and restarts from its journal while the brokers keep running.

use std::{io, path::PathBuf, sync::Arc};

use super::{
    Controller,
    journal::{self, Change, Journal},
    state::State,
};
use crate::{
    config::{ClusterConfig, Plant},
    disk::Disk,
};

/// Creates the journal of a controller with this state; `None` for metadata in memory only.
pub(super) fn journal(
    home: Option<&(Arc<dyn Disk>, PathBuf)>,
    state: &State,
    config: &ClusterConfig,
) -> io::Result<Option<Journal>> {
    let Some((disk, dir)) = home else { return Ok(None) };
    let mut journal = Journal::create(Arc::clone(disk), dir, &state.snapshot(config.brokers))?;
    journal.syncs = config.plant != Some(Plant::JournalUnsynced);
    Ok(Some(journal))
}

/// Refuses another cluster id than the stored one.
///
/// # Errors
/// `InvalidData` with both ids.
pub(super) fn check_id(stored: &str, given: Option<&str>) -> io::Result<()> {
    match given {
        Some(given) if given != stored => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!(
                "it belongs to the cluster with the id {stored}, not {given}; use that id, or choose another directory"
            ),
        )),
        _ => Ok(()),
    }
}

impl Controller {
    /// Crashes the controller: it sends no responses until [`Controller::restart`]. Brokers
    /// continue with their current metadata.
    pub(crate) fn crash(&self) {
        let mut inner = self.inner.lock();
        inner.down = true;
        inner.journal = None;
    }

    /// Restarts a crashed controller from its journal. Without a journal it continues with its
    /// state in memory.
    ///
    /// As after a failover in Kafka, leader epochs stay, and every live broker gets a full session
    /// timeout.
    ///
    /// # Errors
    /// The journal cannot be read or replaced; the controller stays down.
    pub(crate) fn restart(&self) -> io::Result<()> {
        let mut inner = self.inner.lock();
        if !inner.down {
            return Ok(());
        }
        if let Some((disk, dir)) = &self.home {
            let changes = journal::read(disk.as_ref(), dir)?;
            let id = changes.iter().find_map(|change| match change {
                Change::Cluster { id, .. } => Some(id.clone()),
                _ => None,
            });
            let id = id.unwrap_or_else(|| inner.state.image.cluster_id.to_string());
            let brokers: Vec<i32> = self.config.broker_ids().collect();
            let mut state = State::replayed(&id, changes).restarted(&brokers);
            state.configure_credentials(&inner.configured);
            state.unclean = std::mem::take(&mut inner.state.unclean);
            state.elects_uncleanly = inner.state.elects_uncleanly;
            if self.config.plant == Some(Plant::ReuseProducerIds) {
                state.reuse_producer_ids();
            }
            inner.journal = journal(self.home.as_ref(), &state, &self.config)?;
            inner.state = state;
        }
        inner.down = false;
        inner.restarts += 1;
        self.publish(&mut inner);
        drop(inner);
        self.came_up.notify_waiters();
        self.wake.notify_one();
        Ok(())
    }

    /// Returns once the controller is up.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn up(&self) {
        loop {
            // Created before the look: it receives a restart from then on.
            let came_up = self.came_up.notified();
            if !self.inner.lock().down {
                return;
            }
            came_up.await;
        }
    }

    /// Returns all durable state as text, for comparing it before a crash and after the restart.
    pub(crate) fn text(&self) -> String {
        self.inner.lock().state.text()
    }
}
