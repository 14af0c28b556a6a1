//! Offset lookups over the session's connection.

use std::collections::BTreeMap;

use curtail_proto::{
    TopicPartition,
    fetcher::LookUp,
    position::{FetchVerdict, classify},
};
use curtail_wire::ErrorCode;
use tokio::time::Instant;

use super::{Lane, need_of};
use crate::{
    Result,
    consumer::{
        lookup::{self, Found, Question},
        shared::{State, refused},
    },
};

impl Lane {
    /// Looks up offsets, and moves the positions to them.
    pub(super) async fn look_up(&mut self, asked: BTreeMap<TopicPartition, LookUp>) -> Result<()> {
        let isolation = self.shared.config.isolation_level;
        let questions: Vec<Question> = asked
            .iter()
            .map(|(at, lookup)| Question {
                at: at.clone(),
                leader_epoch: lookup.leader_epoch,
                timestamp: lookup::timestamp_of(lookup.to),
            })
            .collect();
        let (shared, node) = (self.shared.clone(), self.node);
        let exchange = async {
            let connection = self.connected().await?;
            lookup::ask(connection, &questions, isolation).await
        };
        let mut found = shared.suspecting(node, shared.patience(), exchange).await?;
        self.fetcher.handle_looked_up();
        let mut state = shared.state.lock();
        let mut refresh = false;
        for (at, lookup) in asked {
            let missing =
                Found { error: ErrorCode::UNKNOWN_SERVER_ERROR, offset: -1, timestamp: -1 };
            let found = found.remove(&at).unwrap_or(missing);
            refresh |= self.looked_up(&mut state, &at, lookup, found);
        }
        drop(state);
        shared.settled.notify_waiters();
        if refresh {
            shared.metadata.request_refresh(None);
        }
        Ok(())
    }

    /// Processes one looked-up offset. Returns whether the metadata may be stale.
    fn looked_up(
        &mut self,
        state: &mut State,
        at: &TopicPartition,
        lookup: LookUp,
        found: Found,
    ) -> bool {
        let Some(assigned) = state.partitions.get_mut(at) else { return false };
        if assigned.position.version() != lookup.version {
            return false;
        }
        match classify(found.error) {
            FetchVerdict::Good => {
                if assigned.position.on_lookup(lookup.version, found.offset) {
                    assigned.failures = 0;
                    assigned.retry_at = None;
                } else {
                    self.retry_later(assigned);
                }
                let need = need_of(state.partitions.get(at), self.node, Instant::now());
                self.fetcher.handle_assigned(at, need);
                false
            }
            FetchVerdict::Report | FetchVerdict::OutOfRange => {
                self.retry_later(assigned);
                state.fail(at, refused(at, found.error));
                state.touch(at);
                false
            }
            verdict => {
                self.shared.pause_after(found.error, assigned);
                state.touch(at);
                verdict != FetchVerdict::Retry
            }
        }
    }
}
