//! The names of the faults, and what they change.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use curtail_net::Entropy;
use curtail_wire::ErrorCode;
use parking_lot::Mutex;

use super::{
    ActiveFault, Fault, FaultError, Injection, KafkaRelease, Lines, Links, WrongLeader,
    links::pair,
    rules::{Fate, Item, Request, Rule, Rules, Then},
};

/// The faults of a cluster. They outlive the brokers' incarnations.
pub(crate) struct Faults {
    /// Whether a fault concerns requests. Without one, a request costs a relaxed load: it may be
    /// handled as if it had arrived before the fault.
    active: AtomicBool,
    /// Whether a disk is slow.
    slow_disks: AtomicBool,
    links: Arc<Links>,
    lines: Arc<Lines>,
    state: Mutex<State>,
}

struct State {
    rules: Rules,
    /// Number of names chosen so far.
    number: u64,
    /// Of the first broker: seeds of faults without one.
    entropy: Entropy,
}

impl State {
    fn has(&self, name: &str) -> bool {
        self.rules.0.iter().any(|rule| rule.name == name)
    }

    fn add(&mut self, Injection { name, seed, fault }: Injection) -> Result<String, FaultError> {
        let name = match name {
            Some(name) if self.has(&name) => return Err(FaultError::NameTaken(name)),
            Some(name) => name,
            None => self.new_name(&fault),
        };
        // As JSON it is a number, of which some languages keep 53 bits.
        let seed = seed.unwrap_or_else(|| self.entropy.next_u64() >> 11);
        self.rules.0.push(Rule::new(name.clone(), seed, fault));
        Ok(name)
    }

    fn new_name(&mut self, fault: &Fault) -> String {
        loop {
            self.number += 1;
            let name = format!("{}-{}", fault.kind(), self.number);
            if !self.has(&name) {
                return name;
            }
        }
    }
}

/// Checks a fault and its name.
fn check(injection: &Injection, brokers: &[i32]) -> Result<(), FaultError> {
    injection.fault.check()?;
    if let Some(unknown) = injection.fault.brokers().into_iter().find(|id| !brokers.contains(id)) {
        return Err(FaultError::NoSuchBroker(unknown));
    }
    match injection.name.as_ref().filter(|name| !is_name(name)) {
        Some(name) => Err(FaultError::BadName(name.clone())),
        None => Ok(()),
    }
}

/// What the faults of one broker make of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) frozen: bool,
    pub(super) metadata_frozen: bool,
    pub(super) cut_off: bool,
    pub(super) disk_full: bool,
    pub(super) metadata_delay: Option<Duration>,
}

/// Receives the changes of brokers when faults begin and end.
pub(crate) trait Changes {
    /// Freezes a broker, or thaws it.
    fn freeze(&self, broker: i32, frozen: bool);
    /// Stops the delivery of metadata to a broker, or resumes it.
    fn freeze_metadata(&self, broker: i32, frozen: bool);
    /// Disconnects a broker from the controller, or reconnects it.
    fn cut_off(&self, broker: i32, cut_off: bool);
    /// Leaves a broker's disk no space, or makes room.
    fn fill_disk(&self, broker: i32, full: bool);
    /// Sets the propagation delay of metadata to a broker; `None` for the configured one.
    fn delay_metadata(&self, broker: i32, delay: Option<Duration>);
}

impl Faults {
    pub(crate) fn new(entropy: Entropy) -> Self {
        let state = State { rules: Rules::default(), number: 0, entropy };
        Self {
            active: AtomicBool::new(false),
            slow_disks: AtomicBool::new(false),
            links: Arc::default(),
            lines: Arc::default(),
            state: Mutex::new(state),
        }
    }

    pub(crate) fn links(&self) -> &Arc<Links> {
        &self.links
    }

    pub(crate) fn lines(&self) -> &Arc<Lines> {
        &self.lines
    }

    /// Adds a fault and returns its name. `brokers` are the known ids.
    pub(crate) fn inject(
        &self,
        injection: Injection,
        brokers: &[i32],
        changes: &impl Changes,
    ) -> Result<String, FaultError> {
        check(&injection, brokers)?;
        self.change(changes, |state| state.add(injection))
    }

    /// Like [`Faults::inject`], in place of a fault of the same name.
    pub(crate) fn replace(
        &self,
        injection: Injection,
        brokers: &[i32],
        changes: &impl Changes,
    ) -> Result<String, FaultError> {
        check(&injection, brokers)?;
        self.change(changes, |state| {
            state.rules.0.retain(|rule| Some(&rule.name) != injection.name.as_ref());
            state.add(injection)
        })
    }

    /// Removes the faults that the predicate selects. Returns how many there were.
    pub(crate) fn lift(
        &self,
        changes: &impl Changes,
        mut lifted: impl FnMut(&str, &Fault) -> bool,
    ) -> usize {
        self.change(changes, |state| {
            let before = state.rules.0.len();
            state.rules.0.retain(|rule| !lifted(&rule.name, &rule.fault));
            before - state.rules.0.len()
        })
    }

    /// Removes the freezes of a broker whose process has ended: another one is not frozen.
    pub(crate) fn forget_freezes(&self, broker: i32) {
        let rules = &mut self.state.lock().rules.0;
        rules.retain(|rule| !matches!(rule.fault, Fault::Freeze(on) if on.broker == broker));
    }

    /// Returns all faults, oldest first.
    pub(crate) fn list(&self) -> Vec<ActiveFault> {
        self.state.lock().rules.0.iter().map(Rule::describe).collect()
    }

    fn change<T>(&self, changes: &impl Changes, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let before = standings(&state.rules.0);
        let done = change(&mut state);
        let after = standings(&state.rules.0);
        // Under the lock, so that concurrent changes are applied in their order.
        apply(&before, &after, changes);
        self.links.set(cut_links(&state.rules.0));
        self.lines.set(of_lines(&state.rules.0));
        self.update(&state);
        done
    }

    fn update(&self, state: &State) {
        let active = state.rules.0.iter().any(Rule::concerns_requests);
        self.active.store(active, Ordering::Relaxed);
        let slow = state.rules.0.iter().any(|rule| matches!(rule.fault, Fault::SlowDisk(_)));
        self.slow_disks.store(slow, Ordering::Relaxed);
    }

    /// Returns whether a fault concerns requests.
    pub(crate) fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed)
    }

    /// Returns whether the connection closes instead of the request being handled.
    pub(crate) fn closes(&self, request: &Request<'_>) -> bool {
        self.is_active() && self.ask(|rules| rules.closes(request))
    }

    /// Returns the error that refuses a part of a request. Adds the names of the faults that concern
    /// whole requests with this part to `named`.
    pub(crate) fn error(
        &self,
        request: &Request<'_>,
        item: Item<'_>,
        named: &Mutex<Vec<String>>,
    ) -> Option<ErrorCode> {
        if !self.is_active() {
            return None;
        }
        self.ask(|rules| {
            rules.name(request, item, &mut named.lock());
            rules.error(request, item)
        })
    }

    /// Returns whether the records of a partition arrive damaged.
    pub(crate) fn corrupts(&self, request: &Request<'_>, item: Item<'_>) -> bool {
        self.is_active() && self.ask(|rules| rules.corrupts(request, item))
    }

    /// Returns the fault that names a wrong leader of a refused partition.
    pub(crate) fn wrong_leader(
        &self,
        request: &Request<'_>,
        item: Item<'_>,
    ) -> Option<WrongLeader> {
        if !self.is_active() {
            return None;
        }
        self.ask(|rules| rules.wrong_leader(request, item))
    }

    /// Decides about the response to a request. `named` is from [`Faults::error`].
    pub(crate) fn fate(&self, request: &Request<'_>, named: &Mutex<Vec<String>>) -> Fate {
        if !self.is_active() {
            return Fate { delay: Duration::ZERO, then: Then::Write };
        }
        self.ask(|rules| rules.fate(request, &named.lock()))
    }

    /// Returns whether a disk is slow.
    pub(crate) fn slow_disks(&self) -> bool {
        self.slow_disks.load(Ordering::Relaxed)
    }

    /// Returns how long a broker's disk is busy with an append.
    pub(crate) fn disk_time(&self, broker: i32) -> Duration {
        self.state.lock().rules.disk_time(broker)
    }

    /// Returns the release whose API versions a client is offered.
    pub(crate) fn release(&self, request: &Request<'_>) -> Option<KafkaRelease> {
        if !self.is_active() {
            return None;
        }
        self.ask(|rules| rules.release(request))
    }

    fn ask<T>(&self, question: impl FnOnce(&mut Rules) -> T) -> T {
        let mut state = self.state.lock();
        let told = question(&mut state.rules);
        self.update(&state);
        told
    }
}

fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=64).contains(&name.len()) && name.bytes().all(allowed)
}

/// Returns what the faults make of each broker.
pub(super) fn standings(rules: &[Rule]) -> BTreeMap<i32, Standing> {
    let mut standings: BTreeMap<i32, Standing> = BTreeMap::new();
    for rule in rules {
        match rule.fault {
            Fault::Freeze(on) => standings.entry(on.broker).or_default().frozen = true,
            Fault::FreezeMetadata(on) => {
                standings.entry(on.broker).or_default().metadata_frozen = true;
            }
            Fault::CutOff(on) => standings.entry(on.broker).or_default().cut_off = true,
            Fault::FullDisk(on) => standings.entry(on.broker).or_default().disk_full = true,
            Fault::DelayMetadata(delay) => {
                standings.entry(delay.broker).or_default().metadata_delay = Some(delay.time);
            }
            _ => {}
        }
    }
    standings
}

/// Applies the differences only: a killed broker's gate is closed without a fault, and stays so.
fn apply(
    before: &BTreeMap<i32, Standing>,
    after: &BTreeMap<i32, Standing>,
    changes: &impl Changes,
) {
    let brokers: BTreeSet<i32> = before.keys().chain(after.keys()).copied().collect();
    for broker in brokers {
        let (old, new) = (before.get(&broker), after.get(&broker));
        let (old, new) = (old.cloned().unwrap_or_default(), new.cloned().unwrap_or_default());
        if old.frozen != new.frozen {
            changes.freeze(broker, new.frozen);
        }
        if old.metadata_frozen != new.metadata_frozen {
            changes.freeze_metadata(broker, new.metadata_frozen);
        }
        if old.cut_off != new.cut_off {
            changes.cut_off(broker, new.cut_off);
        }
        if old.disk_full != new.disk_full {
            changes.fill_disk(broker, new.disk_full);
        }
        if old.metadata_delay != new.metadata_delay {
            changes.delay_metadata(broker, new.metadata_delay);
        }
    }
}

fn cut_links(rules: &[Rule]) -> BTreeSet<(i32, i32)> {
    let cut = rules.iter().filter_map(|rule| match &rule.fault {
        Fault::Cut(cut) => Some(pair(cut.between[0], cut.between[1])),
        _ => None,
    });
    cut.collect()
}

fn of_lines(rules: &[Rule]) -> Vec<Fault> {
    let of_line = |fault: &&Fault| matches!(fault, Fault::Throttle(_) | Fault::CutClients(_));
    rules.iter().map(|rule| &rule.fault).filter(of_line).cloned().collect()
}
