//! Replication: for every leader it follows, a broker has one lane, a connection with a fetch session on it that
//! covers all partitions this leader leads.

mod lane_session;

use std::{collections::BTreeMap, io, sync::Arc, time::Duration};

use bytes::Bytes;
use curtail_net::{BoxFuture, Socket};
use curtail_wire::{
    Encoding, ErrorCode, Writer,
    api::ApiKey,
    fetch::{FetchPartitionResponse, FetchRequest, FetchResponse, IsolationLevel},
    frame::FrameSplitter,
    header::{RequestHeader, response_body},
};
use parking_lot::Mutex;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use super::partition::{FollowerPosition, Partition};
use crate::{
    broker::{Broker, Connection, connect, fill, write_all},
    image::{Image, NO_LEADER, PartitionImage, PartitionKey},
};
use lane_session::LaneSession;

/// The version of Fetch that brokers speak among themselves.
const VERSION: i16 = 17;
/// The first pause after a failure; it doubles up to `replica.fetch.backoff.ms`.
const FIRST_BACKOFF: Duration = Duration::from_millis(10);
/// How long an answer may take beyond the time the leader may wait (`replica.socket.timeout.ms`).
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// The lanes of one incarnation of a broker.
#[derive(Default)]
pub(crate) struct Fetchers(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    lanes: BTreeMap<i32, Arc<Lane>>,
    /// Lanes without a task yet.
    new: Vec<Arc<Lane>>,
    /// In which lane a partition is.
    leaders: BTreeMap<PartitionKey, i32>,
}

/// What is fetched from one leader.
pub(crate) struct Lane {
    leader: i32,
    followed: Mutex<BTreeMap<PartitionKey, Followed>>,
    /// Incarnation of the leader, as far as known.
    leader_incarnation: Mutex<i64>,
    /// Grows with every change of the above.
    changes: watch::Sender<u64>,
}

#[derive(Clone)]
struct Followed {
    partition: Arc<Partition>,
    leader_epoch: i32,
}

impl Lane {
    fn changed(&self) {
        self.changes.send_modify(|n| *n += 1);
    }
}

impl Fetchers {
    /// Follows a partition's leader from now on, or nobody if the replica leads or there is no leader.
    pub(crate) fn apply_partition(
        &self,
        me: i32,
        partition: &Arc<Partition>,
        image: &PartitionImage,
    ) {
        let key = partition.key;
        let leader = image.leader;
        let mut inner = self.0.lock();
        let before = inner.leaders.get(&key).copied();
        if before.is_some_and(|before| before != leader) {
            inner.leave(key);
        }
        if leader == me || leader == NO_LEADER {
            return;
        }
        inner.leaders.insert(key, leader);
        let lane = inner.lane(leader);
        let followed =
            Followed { partition: Arc::clone(partition), leader_epoch: image.leader_epoch };
        let old = lane.followed.lock().insert(key, followed);
        if old.is_none_or(|old| old.leader_epoch != image.leader_epoch) {
            lane.changed();
        }
    }

    /// Lets lanes to brokers that have come back try again at once.
    pub(crate) fn apply_brokers(&self, image: &Image) {
        for lane in self.0.lock().lanes.values() {
            let Some(broker) = image.brokers.get(&lane.leader) else { continue };
            let mut known = lane.leader_incarnation.lock();
            if *known != broker.epoch {
                *known = broker.epoch;
                lane.changed();
            }
        }
    }

    /// Stops following a partition.
    pub(crate) fn remove(&self, key: PartitionKey) {
        self.0.lock().leave(key);
    }

    /// Lanes that need a task.
    pub(crate) fn take_new(&self) -> Vec<Arc<Lane>> {
        std::mem::take(&mut self.0.lock().new)
    }
}

impl Inner {
    fn leave(&mut self, key: PartitionKey) {
        let Some(leader) = self.leaders.remove(&key) else { return };
        if let Some(lane) = self.lanes.get(&leader) {
            // No need to disturb a fetch under way: its answer for this partition will be ignored.
            lane.followed.lock().remove(&key);
        }
    }

    fn lane(&mut self, leader: i32) -> Arc<Lane> {
        if let Some(lane) = self.lanes.get(&leader) {
            return Arc::clone(lane);
        }
        let lane = Arc::new(Lane {
            leader,
            followed: Mutex::default(),
            leader_incarnation: Mutex::new(-1),
            changes: watch::Sender::new(0),
        });
        self.lanes.insert(leader, Arc::clone(&lane));
        self.new.push(Arc::clone(&lane));
        lane
    }
}

/// Fetches from one leader for as long as the broker lives.
pub(crate) async fn run(broker: Arc<Broker>, lane: Arc<Lane>) {
    let mut task = Task {
        changes: lane.changes.subscribe(),
        pauses: BTreeMap::new(),
        session: LaneSession::default(),
        backoff: Duration::ZERO,
        broker,
        lane,
    };
    loop {
        if task.lane.followed.lock().is_empty() {
            if task.changes.changed().await.is_err() {
                return;
            }
            continue;
        }
        match task.connection().await {
            Ok(()) => task.backoff = Duration::ZERO,
            Err(error) => {
                let (broker, leader) = (task.broker.id, task.lane.leader);
                tracing::debug!(broker, leader, %error, "fetching from the leader failed");
                task.backoff = next_backoff(task.backoff, task.broker.config.replica_fetch_backoff);
                let until = Instant::now() + task.backoff;
                tokio::select! {
                    biased;
                    _ = task.changes.changed() => {}
                    () = sleep_until(until) => {}
                }
            }
        }
    }
}

fn next_backoff(last: Duration, most: Duration) -> Duration {
    (last * 2).clamp(FIRST_BACKOFF.min(most), most)
}

struct Task {
    broker: Arc<Broker>,
    lane: Arc<Lane>,
    changes: watch::Receiver<u64>,
    /// Partitions that failed: until when they are left alone, and how long that was.
    pauses: BTreeMap<PartitionKey, (Instant, Duration)>,
    session: LaneSession,
    backoff: Duration,
}

/// What one fetch asked for.
type Asked = BTreeMap<PartitionKey, (Followed, FollowerPosition)>;

impl Task {
    /// Connects and fetches; returns when there is something to fetch that the fetch under way does not cover.
    /// A fetch waits at the leader, and answers come in order, so only another connection can be quicker.
    async fn connection(&mut self) -> io::Result<()> {
        let not_known =
            || io::Error::new(io::ErrorKind::NotFound, "the leader's address is not known");
        let addr = {
            let image = self.broker.image();
            let leader = image.brokers.get(&self.lane.leader).ok_or_else(not_known)?;
            leader.inner
        };
        let broker = Arc::clone(&self.broker);
        let connect = connect(&broker, addr);
        let Connection { socket, mut frames, mut correlation_id } = tokio::select! {
            biased;
            connected = tokio::time::timeout(ANSWER_TIMEOUT, connect) => connected??,
            // The leader may be another incarnation at another address.
            _ = self.changes.changed() => return Ok(()),
        };
        self.session.reconnected();
        loop {
            self.changes.borrow_and_update();
            let asked = self.collect();
            let now = Instant::now();
            // A pause that is over has its partition in this fetch already.
            let retry =
                self.pauses.values().map(|(until, _)| *until).filter(|until| *until > now).min();
            if asked.is_empty() {
                if self.lane.followed.lock().is_empty() {
                    return Ok(());
                }
                self.idle(retry).await;
                continue;
            }
            let request = self.request(&asked);
            correlation_id += 1;
            write_all(socket.as_ref(), &mut vec![encode(&request, correlation_id)]).await?;
            let deadline =
                Instant::now() + ANSWER_TIMEOUT + self.broker.config.replica_fetch_wait_max;
            let response = tokio::select! {
                biased;
                frame = read_frame(socket.as_ref(), &mut frames) => frame?,
                _ = self.changes.changed() => return Ok(()),
                () = sleep_until(retry.unwrap_or(deadline).min(deadline)) => {
                    return match retry {
                        Some(_) => Ok(()),
                        None => Err(io::ErrorKind::TimedOut.into()),
                    };
                }
            };
            let body =
                response_body(&response, ApiKey::FETCH, VERSION).map_err(io::Error::other)?;
            let response = FetchResponse::decode(VERSION, &body).map_err(io::Error::other)?;
            if let Some(turn) = self.turn(&response) {
                tokio::select! {
                    biased;
                    () = turn => {}
                    _ = self.changes.changed() => return Ok(()),
                }
            }
            self.answered(&asked, response)?;
            self.backoff = Duration::ZERO;
        }
    }

    async fn idle(&mut self, retry: Option<Instant>) {
        match retry {
            Some(until) => tokio::select! {
                biased;
                _ = self.changes.changed() => {}
                () = sleep_until(until) => {}
            },
            // The replicas here have taken on newer roles than the lane: a change is under way.
            None => {
                let _ = self.changes.changed().await;
            }
        }
    }

    /// The partitions to fetch now and where each goes on.
    fn collect(&mut self) -> Asked {
        let now = Instant::now();
        let followed = self.lane.followed.lock();
        let pauses = &mut self.pauses;
        pauses.retain(|key, _| followed.contains_key(key));
        let paused = |key: &PartitionKey| pauses.get(key).is_some_and(|(until, _)| *until > now);
        let asked = followed
            .iter()
            .filter(|(key, _)| !paused(key))
            .filter_map(|(key, followed)| {
                let position = followed.partition.follower_position(followed.leader_epoch)?;
                Some((*key, (followed.clone(), position)))
            })
            .collect();
        // A pause that is over stays known for its length until the partition answers well.
        asked
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

    /// What to wait for before the answer is appended, where the disk is one that plays its time.
    fn turn(&self, response: &FetchResponse) -> Option<BoxFuture<'static, ()>> {
        let answers = response.topics.iter().flat_map(|topic| &topic.partitions);
        let (appends, bytes) = answers
            .filter(|answer| !answer.records.is_empty())
            .fold((0, 0), |(appends, bytes), answer| (appends + 1, bytes + answer.records.len()));
        if appends == 0 { None } else { self.broker.disk.turn(appends, bytes) }
    }

    fn answered(&mut self, asked: &Asked, response: FetchResponse) -> io::Result<()> {
        match response.error {
            ErrorCode::NONE => self.session.answered(response.session_id),
            ErrorCode::FETCH_SESSION_ID_NOT_FOUND
            | ErrorCode::INVALID_FETCH_SESSION_EPOCH
            | ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR => {
                self.session.lost();
                return Ok(());
            }
            error => return Err(io::Error::other(error.name())),
        }
        for topic in response.topics {
            for answer in topic.partitions {
                let key = PartitionKey { topic: topic.topic_id, index: answer.index };
                let Some((followed, position)) = asked.get(&key) else { continue };
                match take(followed, *position, answer) {
                    Ok(()) => {
                        self.pauses.remove(&key);
                    }
                    Err(reason) => self.pause(key, &followed.partition, &reason),
                }
            }
        }
        Ok(())
    }

    fn pause(&mut self, key: PartitionKey, partition: &Partition, reason: &str) {
        let last = self.pauses.get(&key).map_or(Duration::ZERO, |(_, length)| *length);
        let length = next_backoff(last, self.broker.config.replica_fetch_backoff);
        tracing::debug!(
            broker = self.broker.id,
            leader = self.lane.leader,
            topic = %partition.topic,
            partition = key.index,
            reason,
            "fetch failed"
        );
        self.pauses.insert(key, (Instant::now() + length, length));
    }
}

/// Applies the leader's answer for one partition.
fn take(
    followed: &Followed,
    position: FollowerPosition,
    answer: FetchPartitionResponse,
) -> Result<(), String> {
    let partition = &followed.partition;
    let epoch = position.leader_epoch;
    if answer.error == ErrorCode::OFFSET_OUT_OF_RANGE
        && answer.log_start_offset > position.fetch_offset
    {
        return partition.restart_at(epoch, answer.log_start_offset).map_err(|error| error.message);
    }
    if answer.error.is_error() {
        return Err(answer.error.name().to_owned());
    }
    let done = match answer.diverging_epoch {
        Some(diverging) => partition.truncate_to_leader(epoch, diverging),
        None => partition.append_from_leader(
            epoch,
            position.fetch_offset,
            answer.records,
            answer.high_watermark,
            answer.log_start_offset,
        ),
    };
    done.map_err(|error| error.message)
}

fn encode(request: &FetchRequest, correlation_id: i32) -> Bytes {
    let mut w = Writer::with_capacity(256);
    w.set_encoding(Encoding::Classic);
    w.i32(0);
    let client_id = Some("replica-fetcher");
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
