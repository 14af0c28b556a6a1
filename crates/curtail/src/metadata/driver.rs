//! The task that keeps the snapshot fresh.

use std::{
    collections::BTreeSet,
    pin::pin,
    sync::{Arc, atomic::Ordering::Release},
    time::{Duration, Instant as StdInstant},
};

use curtail_proto::{
    backoff::Backoff,
    metadata::{
        recovery::{Recovery, Source},
        refresh::Cause,
    },
    path::{Path, Suspicion, policy},
};
use curtail_wire::{
    ApiKey, ErrorCode,
    metadata::{self, MetadataRequest, MetadataRequestTopic, MetadataResponse},
};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{AutoCreate, ControlConnection, EndGuard, Shared, control::takes_metrics, dial, trace};
use crate::{
    Error, Result,
    conn::{Connection, Idle, connection_error},
};

/// Requests due topics, one group after the other; see [`curtail_proto::metadata::refresh`].
pub(super) async fn run(guard: EndGuard, open: Arc<Idle<()>>) {
    let shared = &guard.shared;
    let common = &shared.common;
    let backoff = Backoff { initial: common.retry_backoff, max: common.retry_backoff_max };
    let recovery = Recovery::new(common.metadata_recovery, common.metadata_rebootstrap_trigger);
    let mut control = Control {
        open,
        path: Path::of_exchanges(Suspicion::of_metadata()),
        recovery,
        takes_metrics: false,
    };
    let mut failures = 0;
    loop {
        let group = next_group(shared).await;
        let answer = control.ask(shared, &group, failures).await;
        shared.is_refreshing.store(false, Release);
        match answer {
            Ok(answer) => {
                failures = 0;
                shared.settle(&answer, &group);
                if let Some(telemetry) = shared.telemetry.get().filter(|_| control.takes_metrics) {
                    telemetry.start(&ControlConnection::new(shared));
                }
            }
            Err(error) => {
                tracing::debug!(error = %error.report(), "metadata refresh failed");
                failures += 1;
                shared.failed(&group, error);
                sleep(backoff.after(failures, shared.env.entropy.unit())).await;
            }
        }
    }
}

/// Waits until a refresh is due. Expires unused topics and frees unread snapshots.
async fn next_group(shared: &Shared) -> Vec<Arc<str>> {
    loop {
        shared.tidy();
        let now = Instant::now();
        let due = shared.wanted.lock().refresh.next_due(now.into_std());
        match due.map(Instant::from_std) {
            Some(due) if due <= now => {
                // Before the group is taken, and so no longer due: until then others do not take the connection.
                shared.is_refreshing.store(true, Release);
                if let Some(group) = take_group(shared, now.into_std()) {
                    return group;
                }
                shared.is_refreshing.store(false, Release);
                shared.version.send_modify(|v| *v += 1);
            }
            Some(due) => tokio::select! {
                biased;
                () = shared.wake.notified() => {}
                () = sleep_until(due) => {}
            },
            None => shared.wake.notified().await,
        }
    }
}

fn take_group(shared: &Shared, now: StdInstant) -> Option<Vec<Arc<str>>> {
    // Listeners are called without the lock: they lock their own state, under which refreshes are requested.
    let unwanted = shared.wanted.lock().refresh.unwanted(now);
    let in_use: BTreeSet<Arc<str>> =
        unwanted.into_iter().filter(|topic| shared.is_used(topic)).collect();
    let snapshot = shared.snapshot.load_full();
    let partitions = |name: &str| snapshot.topic(name).map_or(1, |topic| topic.leaders.len());
    let (group, expired) = shared.wanted.lock().refresh.take(now, &in_use, partitions);
    drop(snapshot);
    if !expired.is_empty() {
        shared.forget(&expired);
    }
    group
}

/// The control connection, and the model of its brokers, whichever they are.
struct Control {
    open: Arc<Idle<()>>,
    path: Path,
    recovery: Recovery,
    /// Whether the broker of the last response takes metrics of clients (KIP-714).
    takes_metrics: bool,
}

/// A response, and the connection that it came on.
struct Answered {
    connection: Connection,
    answer: MetadataResponse,
    took: Duration,
}

/// One refresh: its request and its brokers.
struct Ask<'a> {
    shared: &'a Shared,
    request: MetadataRequest,
    source: Source,
    /// Addresses of suspect brokers.
    avoid: BTreeSet<String>,
    /// Address of the broker to ask first.
    informed: Option<String>,
}

impl Control {
    async fn ask(
        &mut self,
        shared: &Shared,
        group: &[Arc<str>],
        failures: u32,
    ) -> Result<MetadataResponse> {
        let known = shared.snapshot.load().nodes().next().is_some();
        let source = self.recovery.source(known, Instant::now().into_std());
        let (avoid, informed) = (shared.take_avoided(), shared.take_informed());
        let ask = Ask { shared, request: request_for(shared, group), source, avoid, informed };
        let rebootstraps = known && source == Source::Bootstrap;
        let open = self.open.take(&()).filter(|open| !rebootstraps && ask.may_go_to(open.peer()));
        let common = &shared.common;
        let patience = policy::attempt(common.retry_backoff_max, failures, common.request_timeout);
        let late = self.path.limit().unwrap_or(patience);
        let outcome = match timeout(patience, ask.hedged(open, late)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(shared.unreachable(Some(Error::Timeout {
                what: "the brokers' metadata",
                limit: patience,
                last: None,
            }))),
        };
        let now = Instant::now().into_std();
        match outcome {
            Ok(answered) => {
                trace::answered(answered.connection.peer(), answered.took);
                self.recovery.answered();
                self.path.exchanged(answered.took.min(patience), Duration::ZERO);
                self.takes_metrics = takes_metrics(&answered.connection);
                self.open.put((), answered.connection);
                if rebootstraps {
                    shared.wanted.lock().refresh.want_all(Cause::Topic, now);
                }
                Ok(answered.answer)
            }
            Err(error) => {
                self.recovery.failed(now);
                if let Error::Broker { code: ErrorCode::REBOOTSTRAP_REQUIRED, .. } = error {
                    self.recovery.demand();
                }
                Err(error)
            }
        }
    }
}

impl Ask<'_> {
    /// Asks one broker, and a second one if the first fails or is late. One hedge per request: a slow cluster
    /// receives at most twice as many requests.
    async fn hedged(&self, open: Option<Connection>, late: Duration) -> Result<Answered> {
        let asked = Mutex::new(open.as_ref().map(|open| open.peer().to_string()));
        let mut first = pin!(self.exchange(open, self.candidates(None), &asked));
        let failed = tokio::select! {
            biased;
            answered = &mut first => match answered {
                Ok(answered) => return Ok(answered),
                Err(error) => Some(error),
            },
            () = self.late(&asked, late) => None,
        };
        let at = asked.lock().clone();
        let others = self.candidates(at.as_deref());
        let unused = Mutex::default();
        let Some(error) = failed else {
            if others.is_empty() {
                return first.await;
            }
            tracing::debug!(late = at, "hedging a metadata request");
            let mut second = pin!(self.exchange(None, others, &unused));
            return tokio::select! {
                biased;
                answered = &mut first => match answered {
                    Ok(answered) => Ok(answered),
                    Err(error) => second.await.map_err(|_| error),
                },
                answered = &mut second => match answered {
                    Ok(answered) => Ok(answered),
                    Err(_) => first.await,
                },
            };
        };
        // The broker may have closed the kept connection as idle: then the same broker is as good as any.
        let others = if others.is_empty() { self.candidates(None) } else { others };
        self.exchange(None, others, &unused).await.map_err(|_| error)
    }

    /// Whether a connection to this broker is acceptable.
    fn may_go_to(&self, peer: &str) -> bool {
        !self.avoid.contains(peer) && self.informed.as_deref().is_none_or(|address| address == peer)
    }

    /// Brokers to ask, in order, without `except`.
    fn candidates(&self, except: Option<&str>) -> Vec<(String, u16)> {
        let mut all = self.shared.candidates(self.source);
        // A suspect broker is better than none.
        all.sort_by_cached_key(|(host, port)| {
            let address = format!("{host}:{port}");
            (self.avoid.contains(&address), self.informed.as_ref() != Some(&address))
        });
        all.retain(|(host, port)| except != Some(&format!("{host}:{port}")));
        all
    }

    /// Resolves when the response is late, or its broker has become suspect.
    async fn late(&self, asked: &Mutex<Option<String>>, late: Duration) {
        let mut timer = pin!(sleep(late));
        loop {
            tokio::select! {
                biased;
                () = self.shared.suspected.notified() => {
                    let suspects = self.shared.suspects();
                    if asked.lock().as_ref().is_some_and(|peer| suspects.contains(peer)) {
                        return;
                    }
                }
                () = &mut timer => return,
            }
        }
    }

    /// Performs one exchange, on `open` or with the first of `candidates` that accepts a connection. Stores the
    /// broker's address in `asked`.
    async fn exchange(
        &self,
        open: Option<Connection>,
        candidates: Vec<(String, u16)>,
        asked: &Mutex<Option<String>>,
    ) -> Result<Answered> {
        let mut connection = match open {
            Some(open) => open,
            None => {
                let trying = |peer: String| *asked.lock() = Some(peer);
                dial(self.shared, candidates, trying).await?
            }
        };
        let started = Instant::now();
        let encode = |version, w: &mut _| self.request.encode(version, w);
        let (version, body) =
            connection.request_hot(ApiKey::METADATA, metadata::VERSIONS, encode).await?;
        let took = started.elapsed();
        let answer =
            MetadataResponse::decode(version, &body).map_err(|e| connection.protocol_error(e))?;
        match answer.error {
            ErrorCode::NONE => {}
            code => {
                let what = format!("metadata from {}", connection.peer()).into();
                return Err(Error::Broker { what, code, message: None });
            }
        }
        if answer.brokers.is_empty() && self.shared.snapshot.load().nodes().next().is_some() {
            // The broker has just started, and would report every topic as unknown.
            return Err(connection_error(connection.peer(), "the broker is still starting"));
        }
        Ok(Answered { connection, answer, took })
    }
}

fn request_for(shared: &Shared, group: &[Arc<str>]) -> MetadataRequest {
    let topic = |name: &Arc<str>| MetadataRequestTopic {
        name: Some(name.to_string()),
        ..MetadataRequestTopic::default()
    };
    MetadataRequest {
        topics: Some(group.iter().map(topic).collect()),
        allow_auto_topic_creation: shared.auto_create == AutoCreate::Allowed,
        ..MetadataRequest::default()
    }
}
