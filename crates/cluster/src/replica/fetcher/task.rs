//! A lane's task: one fetch at a time for the lane's lifetime.

use std::{collections::BTreeMap, io, sync::Arc, time::Duration};

use bytes::Bytes;
use curtail_net::Socket;
use curtail_wire::{
    Encoding, ErrorCode, Writer,
    api::ApiKey,
    fetch::{FetchPartitionResponse, FetchRequest, FetchResponse, IsolationLevel},
    frame::FrameSplitter,
    header::{RequestHeader, response_body},
};
use tokio::time::{Instant, sleep, timeout};

use super::{
    Followed, FollowerPosition, Lane, PartitionKey, delays::Delays, lane_session::LaneSession,
};
use crate::{
    broker::{Broker, Connection, connect, fill, write_all},
    faults::FETCHER_ID,
    log::AppendError,
};

/// The version of Fetch between brokers.
const VERSION: i16 = 17;
/// Timeout of a response, in addition to the leader's maximum wait (`replica.socket.timeout.ms`).
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// Shortest wait of a lane with nothing to fetch, because a backoff of 0 must not spin.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

/// Fetches from one leader until the lane ends.
pub(crate) async fn run(broker: Arc<Broker>, lane: Arc<Lane>) {
    let delays = Delays::default();
    let session = LaneSession::default();
    let mut task = Task { broker, lane: Arc::clone(&lane), delays, session };
    tokio::select! {
        biased;
        () = lane.ended.notified() => {}
        () = task.follow() => {}
    }
}

struct Task {
    broker: Arc<Broker>,
    lane: Arc<Lane>,
    delays: Delays,
    session: LaneSession,
}

/// The partitions and positions of one fetch.
type Asked = BTreeMap<PartitionKey, (Followed, FollowerPosition)>;

/// Why a partition's response was not applied, and the consequence for its next fetch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// Fetch again after `replica.fetch.backoff.ms`.
    Delay(String),
    /// Fetch again only when the metadata has another leader epoch.
    GiveUp(String),
}

impl Task {
    async fn follow(&mut self) {
        let mut connection = None;
        loop {
            let asked = self.collect();
            if asked.is_empty() {
                self.idle().await;
                continue;
            }
            match self.fetch(connection.take(), &asked).await {
                Ok(open) => connection = Some(open),
                Err(error) => {
                    let (broker, leader) = (self.broker.id, self.lane.leader);
                    tracing::debug!(broker, leader, %error, "fetching from the leader failed");
                    self.session.reconnected();
                    self.delay_all();
                }
            }
        }
    }

    /// Waits for partitions, or for one backoff if some are delayed. As in Kafka, the backoff may
    /// outlast the first delay.
    async fn idle(&self) {
        let backoff = self.broker.config.replica_fetch_backoff.max(SHORTEST_WAIT);
        let delayed = !self.lane.is_empty();
        tokio::select! {
            biased;
            () = self.lane.added.notified() => {}
            () = sleep(backoff), if delayed => {}
        }
    }

    /// Returns the partitions to fetch now, each with its position.
    fn collect(&mut self) -> Asked {
        let now = Instant::now();
        self.delays.expire(now);
        let followed = self.lane.followed.lock();
        followed
            .iter()
            .filter(|(key, followed)| !self.delays.has(**key, followed.leader_epoch, now))
            .filter_map(|(key, followed)| {
                let position = followed.partition.follower_position(followed.leader_epoch)?;
                Some((*key, (followed.clone(), position)))
            })
            .collect()
    }

    async fn fetch(&mut self, open: Option<Connection>, asked: &Asked) -> io::Result<Connection> {
        let request = self.request(asked);
        let mut connection = match open {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        connection.correlation_id += 1;
        let frame = encode(&request, connection.correlation_id);
        write_all(connection.socket.as_ref(), &mut vec![frame]).await?;
        let limit = RESPONSE_TIMEOUT + self.broker.config.replica_fetch_wait_max;
        let response = read_frame(connection.socket.as_ref(), &mut connection.frames);
        let response = timeout(limit, response).await??;
        let body = response_body(&response, ApiKey::FETCH, VERSION).map_err(io::Error::other)?;
        let response = FetchResponse::decode(VERSION, &body).map_err(io::Error::other)?;
        self.take_turn(&response).await;
        self.responded(asked, response)?;
        Ok(connection)
    }

    async fn connect(&self) -> io::Result<Connection> {
        let unknown = || io::Error::new(io::ErrorKind::NotFound, "the leader's address is unknown");
        let (addr, _) = self.lane.incarnation.ok_or_else(unknown)?;
        timeout(RESPONSE_TIMEOUT, connect(&self.broker, self.lane.leader, addr)).await?
    }

    fn request(&mut self, asked: &Asked) -> FetchRequest {
        let config = &self.broker.config;
        let positions = asked.iter().map(|(key, (_, position))| (*key, *position));
        let part = self.session.next(positions, config.replica_fetch_max_bytes);
        FetchRequest {
            replica_id: self.broker.id,
            replica_epoch: self.broker.epoch,
            max_wait_ms: config.replica_fetch_wait_max.as_millis() as i32,
            min_bytes: 1,
            max_bytes: config.replica_fetch_response_max_bytes,
            isolation_level: IsolationLevel::ReadUncommitted,
            session_id: part.session_id,
            session_epoch: part.session_epoch,
            topics: part.topics,
            forgotten: part.forgotten,
            rack_id: String::new(),
        }
    }

    /// Waits before the response is appended, on a disk that takes time.
    async fn take_turn(&self, response: &FetchResponse) {
        let partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
        let (appends, bytes) = partitions
            .filter(|partition| !partition.records.is_empty())
            .fold((0, 0), |(appends, bytes), partition| {
                (appends + 1, bytes + partition.records.len())
            });
        self.broker.disk_turn(appends, bytes).await;
    }

    fn responded(&mut self, asked: &Asked, response: FetchResponse) -> io::Result<()> {
        match response.error {
            ErrorCode::NONE => self.session.answered(response.session_id),
            ErrorCode::FETCH_SESSION_ID_NOT_FOUND | ErrorCode::INVALID_FETCH_SESSION_EPOCH => {
                self.session.lost();
                return Ok(());
            }
            ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR => {
                self.session.lost();
                self.delay_all();
                return Ok(());
            }
            error => return Err(io::Error::other(error.name())),
        }
        for topic in response.topics {
            for partition in topic.partitions {
                let key = PartitionKey { topic: topic.topic_id, index: partition.index };
                let Some((followed, position)) = asked.get(&key) else { continue };
                // A response for an earlier epoch does not apply to this one.
                if self.lane.leader_epoch(key) != Some(position.leader_epoch) {
                    continue;
                }
                if let Err(failure) = take(followed, *position, partition) {
                    self.failed(key, followed, failure);
                }
            }
        }
        Ok(())
    }

    fn failed(&mut self, key: PartitionKey, followed: &Followed, failure: Failure) {
        let (reason, retries) = match failure {
            Failure::Delay(reason) => {
                let backoff = self.broker.config.replica_fetch_backoff;
                self.delays.add(key, followed.leader_epoch, backoff, Instant::now());
                (reason, true)
            }
            Failure::GiveUp(reason) => {
                self.lane.give_up(key, followed.leader_epoch);
                (reason, false)
            }
        };
        tracing::debug!(
            broker = self.broker.id,
            leader = self.lane.leader,
            topic = %followed.partition.topic,
            partition = key.index,
            reason,
            retries,
            "fetch failed"
        );
    }

    fn delay_all(&mut self) {
        let backoff = self.broker.config.replica_fetch_backoff;
        let now = Instant::now();
        for (key, followed) in self.lane.followed.lock().iter() {
            self.delays.add(*key, followed.leader_epoch, backoff, now);
        }
    }
}

/// Applies the leader's response for one partition.
fn take(
    followed: &Followed,
    position: FollowerPosition,
    response: FetchPartitionResponse,
) -> Result<(), Failure> {
    let partition = &followed.partition;
    let epoch = position.leader_epoch;
    let start = response.log_start_offset;
    let taken = match response.error {
        ErrorCode::NONE => match response.diverging_epoch {
            Some(diverging) => partition.truncate_to_leader(epoch, diverging),
            None => partition.append_from_leader(
                epoch,
                position.fetch_offset,
                response.records,
                response.high_watermark,
                start,
            ),
        },
        ErrorCode::OFFSET_OUT_OF_RANGE if start > position.fetch_offset => {
            partition.restart_at(epoch, start)
        }
        error => return Err(refused(error)),
    };
    taken.map_err(not_taken)
}

/// Returns the consequence of the leader's refusal.
pub(super) fn refused(error: ErrorCode) -> Failure {
    let reason = error.name().to_owned();
    match error {
        // The leader is ahead: only newer metadata helps.
        ErrorCode::FENCED_LEADER_EPOCH => Failure::GiveUp(reason),
        _ => Failure::Delay(reason),
    }
}

/// Returns the consequence of a failure of this replica's log. Damage may come from the response;
/// any other failure persists.
pub(super) fn not_taken(error: AppendError) -> Failure {
    match error.code {
        ErrorCode::CORRUPT_MESSAGE | ErrorCode::INVALID_RECORD => Failure::Delay(error.message),
        _ => Failure::GiveUp(error.message),
    }
}

fn encode(request: &FetchRequest, correlation_id: i32) -> Bytes {
    let mut w = Writer::with_capacity(256);
    w.set_encoding(Encoding::Classic);
    w.i32(0);
    let client_id = Some(FETCHER_ID);
    RequestHeader { api: ApiKey::FETCH, version: VERSION, correlation_id, client_id }
        .encode(&mut w);
    request.encode(VERSION, &mut w);
    let mut frame = w.into_vec();
    let length = (frame.len() - 4) as u32;
    frame[..4].copy_from_slice(&length.to_be_bytes());
    frame.into()
}

async fn read_frame(socket: &dyn Socket, frames: &mut FrameSplitter) -> io::Result<Bytes> {
    loop {
        if let Some(frame) = frames.next_frame().map_err(io::Error::other)? {
            return Ok(frame);
        }
        if fill(socket, frames).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}
