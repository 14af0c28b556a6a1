//! The host that causes the faults and undoes them.

use std::{collections::BTreeSet, time::Duration};

use tokio::{task::JoinSet, time::sleep};

use super::{Failure, Shared, Stage, TOPIC, copies::OUTPUT, disks, host::Power, unclean};
use crate::{
    group_log::GROUPS_TOPIC,
    plan::{BROKERS, COMPACTED, Crash, Fault, FaultKind, Host, Scenario},
    trace::now,
};

const TRANSACTIONS_TOPIC: &str = "__transaction_state";

/// How long a link may be silent before connections over it fail (`TCP_USER_TIMEOUT`).
const USER_TIMEOUT: Duration = Duration::from_secs(2);

/// Starts the cluster, carries out the plan's faults and undoes them.
pub(super) async fn run(shared: Shared) -> Result<(), Failure> {
    shared.note("waiting for the brokers to start");
    for broker in 1..=BROKERS {
        shared.cluster.broker(broker).ok_or("no such broker")?.up().await;
    }
    shared.cluster.create_topic(TOPIC, shared.plan.partitions, BROKERS as i16, &[])?;
    for topic in &shared.plan.more_topics {
        if let Some(partitions) = topic.partitions {
            let settings: Vec<(&str, &str)> =
                topic.settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
            shared.cluster.create_topic(topic.name, partitions, BROKERS as i16, &settings)?;
        }
    }
    if shared.plan.copies.is_some() {
        shared.cluster.create_topic(OUTPUT, shared.plan.partitions, BROKERS as i16, &[])?;
    }
    shared.cluster.settled().await;
    shared.stage.set(Stage::Running);
    if shared.plan.scenario == Some(Scenario::Unclean) {
        tokio::spawn(unclean::watch(shared.clone()));
    }
    let mut faults = JoinSet::new();
    for fault in shared.plan.faults.clone() {
        let shared = shared.clone();
        faults.spawn(async move {
            sleep(fault.at).await;
            inflict(&shared, &fault).await;
        });
    }
    while let Some(ended) = faults.join_next().await {
        ended?;
    }
    shared.fabric.trace().event("chaos", format_args!("healed"));
    shared.stage.set(Stage::Healed);
    shared.reached(Stage::Done).await;
    Ok(())
}

async fn inflict(shared: &Shared, fault: &Fault) {
    let begin = now();
    carry_out(shared, fault).await;
    let mut history = shared.history.lock();
    history.faults.push((begin, now()));
    if let Some(group) = &mut history.group {
        group.trouble.push((begin, now()));
    }
}

async fn carry_out(shared: &Shared, fault: &Fault) {
    let trace = shared.fabric.trace();
    let cluster = &shared.cluster;
    trace.event("chaos", format_args!("begin {fault:?}"));
    match fault.kind {
        FaultKind::Kill { broker, disk } => {
            kill(shared, broker, disk, fault.lasts).await;
        }
        FaultKind::Freeze { broker } => freeze(shared, broker, fault.lasts).await,
        // The controller takes no requests.
        FaultKind::MoveLeader { .. } if shared.standstill.is_on() => {}
        FaultKind::MoveLeader { partition, to } => {
            let topic = if shared.plan.compaction.is_some() { COMPACTED } else { 0 };
            let moved = cluster.move_leader(shared.topic(topic), partition, to).is_ok();
            trace.event("chaos", format_args!("leader of {partition} moved to {to}: {moved}"));
        }
        FaultKind::MoveCoordinator { to } => {
            let moved = cluster.move_leader(GROUPS_TOPIC, 0, to).is_ok();
            trace.event("chaos", format_args!("coordinator of the groups moved to {to}: {moved}"));
        }
        FaultKind::MoveTransactions { partition, to } => {
            // A move to the current leader changes nothing, nor does one before the log exists.
            let before = cluster.leader(TRANSACTIONS_TOPIC, partition);
            let moved = cluster.move_leader(TRANSACTIONS_TOPIC, partition, to).is_ok()
                && before != cluster.leader(TRANSACTIONS_TOPIC, partition);
            shared.history.lock().moved_coordinators += u64::from(moved);
            let told = format_args!("coordinator {partition} of transactions to {to}: {moved}");
            trace.event("chaos", told);
        }
        FaultKind::LateMetadata { broker, by } => {
            cluster.set_metadata_delay(broker, by);
            sleep(fault.lasts).await;
            cluster.set_metadata_delay(broker, Duration::ZERO);
        }
        FaultKind::FrozenMetadata { broker } => {
            cluster.freeze_metadata(broker, true);
            sleep(fault.lasts).await;
            cluster.freeze_metadata(broker, false);
        }
        FaultKind::SlowAnswers { broker, api, by } => {
            cluster.delay(Some(broker), Some(api), by);
            sleep(fault.lasts).await;
            cluster.delay(Some(broker), Some(api), Duration::ZERO);
        }
        FaultKind::Silence { between, and } => silence(shared, between, and, fault.lasts).await,
        FaultKind::CutOff { member } => {
            // Without a coordinator there is nothing to cut off.
            if let Some((leader, _)) = cluster.leader(GROUPS_TOPIC, 0) {
                let (broker, member) = (Host::Broker(leader), Host::Member(member));
                silence(shared, broker, member, fault.lasts).await;
            }
        }
        FaultKind::Grow { topic, to } => {
            let grown = cluster.add_partitions(shared.topic(topic), to).is_ok();
            trace.event("chaos", format_args!("topic {topic} has {to} partitions: {grown}"));
        }
        FaultKind::Recreate { topic, partitions } => {
            recreate(shared, topic, partitions, fault.lasts).await;
        }
        FaultKind::DiskFull { broker, room } => fill_disk(shared, broker, room, fault.lasts).await,
        FaultKind::DiskFails { broker, operation } => {
            disks::fail(shared, broker, operation, fault.lasts).await;
        }
        FaultKind::SlowDisk { broker, by } => {
            shared.machine(broker).slow_down(by);
            sleep(fault.lasts).await;
            shared.machine(broker).slow_down(Duration::ZERO);
        }
        FaultKind::StuckDisk { broker } => {
            shared.machine(broker).stick(true);
            sleep(fault.lasts).await;
            shared.machine(broker).stick(false);
        }
        FaultKind::StuckJournal { power } => {
            disks::stick_journal(shared, power, fault.lasts).await;
        }
        FaultKind::Corrupt { broker, follower } => {
            disks::corrupt(shared, broker, follower, fault.lasts).await;
        }
        FaultKind::CrashController { grow } => {
            disks::crash_controller(shared, grow, fault.lasts).await;
        }
        FaultKind::CutOffController { broker } => {
            cluster.cut_off(broker, true);
            sleep(fault.lasts).await;
            cluster.cut_off(broker, false);
        }
        FaultKind::Resets { after } => {
            shared.fabric.set_fuse(after);
            sleep(fault.lasts).await;
            shared.fabric.set_fuse(0);
        }
        FaultKind::ClockJump { host, by_ms } => shared.fabric.skew(&host.name()).jump(by_ms),
        FaultKind::ClockDrift { host, by_ms } => shared.fabric.skew(&host.name()).drift(by_ms),
        FaultKind::Unclean { survivor, isolated } => {
            unclean::elect(shared, survivor, isolated, fault.lasts).await;
        }
        FaultKind::OneWay { from, to } => one_way(shared, from, to, fault.lasts).await,
    }
    trace.event("chaos", format_args!("end {fault:?}"));
}

/// The brokers that are down, by cause.
#[derive(Default)]
pub(crate) struct Casualties {
    down: BTreeSet<i32>,
    /// Brokers whose replicas may be offline because of a full disk, until they start again.
    full: BTreeSet<i32>,
    /// Whether one of them has lost unsynced data. Until it is in sync again no other goes down. The controller does
    /// not know of the loss and would keep that broker as the last in-sync replica, and then even Kafka loses
    /// records. Never set while a disk is full: a broker with offline replicas is in sync only after a restart.
    forgetful: bool,
    controller: bool,
}

impl Casualties {
    /// Takes a broker down, unless that is not allowed now.
    pub(super) fn take_down(&mut self, broker: i32) -> bool {
        !self.forgetful && self.down.insert(broker)
    }

    /// Takes two brokers down, unless another one is; no other goes down until they are in sync.
    pub(super) fn take_both_down(&mut self, first: i32, second: i32) -> bool {
        if self.forgetful || !self.down.is_empty() || !self.full.is_empty() {
            return false;
        }
        self.down.extend([first, second]);
        self.forgetful = true;
        true
    }

    /// Takes all brokers down, unless one is.
    pub(super) fn take_all_down(&mut self) -> bool {
        let none = !self.forgetful && self.down.is_empty() && self.full.is_empty();
        if none {
            self.down.extend(1..=BROKERS);
        }
        none
    }

    pub(super) fn bring_up(&mut self, broker: i32) {
        self.down.remove(&broker);
        self.forgetful &= !self.down.is_empty();
    }

    /// Takes the controller down, unless it is.
    pub(super) fn take_controller_down(&mut self) -> bool {
        !std::mem::replace(&mut self.controller, true)
    }

    pub(super) fn controller_is_up(&mut self) {
        self.controller = false;
    }
}

/// Leaves a broker's disk room for a few more bytes, and starts the broker again at the end: until then its replicas may
/// be offline.
async fn fill_disk(shared: &Shared, broker: i32, room: u64, lasts: Duration) {
    {
        let mut casualties = shared.casualties.lock();
        if casualties.forgetful || !casualties.full.insert(broker) {
            return;
        }
    }
    let disk = &shared.disks[broker as usize - 1];
    disk.set_capacity(Some(disk.used() + room));
    sleep(lasts).await;
    disk.set_capacity(None);
    while !kill(shared, broker, Crash::KeepsAll, Duration::ZERO).await {
        sleep(Duration::from_millis(100)).await;
    }
    shared.casualties.lock().full.remove(&broker);
}

async fn freeze(shared: &Shared, broker: i32, lasts: Duration) {
    if !shared.casualties.lock().take_down(broker) {
        return;
    }
    shared.cluster.freeze(broker);
    sleep(lasts).await;
    shared.cluster.thaw(broker);
    shared.casualties.lock().down.remove(&broker);
}

/// Returns whether the broker could be taken down.
async fn kill(shared: &Shared, broker: i32, disk: Crash, lasts: Duration) -> bool {
    let crash = {
        let mut casualties = shared.casualties.lock();
        let alone = casualties.down.is_empty() && casualties.full.is_empty();
        if !casualties.take_down(broker) {
            return false;
        }
        let crash = if alone && shared.is_whole() { disk } else { Crash::KeepsAll };
        casualties.forgetful = crash.forgets();
        crash
    };
    shared.fabric.trace().event("chaos", format_args!("kill {broker} {crash:?}"));
    shared.switch(broker).set(Power::Off(crash));
    // The process is dead for a moment at least before anything starts it again.
    sleep(lasts.max(Duration::from_millis(20))).await;
    // A broker that starts on a full disk keeps its replicas offline, and would never be in sync again.
    shared.disks[broker as usize - 1].set_capacity(None);
    shared.switch(broker).set(Power::On);
    if crash.forgets() {
        shared.note(format!(
            "waiting for broker {broker}, which lost a part of its logs, to be in sync"
        ));
        shared.cluster.wait_until(|_| shared.is_whole()).await;
    }
    let mut casualties = shared.casualties.lock();
    casualties.down.remove(&broker);
    casualties.forgetful &= !crash.forgets();
    true
}

/// Deletes a topic, and creates it again. Records sent to it until then have no promise.
async fn recreate(shared: &Shared, topic: usize, partitions: i32, gap: Duration) {
    let name = shared.topic(topic);
    if !shared.cluster.delete_topic(name) {
        return;
    }
    sleep(gap).await;
    let created = shared.cluster.create_topic(name, partitions, BROKERS as i16, &[]);
    let trace = shared.fabric.trace();
    trace.event("chaos", format_args!("topic {topic} created again: {}", created.is_ok()));
    // Brokers with old metadata still serve the deleted topic.
    shared.cluster.settled().await;
    let producers = shared.plan.producers.iter().zip(0..);
    let concerned: BTreeSet<u32> = producers
        .filter(|(producer, _)| producer.tuning.topic == topic)
        .map(|(_, index)| index)
        .collect();
    let mut history = shared.history.lock();
    let sent: Vec<_> = history.sent.iter().map(|sent| sent.id).collect();
    history.buried.extend(sent.into_iter().filter(|id| concerned.contains(&id.producer)));
}

async fn silence(shared: &Shared, a: Host, b: Host, lasts: Duration) {
    let (a, b) = (shared.fabric.host(&a.name()), shared.fabric.host(&b.name()));
    if !shared.fabric.claim_link(a, b) {
        return;
    }
    shared.fabric.hold(a, b);
    sleep(lasts.min(USER_TIMEOUT)).await;
    if lasts >= USER_TIMEOUT {
        shared.fabric.break_connections(a, b);
        sleep(lasts - USER_TIMEOUT).await;
    }
    shared.fabric.release(a, b);
    shared.fabric.release_link(a, b);
}

/// Lost messages are not sent again here: connections do not survive the loss.
async fn one_way(shared: &Shared, from: Host, to: Host, lasts: Duration) {
    let (from, to) = (shared.fabric.host(&from.name()), shared.fabric.host(&to.name()));
    if !shared.fabric.claim_link(from, to) {
        return;
    }
    shared.fabric.lose(from, to);
    sleep(lasts.min(USER_TIMEOUT)).await;
    shared.fabric.break_connections(from, to);
    sleep(lasts.saturating_sub(USER_TIMEOUT)).await;
    shared.fabric.repair(from, to);
    // Connections made meanwhile have lost something, too.
    shared.fabric.break_connections(from, to);
    shared.fabric.release_link(from, to);
}
