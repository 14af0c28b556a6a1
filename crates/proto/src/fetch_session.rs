//! The reader's side of an incremental fetch session (KIP-227).
//!
//! A broker remembers a session's partitions and the next offset of each, so a request names only the changes. A
//! partition stays in the session while the reader wants it, even while its records wait in a buffer. Dropping it and
//! adding it back makes the session look busy, so that the broker cannot serve it from memory (KAFKA-17182).
//!
//! Order of calls: [`FetchSession::want`] and [`FetchSession::unwant`] at any time;
//! [`FetchSession::next_request`] when no request is in flight; then exactly one of [`FetchSession::on_answer`],
//! [`FetchSession::on_abandoned`] and [`FetchSession::on_lost`]. The cost of a request depends on the changes, not on
//! the size of the session.

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

/// A partition in a session. If requests name ids, two topics of one name with different ids are different.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionPartition {
    /// Topic name.
    pub topic: Arc<str>,
    /// Topic id; zero if the broker has none.
    pub topic_id: Uuid,
    /// Partition index.
    pub partition: i32,
}

/// Parameters with which a partition is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// First offset to read.
    pub fetch_offset: i64,
    /// Leader epoch known to the reader, -1 for none.
    pub current_leader_epoch: i32,
    /// Epoch of the last record read, -1 for none.
    pub last_fetched_epoch: i32,
    /// Byte limit for this partition in one response.
    pub max_bytes: i32,
}

/// The parts of a Fetch request that concern the session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionRequest {
    /// Session id, 0 for none.
    pub session_id: i32,
    /// Epoch of the request in its session.
    pub session_epoch: i32,
    /// Partitions to add and to change; all of them if the request opens a session.
    pub topics: Vec<FetchTopic>,
    /// Partitions to drop.
    pub forgotten: Vec<ForgottenTopic>,
}

/// Effect of a response on the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The response has the partitions' results.
    Results,
    /// The broker has lost or refused the session and fetched nothing. The next request names every partition; it may
    /// be sent at once.
    StartedOver,
    /// The broker refused the request for another reason. The next request names every partition, after a backoff.
    Refused(ErrorCode),
}

/// A partition's parameters as wanted by the reader and as held by the broker's session.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// Id of the topic. The key has it only if requests name ids.
    topic_id: Uuid,
    wanted: Option<Params>,
    held: Option<Params>,
}

/// State of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The next request names every partition and asks for a session. `old_id` is the id of an older session, if
    /// there was one, so that the broker can free its slot. `refused` means that the broker had no slot for the last
    /// request.
    Opening { old_id: i32, refused: bool },
    /// The next request has this epoch and names the changes.
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
    /// Creates a session without partitions.
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

    /// Changes how requests name topics, after a connection to a broker of another version. A change restarts the
    /// session.
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

    /// Reads a partition with these parameters from the next request on: adds or changes it.
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

    /// Stops reading a partition.
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

    /// Number of wanted partitions.
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

    /// Returns the next request. Its changes count as held by the broker until the response shows otherwise.
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
        // A broker fills its response in the order of the request, up to the limit. In a session it rotates the order
        // itself; without one, each request begins with the next partition.
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

    /// Applies a response: its error, its session id, and its number of partition results.
    pub fn on_answer(&mut self, error: ErrorCode, session_id: i32, results: usize) -> Outcome {
        if error.is_error() && planted(Plant::SessionKept) {
            return Outcome::StartedOver;
        }
        match error {
            ErrorCode::NONE => {}
            // Only an open session can be lost: a broker that reports this for an opening request would report it
            // again.
            ErrorCode::FETCH_SESSION_ID_NOT_FOUND if matches!(self.state, State::Open { .. }) => {
                // The session was evicted: there is no slot to free.
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
            // Without a free slot, every request names every partition and asks again.
            State::Opening { .. } => State::Opening { old_id: 0, refused: true },
            State::Open { id, epoch } => State::Open { id, epoch: next_epoch(epoch) },
        };
        match self.state {
            State::Opening { .. } => self.forget_held(),
            // A session that lacks a partition would never return its records.
            State::Open { epoch: 1, .. } if results < self.held() => self.start_over(),
            State::Open { .. } => {}
        }
        Outcome::Results
    }

    /// Reports that the request was sent and its response will not be read. A session does not belong to a
    /// connection: it continues with the next request, on any connection, as if the response had been empty. If the
    /// broker did not receive the request, it responds with an error and the session restarts.
    pub fn on_abandoned(&mut self) {
        match self.state {
            State::Open { id, epoch } => self.state = State::Open { id, epoch: next_epoch(epoch) },
            State::Opening { .. } => self.start_over(),
        }
    }

    /// Reports a lost connection: it is unknown whether the broker received the request, and whether it is still the
    /// same broker. The next request names every partition and frees the session's slot.
    pub fn on_lost(&mut self) {
        if planted(Plant::SessionKept) {
            return;
        }
        self.start_over();
    }

    /// Whether the next request opens a session that the broker is likely to grant. Such a request should not wait
    /// for records: if it were abandoned, the id of the opened session would be unknown.
    pub fn is_opening(&self) -> bool {
        matches!(self.state, State::Opening { refused: false, .. })
    }

    /// Whether the broker keeps a session for this reader, as far as known.
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Open { .. })
    }

    /// Returns a sessionless request, which leaves the session unchanged.
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

    /// Returns the request that ends the session, `None` if there is none.
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

    /// Marks every partition as not held by the broker.
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

    /// Drops the id from the key if requests name topics. Otherwise one request would add and drop a recreated topic.
    fn normal(&self, key: SessionPartition) -> SessionPartition {
        match self.naming {
            Naming::Ids => key,
            Naming::Names => SessionPartition { topic_id: Uuid::ZERO, ..key },
        }
    }
}

/// Returns the next epoch. Epochs run from 1 to the largest number and restart at 1; 0 and -1 have separate meanings.
fn next_epoch(epoch: i32) -> i32 {
    epoch.checked_add(1).unwrap_or(1)
}

/// Builds the list of topics. Keys arrive in order, so keys of one topic are adjacent.
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
