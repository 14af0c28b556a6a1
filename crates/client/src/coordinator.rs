//! Coordinators of groups and transactions: who it is, and whether it still is.

use std::time::Duration;

use curtail_proto::metadata::Node;
use curtail_wire::{
    ErrorCode,
    cold::{StrBytes, messages},
};
use tokio::time::{sleep, timeout};

use crate::{CommonConfig, Error, Result, conn::Connection, metadata::MetadataHandle};

/// What is coordinated.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Coordinated<'a> {
    /// The group with this `group.id`.
    Group(&'a str),
    /// The transactions with this `transactional.id`.
    Transactions(&'a str),
}

/// Asks any broker for the coordinator, within `request.timeout.ms`.
pub(crate) async fn find(
    metadata: &MetadataHandle,
    common: &CommonConfig,
    what: Coordinated<'_>,
) -> Result<Result<Node, ErrorCode>> {
    let limit = common.request_timeout;
    let asked = async { ask(&mut metadata.connect_any().await?, what).await };
    timeout(limit, asked).await.unwrap_or(Err(Error::Timeout {
        what: "FindCoordinator",
        limit,
        last: None,
    }))
}

async fn ask(
    connection: &mut Connection,
    what: Coordinated<'_>,
) -> Result<Result<Node, ErrorCode>> {
    /// The first version that names several keys in one request.
    const BATCHED: i16 = 4;
    let (key, key_type) = match what {
        Coordinated::Group(id) => (id, 0),
        Coordinated::Transactions(id) => (id, 1),
    };
    let key = StrBytes::from_string(key.to_owned());
    let answer: messages::FindCoordinatorResponse = connection
        .request(1..=5, |version| {
            let request = messages::FindCoordinatorRequest::default().with_key_type(key_type);
            if version >= BATCHED {
                request.with_coordinator_keys(vec![key])
            } else {
                request.with_key(key)
            }
        })
        .await?;
    let (code, id, host, port) = match answer.coordinators.into_iter().next() {
        Some(found) => (found.error_code, found.node_id.0, found.host, found.port),
        None => (answer.error_code, answer.node_id.0, answer.host, answer.port),
    };
    if ErrorCode(code).is_error() {
        return Ok(Err(ErrorCode(code)));
    }
    let Ok(port) = u16::try_from(port) else {
        return Err(connection.protocol_error(format!("a coordinator at port {port}")));
    };
    Ok(Ok(Node { id, host: host.as_str().to_owned(), port, rack: None }))
}

/// Resolves once another broker is the coordinator, with its id; never before there is reason to ask. A coordinator that
/// hangs has a successor long before `request.timeout.ms` is over.
pub(crate) async fn successor(
    metadata: &MetadataHandle,
    common: &CommonConfig,
    what: Coordinated<'_>,
    of: i32,
) -> i32 {
    let mut patience = common.retry_backoff_max.max(Duration::from_millis(100));
    loop {
        sleep(patience).await;
        patience = (patience * 2).min(common.request_timeout);
        if let Ok(Ok(Ok(found))) = timeout(patience, find(metadata, common, what)).await
            && found.id != of
        {
            return found.id;
        }
    }
}
