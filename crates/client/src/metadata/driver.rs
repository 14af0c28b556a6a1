//! The task that keeps the snapshot fresh.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use curtail_proto::backoff::Backoff;
use curtail_wire::{
    ApiKey,
    metadata::{self, MetadataRequest, MetadataRequestTopic, MetadataResponse},
};
use tokio::time::{Instant, sleep_until, timeout};

use super::{AutoCreate, Shared};
use crate::{Error, Result, conn::Connection};

/// Refreshes when asked, and when the picture is older than `metadata.max.age.ms`. A first request is answered at
/// once; only repetitions wait, so that a cluster in trouble is not asked in a storm.
pub(super) async fn run(shared: Arc<Shared>) {
    let backoff =
        Backoff { initial: shared.common.retry_backoff, max: shared.common.retry_backoff_max };
    let mut connection = None;
    let mut failures = 0;
    loop {
        let pause = backoff.after(failures, shared.env.entropy.unit());
        wait_for_work(&shared, Instant::now() + pause, failures > 0).await;
        let (asked, avoid) = take_wanted(&shared);
        if connection.as_ref().is_some_and(|open| is_avoided(&shared, open, &avoid)) {
            connection = None;
        }
        // A broker that hangs must not keep the others' answers from us: the first tries are short.
        let common = &shared.common;
        let patience = common.retry_backoff_max.saturating_mul(1 << failures.min(16));
        let patience = patience.min(common.request_timeout);
        let exchange = refresh(&shared, &mut connection, &asked, &avoid);
        let refreshed = match timeout(patience, exchange).await {
            Ok(refreshed) => refreshed,
            Err(_) => Err(late(&shared, patience)),
        };
        match refreshed {
            Ok(settled) => failures = if settled { 0 } else { failures + 1 },
            Err(error) => {
                tracing::debug!(%error, "metadata refresh failed");
                connection = None;
                failures += 1;
                shared.failed(error);
            }
        }
    }
}

fn late(shared: &Shared, patience: Duration) -> Error {
    Error::Unreachable {
        bootstrap: shared.bootstrap.clone(),
        reason: format!("no metadata within {patience:?}").into(),
    }
}

/// After a failure the next try needs no request; otherwise somebody asks, or the picture grows old.
async fn wait_for_work(shared: &Shared, not_before: Instant, again: bool) {
    sleep_until(not_before).await;
    if again {
        return;
    }
    let too_old = Instant::now() + shared.common.metadata_max_age;
    loop {
        if shared.wanted.lock().refresh {
            return;
        }
        tokio::select! {
            biased;
            () = shared.wake.notified() => {}
            () = sleep_until(too_old) => return,
        }
    }
}

fn take_wanted(shared: &Shared) -> (Vec<Arc<str>>, BTreeSet<i32>) {
    let mut wanted = shared.wanted.lock();
    wanted.refresh = false;
    (wanted.topics.keys().cloned().collect(), std::mem::take(&mut wanted.avoid))
}

/// Whether the connection leads to a broker that is not to be asked.
fn is_avoided(shared: &Shared, open: &Connection, avoid: &BTreeSet<i32>) -> bool {
    let snapshot = shared.snapshot.load();
    let mut nodes = avoid.iter().filter_map(|id| snapshot.node(*id));
    nodes.any(|node| **open.peer() == format!("{}:{}", node.host, node.port))
}

/// One exchange. Whether every topic asked for is there and has its leaders.
async fn refresh(
    shared: &Shared,
    connection: &mut Option<Connection>,
    asked: &[Arc<str>],
    avoid: &BTreeSet<i32>,
) -> Result<bool> {
    let open = match connection {
        Some(open) => open,
        None => connection.insert(shared.connect_any(avoid).await?),
    };
    let request = MetadataRequest {
        topics: Some(
            asked
                .iter()
                .map(|name| MetadataRequestTopic {
                    name: Some(name.to_string()),
                    ..Default::default()
                })
                .collect(),
        ),
        allow_auto_topic_creation: shared.auto_create == AutoCreate::Allowed,
        ..Default::default()
    };
    let (version, body) = open
        .request_hot(ApiKey::METADATA, metadata::VERSIONS, |version, w| request.encode(version, w))
        .await?;
    let answer = MetadataResponse::decode(version, &body).map_err(|e| open.protocol_error(e))?;
    let changes = shared.apply(&answer, asked);
    Ok(changes.errors.is_empty() && changes.leaderless.is_empty())
}
