//! The reader's side of an incremental fetch session (KIP-227).
//!
//! A broker remembers the partitions of a session and where each is read next, so a request names only what has
//! changed. A partition stays in the session for as long as it is wanted: that its records wait in a buffer is no
//! reason to drop it and add it back (KAFKA-17182), because every such change makes the session look busy and keeps
//! the broker from serving it from what it knows.
//!
//! Order of calls: [`FetchSession::want`] and [`FetchSession::unwant`] at any time;
//! [`FetchSession::next_request`] when nothing is in flight; then exactly one of [`FetchSession::on_answer`],
//! [`FetchSession::on_abandoned`] and [`FetchSession::on_lost`]. The cost of a request is that of what changed, not of what is in the session.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use curtail_wire::{
    ErrorCode, Uuid,
    fetch::{FetchPartition, FetchTopic, ForgottenTopic},
};

use crate::plant::{Plant, planted};

#[cfg(test)]
mod tests;

/// Epoch of a request that opens a session.
const OPENING: i32 = 0;
/// Epoch of a request that ends a session, or has none.
const CLOSING: i32 = -1;

/// How the requests name topics. A session never mixes both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// By name: Fetch before version 13.
    Names,
    /// By topic id: Fetch from version 13 on.
    Ids,
}

/// A partition in a session. Two topics of the same name and different ids are different here where requests name
/// ids.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionPartition {
    /// Topic name.
    pub topic: Arc<str>,
    /// Topic id; zero where the broker has none.
    pub topic_id: Uuid,
    /// Partition index.
    pub partition: i32,
}

/// How a partition is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// First offset wanted.
    pub fetch_offset: i64,
    /// The leader epoch the reader knows, -1 for none.
    pub current_leader_epoch: i32,
    /// Epoch of the last record read, -1 for none.
    pub last_fetched_epoch: i32,
    /// Bytes of this partition in one answer.
    pub max_bytes: i32,
}

/// The parts of a Fetch request that concern the session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionRequest {
    /// Session id, 0 for none.
    pub session_id: i32,
    /// Epoch of the request in its session.
    pub session_epoch: i32,
    /// Partitions to add and to change, or all of them when the request opens a session.
    pub topics: Vec<FetchTopic>,
    /// Partitions to drop.
    pub forgotten: Vec<ForgottenTopic>,
}

/// What an answer means for the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The answer holds the partitions' results.
    Results,
    /// The broker has lost or refused the session and fetched nothing. The next request names everything; it may
    /// be sent at once.
    StartedOver,
    /// The broker refused the request for a reason of its own; the next request names everything, after a pause.
    Refused(ErrorCode),
}

/// What a partition's entry knows: wanted by the reader, held by the broker's session.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// The id of the topic, which the key has only where requests name ids.
    topic_id: Uuid,
    wanted: Option<Params>,
    held: Option<Params>,
}

/// Where the session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The next request names every partition and asks for a session. The id of an older session, if there is
    /// one, lets the broker free its slot. `refused` says that the broker had no slot when last asked.
    Opening { old_id: i32, refused: bool },
    /// The next request has this epoch and names changes.
    Open { id: i32, epoch: i32 },
}

/// The session with one broker.
#[derive(Clone, Debug)]
pub struct FetchSession {
    naming: Naming,
    entries: BTreeMap<SessionPartition, Entry>,
    /// Keys of entries whose wanted and held parts differ.
    dirty: BTreeSet<SessionPartition>,
    wanted: usize,
    state: State,
    /// Counts requests without a session.
    turns: usize,
}

impl FetchSession {
    /// A session that holds nothing yet.
    pub fn new(naming: Naming) -> Self {
        Self {
            naming,
            entries: BTreeMap::new(),
            dirty: BTreeSet::new(),
            wanted: 0,
            state: State::Opening { old_id: 0, refused: false },
            turns: 0,
        }
    }

    /// How requests name topics.
    pub fn naming(&self) -> Naming {
        self.naming
    }

    /// Changes how requests name topics, after a connection to a broker of another version. The session starts
    /// over if this is a change.
    pub fn set_naming(&mut self, naming: Naming) {
        if self.naming == naming {
            return;
        }
        let wanted: Vec<_> = std::mem::take(&mut self.entries)
            .into_iter()
            .filter_map(|(key, entry)| {
                let key = SessionPartition { topic_id: entry.topic_id, ..key };
                Some((key, entry.wanted?))
            })
            .collect();
        self.dirty.clear();
        self.wanted = 0;
        self.naming = naming;
        self.start_over();
        for (key, params) in wanted {
            self.want(key, params);
        }
    }

    /// Wants a partition read like this from the next request on: adds or changes it.
    pub fn want(&mut self, key: SessionPartition, params: Params) {
        let topic_id = key.topic_id;
        let key = self.normal(key);
        let entry = self.entries.entry(key.clone()).or_default();
        entry.topic_id = topic_id;
        if entry.wanted.replace(params).is_none() {
            self.wanted += 1;
        }
        if entry.held == Some(params) {
            self.dirty.remove(&key);
        } else {
            self.dirty.insert(key);
        }
    }

    /// No longer wants a partition.
    pub fn unwant(&mut self, key: &SessionPartition) {
        let key = self.normal(key.clone());
        let Some(entry) = self.entries.get_mut(&key) else { return };
        if entry.wanted.take().is_some() {
            self.wanted -= 1;
        }
        if entry.held.is_none() {
            self.entries.remove(&key);
            self.dirty.remove(&key);
        } else {
            self.dirty.insert(key);
        }
    }

    /// Partitions wanted.
    pub fn len(&self) -> usize {
        self.wanted
    }

    /// Whether no partition is wanted.
    pub fn is_empty(&self) -> bool {
        self.wanted == 0
    }

    /// Whether the next request differs from the last one.
    pub fn has_changes(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// The next request. What it names counts as held by the broker until the answer says otherwise.
    pub fn next_request(&mut self) -> SessionRequest {
        match self.state {
            State::Opening { old_id, .. } => self.opening_request(old_id),
            State::Open { id, epoch } => self.incremental_request(id, epoch),
        }
    }

    fn opening_request(&mut self, old_id: i32) -> SessionRequest {
        self.dirty.clear();
        self.entries.retain(|_, entry| {
            entry.held = entry.wanted;
            entry.wanted.is_some()
        });
        // A broker fills its answer in the order of the request, up to the limit. In a session it takes turns
        // itself; without one each partition comes first in its turn.
        let first = match self.state {
            State::Opening { refused: true, .. } => self.turns % self.entries.len().max(1),
            _ => 0,
        };
        self.turns = self.turns.wrapping_add(1);
        let mut topics = TopicList::new(self.naming);
        let in_turn = self.entries.iter().skip(first).chain(self.entries.iter().take(first));
        for (key, params) in in_turn.filter_map(|(key, entry)| Some((key, entry.wanted?))) {
            topics.push(key, params);
        }
        SessionRequest {
            session_id: old_id,
            session_epoch: OPENING,
            topics: topics.list,
            forgotten: Vec::new(),
        }
    }

    fn incremental_request(&mut self, id: i32, epoch: i32) -> SessionRequest {
        let mut topics = TopicList::new(self.naming);
        let mut forgotten = ForgottenList::new(self.naming);
        for key in std::mem::take(&mut self.dirty) {
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            entry.held = entry.wanted;
            match entry.wanted {
                Some(params) => topics.push(&key, params),
                None => {
                    forgotten.push(&key);
                    self.entries.remove(&key);
                }
            }
        }
        SessionRequest {
            session_id: id,
            session_epoch: epoch,
            topics: topics.list,
            forgotten: forgotten.list,
        }
    }

    /// Takes an answer in: its error, its session id, and how many partitions it has results of.
    pub fn on_answer(&mut self, error: ErrorCode, session_id: i32, results: usize) -> Outcome {
        if error.is_error() && planted(Plant::SessionKept) {
            return Outcome::StartedOver;
        }
        match error {
            ErrorCode::NONE => {}
            // Only a session can be lost: a broker that says so of a request that opens one would say it again.
            ErrorCode::FETCH_SESSION_ID_NOT_FOUND if matches!(self.state, State::Open { .. }) => {
                // Evicted: there is no slot to free.
                self.state = State::Opening { old_id: 0, refused: false };
                self.forget_held();
                return Outcome::StartedOver;
            }
            ErrorCode::INVALID_FETCH_SESSION_EPOCH | ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR
                if matches!(self.state, State::Open { .. }) =>
            {
                self.start_over();
                return Outcome::StartedOver;
            }
            other => {
                self.start_over();
                return Outcome::Refused(other);
            }
        }
        self.state = match self.state {
            State::Opening { .. } if session_id > 0 => State::Open { id: session_id, epoch: 1 },
            // No slot free: every request names everything and asks again.
            State::Opening { .. } => State::Opening { old_id: 0, refused: true },
            State::Open { id, epoch } => State::Open { id, epoch: next_epoch(epoch) },
        };
        match self.state {
            State::Opening { .. } => self.forget_held(),
            // A session that misses a partition would never answer for it.
            State::Open { epoch: 1, .. } if results < self.held() => self.start_over(),
            State::Open { .. } => {}
        }
        Outcome::Results
    }

    /// The request has been sent and its answer will not be read. A session does not belong to a connection: it
    /// goes on with the next request, on whichever connection, as if the answer had brought nothing. Should the
    /// broker not have seen the request, it says so and the session starts over.
    pub fn on_abandoned(&mut self) {
        match self.state {
            State::Open { id, epoch } => self.state = State::Open { id, epoch: next_epoch(epoch) },
            State::Opening { .. } => self.start_over(),
        }
    }

    /// The connection was lost: whether the broker has seen the request is unknown, and so is whether it is still
    /// the same broker. The next request names everything and frees the slot of the session.
    pub fn on_lost(&mut self) {
        if planted(Plant::SessionKept) {
            return;
        }
        self.start_over();
    }

    /// Whether the next request opens a session that the broker may well grant. Such a request had better not
    /// wait for records: if it were abandoned, nobody would know the session that it opened.
    pub fn is_opening(&self) -> bool {
        matches!(self.state, State::Opening { refused: false, .. })
    }

    /// Whether the broker keeps a session for this reader, as far as is known.
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Open { .. })
    }

    /// A request that has nothing to do with the session and leaves it as it is.
    pub fn request_without_session(
        &self,
        partitions: impl IntoIterator<Item = (SessionPartition, Params)>,
    ) -> SessionRequest {
        let mut topics = TopicList::new(self.naming);
        for (key, params) in partitions {
            topics.push(&self.normal(key), params);
        }
        SessionRequest { session_epoch: CLOSING, topics: topics.list, ..Default::default() }
    }

    /// The request that ends the session, `None` when there is none.
    pub fn close_request(&self) -> Option<SessionRequest> {
        let id = match self.state {
            State::Open { id, .. } | State::Opening { old_id: id, .. } if id != 0 => id,
            _ => return None,
        };
        Some(SessionRequest { session_id: id, session_epoch: CLOSING, ..Default::default() })
    }

    fn start_over(&mut self) {
        let (old_id, refused) = match self.state {
            State::Opening { old_id, refused } => (old_id, refused),
            State::Open { id, .. } => (id, false),
        };
        self.state = State::Opening { old_id, refused };
        self.forget_held();
    }

    /// The broker holds nothing, as far as is known.
    fn forget_held(&mut self) {
        self.entries.retain(|_, entry| {
            entry.held = None;
            entry.wanted.is_some()
        });
        self.dirty = self.entries.keys().cloned().collect();
    }

    fn held(&self) -> usize {
        self.entries.values().filter(|entry| entry.held.is_some()).count()
    }

    /// Where requests name topics, the id tells nothing apart: a topic made anew would be added and dropped in
    /// one request.
    fn normal(&self, key: SessionPartition) -> SessionPartition {
        match self.naming {
            Naming::Ids => key,
            Naming::Names => SessionPartition { topic_id: Uuid::ZERO, ..key },
        }
    }
}

/// Epochs run from 1 to the largest number and begin again at 1; 0 and -1 have meanings of their own.
fn next_epoch(epoch: i32) -> i32 {
    epoch.checked_add(1).unwrap_or(1)
}

/// Keys come in order, so those of one topic are neighbours.
struct TopicList {
    naming: Naming,
    list: Vec<FetchTopic>,
    last: Option<(Arc<str>, Uuid)>,
}

impl TopicList {
    fn new(naming: Naming) -> Self {
        Self { naming, list: Vec::new(), last: None }
    }

    fn push(&mut self, key: &SessionPartition, params: Params) {
        let partition = FetchPartition {
            index: key.partition,
            current_leader_epoch: params.current_leader_epoch,
            fetch_offset: params.fetch_offset,
            last_fetched_epoch: params.last_fetched_epoch,
            log_start_offset: -1,
            max_bytes: params.max_bytes,
        };
        if self.last.as_ref().is_some_and(|(name, id)| *name == key.topic && *id == key.topic_id)
            && let Some(topic) = self.list.last_mut()
        {
            topic.partitions.push(partition);
            return;
        }
        self.last = Some((key.topic.clone(), key.topic_id));
        self.list.push(FetchTopic {
            name: name_for(self.naming, key),
            topic_id: key.topic_id,
            partitions: vec![partition],
        });
    }
}

struct ForgottenList {
    naming: Naming,
    list: Vec<ForgottenTopic>,
    last: Option<(Arc<str>, Uuid)>,
}

impl ForgottenList {
    fn new(naming: Naming) -> Self {
        Self { naming, list: Vec::new(), last: None }
    }

    fn push(&mut self, key: &SessionPartition) {
        if self.last.as_ref().is_some_and(|(name, id)| *name == key.topic && *id == key.topic_id)
            && let Some(topic) = self.list.last_mut()
        {
            topic.partitions.push(key.partition);
            return;
        }
        self.last = Some((key.topic.clone(), key.topic_id));
        self.list.push(ForgottenTopic {
            name: name_for(self.naming, key),
            topic_id: key.topic_id,
            partitions: vec![key.partition],
        });
    }
}

fn name_for(naming: Naming, key: &SessionPartition) -> String {
    match naming {
        Naming::Names => key.topic.to_string(),
        Naming::Ids => String::new(),
    }
}
