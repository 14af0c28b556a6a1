//! The producer's lanes, and the state that their lock protects.

use std::{collections::BTreeMap, sync::Arc};

use curtail_proto::{accumulator::Branch, path::Trouble};
use tokio::task::AbortHandle;

use super::{lane::Lane, shared::Topics};
use crate::metadata::Retired;

/// Lanes by broker and branch, with their tasks.
#[derive(Default)]
pub(super) struct Lanes {
    /// Replaced tables of topics.
    pub(super) former: Retired<Topics>,
    by_broker: BTreeMap<(i32, Branch), (Arc<Lane>, AbortHandle)>,
    /// Tasks of the producer that belong to no lane.
    pub(super) tasks: Vec<AbortHandle>,
    pub(super) phase: Phase,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    #[default]
    New,
    /// The identity is being requested.
    Running,
    Closed,
}

impl Lanes {
    pub(super) fn main(&self, broker: i32) -> Option<&Arc<Lane>> {
        self.by_broker.get(&(broker, Branch::Main)).map(|(lane, _)| lane)
    }

    /// Adds a lane and its task.
    pub(super) fn add(&mut self, lane: Arc<Lane>, task: AbortHandle) {
        self.by_broker.insert((lane.broker, lane.branch), (lane, task));
    }

    /// Every lane, by broker.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Lane>> {
        self.by_broker.values().map(|(lane, _)| lane)
    }

    /// The lanes to a broker.
    pub(super) fn to(&self, broker: i32) -> impl Iterator<Item = &Arc<Lane>> {
        let both = (broker, Branch::Main)..=(broker, Branch::Side);
        self.by_broker.range(both).map(|(_, (lane, _))| lane)
    }

    /// The broker's trouble. On the side lane late responses are usual: followers turn to a new leader. The lane is
    /// unreachable only if a late broker completes no handshake.
    pub(super) fn trouble(&self, broker: i32) -> Trouble {
        let troubles = self.to(broker).map(|lane| match (lane.branch, lane.gate.trouble()) {
            (Branch::Side, Trouble::Suspect) => Trouble::Fine,
            (_, trouble) => trouble,
        });
        troubles.max().unwrap_or_default()
    }

    /// Takes out every lane with its task.
    pub(super) fn take(&mut self) -> impl Iterator<Item = (Arc<Lane>, AbortHandle)> + use<> {
        std::mem::take(&mut self.by_broker).into_values()
    }
}
