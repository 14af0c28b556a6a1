//! A consumer that commits offsets, and drops some of the calls.
//!
//! Offsets rise from call to call. The committed offset is that of the last acknowledged call, or of a later one.

use std::time::Duration;

use curtail::{Consumer, Error, TopicPartition, transaction::OffsetAndMetadata};
use curtail_net::{Entropy, Env};
use tokio::time::sleep;

use super::{Shared, Stage, TOPIC, mortal, reader};
use crate::{
    history::{CommittedElsewhere, DroppedCommit},
    net::{self, Client},
    plan::Host,
    trace::now,
};

const GROUP: &str = "committer";
/// Commits at least, even if the faults end sooner.
const COMMITS: i64 = 40;
/// How long a dropped commit may take once the faults have ended.
const CARRIED_OUT: Duration = Duration::from_secs(10);

struct Committer {
    shared: Shared,
    entropy: Entropy,
    consumer: Consumer,
    at: TopicPartition,
    /// Offset of the last call that was acknowledged.
    acknowledged: Option<i64>,
    /// Offset of the last call.
    requested: Option<i64>,
}

/// Commits until the faults have ended. Returns the consumer, for the caller to close.
pub(super) async fn run(shared: Shared, env: Env, entropy: Entropy) -> Result<Consumer, Error> {
    let client = Client::new("committer", reader::REQUEST_TIMEOUT);
    let env = net::observed(&shared.fabric, &Host::Clients.name(), &env, &client);
    let config = reader::config(&shared)
        .group_id(GROUP)
        .enable_auto_commit(false)
        .default_api_timeout(Duration::from_secs(20));
    let mut consumer = Consumer::with_env(config, &env)?;
    let at = TopicPartition::new(TOPIC, 0);
    consumer.assign([at.clone()]);
    let mut committer =
        Committer { shared, entropy, consumer, at, acknowledged: None, requested: None };
    for offset in 1.. {
        if offset > COMMITS && committer.shared.has_reached(Stage::Healed) {
            break;
        }
        sleep(Duration::from_millis(committer.entropy.below(60))).await;
        let polls = match committer.entropy.below(3) {
            0 => u64::MAX,
            _ => 1 + committer.entropy.below(3),
        };
        committer.commit(offset, polls).await;
        match committer.entropy.below(4) {
            0 => drop(committer.look().await),
            // The coordinator may be another broker by then, which no commit has reached.
            1 => {
                sleep(Duration::from_millis(committer.entropy.below(500))).await;
                committer.look().await;
            }
            _ => {}
        }
    }
    committer.must_carry_out().await;
    client.leave();
    Ok(committer.consumer)
}

impl Committer {
    /// Commits an offset, and drops the call after a number of polls.
    async fn commit(&mut self, offset: i64, polls: u64) {
        self.requested = Some(offset);
        let offsets = [(self.at.clone(), OffsetAndMetadata::new(offset))];
        let outcome = mortal::for_polls(self.consumer.commit_offsets(offsets), polls).await;
        let trace = self.shared.fabric.trace();
        trace.event("committer", format_args!("commit of {offset}: {outcome:?}"));
        if let Some(Ok(())) = outcome {
            self.acknowledged = Some(offset);
        }
    }

    /// The committed offset, unless the look-up fails.
    async fn committed(&self) -> Option<Option<i64>> {
        let found = self.consumer.committed(std::slice::from_ref(&self.at)).await;
        let trace = self.shared.fabric.trace();
        trace.event("committer", format_args!("committed: {found:?}"));
        let committed = found.ok()?.remove(&self.at).flatten();
        Some(committed.map(|committed| committed.offset))
    }

    /// Looks the committed offset up while no call is in progress; dropped ones may be.
    async fn look(&self) -> Option<i64> {
        let committed = self.committed().await?;
        // Every offset is one of the calls.
        if committed < self.acknowledged || committed > self.requested {
            let acknowledged = self.acknowledged;
            let elsewhere = CommittedElsewhere { at: now(), committed, acknowledged };
            self.shared.history.lock().committed_elsewhere.push(elsewhere);
        }
        committed
    }

    /// Drops a call after its first poll: its offset is committed nevertheless.
    async fn must_carry_out(&mut self) {
        let offset = self.requested.unwrap_or(0) + 1;
        self.commit(offset, 1).await;
        let begin = now();
        while self.look().await != Some(offset) {
            if now() - begin > CARRIED_OUT {
                let dropped = DroppedCommit { at: begin, offset };
                self.shared.history.lock().dropped_commits.push(dropped);
                return;
            }
            sleep(Duration::from_millis(100)).await;
        }
    }
}
