//! Lookups of coordinators of groups and transactions, and detection of their successors.

use std::collections::BTreeMap;

use curtail_proto::{metadata::Node, path::policy::LEAST_SUCCESSION};
use curtail_wire::{
    ApiKey, ErrorCode,
    cold::{StrBytes, messages},
};
use tokio::time::{sleep, timeout};

use crate::{Error, Result, config::CommonConfig, conn::Connection, metadata::MetadataHandle};

/// A key with a coordinator.
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
    let (kind, key) = match what {
        Coordinated::Group(id) => (Coordinators::OfGroups, id),
        Coordinated::Transactions(id) => (Coordinators::OfTransactions, id),
    };
    ask_one(connection, kind, key).await
}

/// Types of keys with coordinators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coordinators {
    /// Groups, by `group.id`.
    OfGroups,
    /// Transactions, by `transactional.id`.
    OfTransactions,
}

impl Coordinators {
    fn key_type(self) -> i8 {
        match self {
            Self::OfGroups => 0,
            Self::OfTransactions => 1,
        }
    }

    #[cfg_attr(not(feature = "admin"), expect(dead_code))]
    /// Describes a key, for errors.
    pub(crate) fn name(self, id: &str) -> String {
        match self {
            Self::OfGroups => format!("group '{id}'"),
            Self::OfTransactions => format!("transactional id '{id}'"),
        }
    }
}

/// First version that names several keys in one request.
const BATCHED: i16 = 4;

#[cfg_attr(not(feature = "admin"), expect(dead_code))]
/// Returns the coordinator of each key, in the order of the keys. Sends one request if the broker accepts several
/// keys.
pub(crate) async fn ask_each(
    connection: &mut Connection,
    kind: Coordinators,
    keys: &[&str],
) -> Result<Vec<Result<Node, ErrorCode>>> {
    if connection.negotiate(ApiKey::FIND_COORDINATOR, BATCHED..=5).is_err() {
        let mut found = Vec::with_capacity(keys.len());
        for key in keys {
            found.push(ask_one(connection, kind, key).await?);
        }
        return Ok(found);
    }
    let request = messages::FindCoordinatorRequest::default()
        .with_key_type(kind.key_type())
        .with_coordinator_keys(
            keys.iter().map(|key| StrBytes::from_string((*key).to_owned())).collect(),
        );
    let answer: messages::FindCoordinatorResponse =
        connection.request(BATCHED..=5, |_| request).await?;
    let mut by_key = BTreeMap::new();
    for found in answer.coordinators {
        let node =
            node(connection, found.error_code, found.node_id.0, found.host.as_str(), found.port)?;
        by_key.insert(found.key.as_str().to_owned(), node);
    }
    let missing = Err(ErrorCode::COORDINATOR_NOT_AVAILABLE);
    Ok(keys.iter().map(|key| by_key.get(*key).cloned().unwrap_or(missing.clone())).collect())
}

async fn ask_one(
    connection: &mut Connection,
    kind: Coordinators,
    key: &str,
) -> Result<Result<Node, ErrorCode>> {
    let key = StrBytes::from_string(key.to_owned());
    let answer: messages::FindCoordinatorResponse = connection
        .request(1..=5, |version| {
            let request =
                messages::FindCoordinatorRequest::default().with_key_type(kind.key_type());
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
    node(connection, code, id, host.as_str(), port)
}

fn node(
    connection: &Connection,
    code: i16,
    id: i32,
    host: &str,
    port: i32,
) -> Result<Result<Node, ErrorCode>> {
    if ErrorCode(code).is_error() {
        return Ok(Err(ErrorCode(code)));
    }
    match u16::try_from(port) {
        Ok(port) => Ok(Ok(Node { id, host: host.to_owned(), port, rack: None })),
        Err(_) => Err(connection.protocol_error(format!("a coordinator at port {port}"))),
    }
}

/// Resolves with another broker once that one is the coordinator. The first lookup waits for
/// `retry.backoff.max.ms`, at least 100 ms. An unresponsive coordinator has a successor long before
/// `request.timeout.ms`.
pub(crate) async fn successor(
    metadata: &MetadataHandle,
    common: &CommonConfig,
    what: Coordinated<'_>,
    of: i32,
) -> Node {
    let mut patience = common.retry_backoff_max.max(LEAST_SUCCESSION);
    loop {
        sleep(patience).await;
        patience = patience.saturating_mul(2).min(common.request_timeout);
        if let Ok(Ok(Ok(found))) = timeout(patience, find(metadata, common, what)).await
            && found.id != of
        {
            return found;
        }
    }
}
