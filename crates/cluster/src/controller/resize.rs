//! Changing the number of brokers between runs.

use std::{io, path::Path};

use super::{
    journal::{self, Change},
    state::State,
};
use crate::{
    config::{ClusterConfig, Resize},
    disk::RealDisk,
};

/// Returns the number of brokers of a directory's cluster; `None` if there was none or its metadata
/// is unreadable.
pub fn brokers_of(dir: &Path) -> Option<u32> {
    let changes = journal::read(&RealDisk::new(), dir).ok()?;
    let recorded = changes.iter().find_map(|change| match change {
        Change::Cluster { brokers, .. } => Some(*brokers),
        _ => None,
    })?;
    recorded.or_else(|| Some(highest(&State::replayed("", changes))).filter(|brokers| *brokers > 0))
}

/// Returns the highest id of a broker with a replica.
fn highest(state: &State) -> u32 {
    state.known_brokers().last().and_then(|id| u32::try_from(*id).ok()).unwrap_or(0)
}

/// Refuses a number of brokers other than `before`, unless the configuration allows it and no
/// record becomes unavailable.
///
/// # Errors
/// `InvalidData` with the correct settings.
pub(super) fn check(state: &State, before: Option<u32>, config: &ClusterConfig) -> io::Result<()> {
    let refuse = |reason: String| Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    let now = config.brokers;
    // Files of earlier versions lack the number.
    let before = before.unwrap_or_else(|| highest(state).max(now));
    if before == now {
        return Ok(());
    }
    if config.resize == Resize::Refuse {
        return refuse(format!(
            "it was made with {before} broker(s), not {now}; start it with --brokers {before}, \
             or add --resize to continue with {now}"
        ));
    }
    match left_behind(state, now) {
        Some((topic, index)) => refuse(format!(
            "with {now} broker(s) instead of {before} no in-sync replica of {topic}-{index} would be left; start it with \
             --brokers {before} and move the partition first (curtail reassign)"
        )),
        None => Ok(()),
    }
}

/// Returns the first partition whose in-sync replicas are all on brokers above `now`.
fn left_behind(state: &State, now: u32) -> Option<(String, i32)> {
    let stays = |id: &i32| u32::try_from(*id).is_ok_and(|id| id <= now);
    state.image.topics.values().find_map(|topic| {
        let index = topic.partitions.iter().position(|p| !p.isr.iter().any(stays))?;
        Some((topic.name.to_string(), index as i32))
    })
}
