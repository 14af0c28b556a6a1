//! The feeder: a task of the runtime that appends staged records, in the order of the sends.
//!
//! A record without room waits in one of its topic's lanes, so that a slow broker delays only the lanes of its records.
//!
//! # Invariants
//! - A record whose lane is not empty enters the lane: records of a key, or of an explicit partition, keep their order.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use curtail::{Error, Producer};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::{Instant, timeout_at},
};

use crate::stage::{Arena, Barrier, Entry, Item, Stage};

/// Lanes of a topic. The last one is for records with neither key nor partition.
const LANES: usize = 64;
/// Records between pauses for the runtime's other tasks.
const TURN: usize = 512;

/// In place of a deadline that no clock reaches.
const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// A record that waits, or a barrier behind such records.
enum Waiting {
    /// The only item of the arena.
    Record(Arena),
    Barrier(#[expect(dead_code, reason = "completes when it is dropped")] Arc<Barrier>),
}

struct Lane {
    queue: UnboundedSender<(Waiting, Instant)>,
    /// Records that wait.
    length: Arc<AtomicUsize>,
}

pub(crate) struct Feeder {
    stage: Arc<Stage>,
    producer: Producer,
    max_block: Duration,
    lanes: HashMap<Box<str>, Box<[Option<Lane>; LANES]>>,
    /// Records in all lanes.
    waiting: Arc<AtomicUsize>,
    hasher: RandomState,
}

impl Feeder {
    pub(crate) fn new(stage: Arc<Stage>, producer: Producer, max_block: Duration) -> Self {
        let (lanes, waiting) = (HashMap::new(), Arc::default());
        Self { stage, producer, max_block, lanes, waiting, hasher: RandomState::new() }
    }

    /// Appends records until the stage is closed and empty.
    pub(crate) async fn run(mut self) {
        let mut spare = Arena::default();
        while let Some(arena) = self.stage.take(spare).await {
            spare = self.feed(arena).await;
        }
    }

    /// Appends the records, and returns the arena empty.
    async fn feed(&mut self, arena: Arena) -> Arena {
        let now = Instant::now();
        let deadline = now.checked_add(self.max_block).unwrap_or_else(|| now + FAR);
        for (index, item) in arena.items.iter().enumerate() {
            match item {
                Item::Barrier(barrier) => self.pass_on(barrier, deadline),
                Item::Record(entry) => self.append(&arena, entry, deadline),
            }
            if index % TURN == TURN - 1 {
                tokio::task::yield_now().await;
            }
        }
        if self.waiting.load(Ordering::Acquire) == 0 {
            self.lanes.clear();
        }
        arena.cleared()
    }

    fn append(&mut self, arena: &Arena, entry: &Entry, deadline: Instant) {
        if self.must_wait(arena, entry) {
            return self.enqueue(arena, entry, deadline);
        }
        let outlet = arena.outlet(entry);
        let headers = arena.headers(entry);
        let record = arena.record(entry, &headers);
        match self.producer.try_send_tagged(record, entry.tag, &outlet.sink) {
            Ok(()) => {}
            Err(Error::BufferFull { .. }) => return self.enqueue(arena, entry, deadline),
            Err(error) => outlet.fail(entry.tag, error),
        }
        self.stage.release(entry.size);
    }

    /// Whether earlier records of the record's lane wait.
    fn must_wait(&self, arena: &Arena, entry: &Entry) -> bool {
        // With `Acquire`, an append of a lane that counted its last record precedes the one here.
        if self.waiting.load(Ordering::Acquire) == 0 {
            return false;
        }
        let Some(lanes) = self.lanes.get(arena.topic(entry)) else { return false };
        let lane = &lanes[self.lane_of(arena, entry)];
        lane.as_ref().is_some_and(|lane| lane.length.load(Ordering::Acquire) > 0)
    }

    fn lane_of(&self, arena: &Arena, entry: &Entry) -> usize {
        match (entry.partition, arena.key(entry)) {
            (Some(partition), _) => partition.unsigned_abs() as usize % (LANES - 1),
            (None, Some(key)) => (self.hasher.hash_one(key) % (LANES as u64 - 1)) as usize,
            (None, None) => LANES - 1,
        }
    }

    /// Lets a copy of the record wait: the arena would keep all other records in memory, and their outlets open.
    fn enqueue(&mut self, arena: &Arena, entry: &Entry, deadline: Instant) {
        let at = self.lane_of(arena, entry);
        let topic = arena.topic(entry);
        if !self.lanes.contains_key(topic) {
            self.lanes.insert(topic.into(), Box::new([const { None }; LANES]));
        }
        let Some(lanes) = self.lanes.get_mut(topic) else { return };
        let lane = lanes[at].get_or_insert_with(|| {
            let (queue, records) = unbounded_channel();
            let length = Arc::<AtomicUsize>::default();
            let carrier = Carrier {
                stage: self.stage.clone(),
                producer: self.producer.clone(),
                max_block: self.max_block,
                waiting: self.waiting.clone(),
                length: length.clone(),
            };
            tokio::spawn(carrier.run(records));
            Lane { queue, length }
        });
        lane.length.fetch_add(1, Ordering::AcqRel);
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let _ = lane.queue.send((Waiting::Record(arena.alone(entry)), deadline));
    }

    /// Puts a barrier behind the records that wait. Without any, it completes here.
    fn pass_on(&self, barrier: &Arc<Barrier>, deadline: Instant) {
        for lane in self.lanes.values().flat_map(|lanes| lanes.iter().flatten()) {
            if lane.length.load(Ordering::Acquire) > 0 {
                let _ = lane.queue.send((Waiting::Barrier(barrier.clone()), deadline));
            }
        }
    }
}

/// The task of a lane.
struct Carrier {
    stage: Arc<Stage>,
    producer: Producer,
    max_block: Duration,
    waiting: Arc<AtomicUsize>,
    length: Arc<AtomicUsize>,
}

impl Carrier {
    async fn run(self, mut records: UnboundedReceiver<(Waiting, Instant)>) {
        while let Some((waiting, deadline)) = records.recv().await {
            let Waiting::Record(arena) = waiting else { continue };
            let Some(Item::Record(entry)) = arena.items.first() else { continue };
            self.send(&arena, entry, deadline).await;
            self.stage.release(entry.size);
            self.length.fetch_sub(1, Ordering::AcqRel);
            self.waiting.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Appends a record when there is room. The time that it waited behind other records counts in `max.block.ms`.
    async fn send(&self, arena: &Arena, entry: &Entry, deadline: Instant) {
        let outlet = arena.outlet(entry);
        let headers = arena.headers(entry);
        let record = arena.record(entry, &headers);
        let sent = self.producer.send_tagged(record, entry.tag, &outlet.sink);
        let sent = timeout_at(deadline, sent).await;
        let full = Error::BufferFull { waited: self.max_block };
        if let Err(error) = sent.unwrap_or(Err(full)) {
            outlet.fail(entry.tag, error);
        }
    }
}
