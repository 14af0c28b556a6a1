//! Faults of disks and of the controller.

use std::{path::Path, time::Duration};

use curtail_cluster::disk::{Disk as _, MemDisk};
use curtail_net::Entropy;
use curtail_wire::records::{BATCH_HEADER_LEN, batches};
use tokio::time::sleep;

use super::{Shared, TOPIC, host::Power};
use crate::{
    history::{ControllerRestart, DiskFailure},
    plan::{BROKERS, Crash, DiskError},
    trace::now,
};

/// First byte of a batch that its checksum covers.
const CHECKED_FROM: usize = 21;

/// Crashes the controller and restarts it from a disk that has lost its unsynced data.
pub(super) async fn crash_controller(shared: &Shared, grow: bool, lasts: Duration) {
    if !shared.casualties.lock().take_controller_down() {
        return;
    }
    let cluster = &shared.cluster;
    if grow {
        // Acknowledged changes must survive the crash, also those made just before it.
        let partitions = shared.partitions() + 1;
        let _ = cluster.add_partitions(TOPIC, partitions.min(8));
        let _ = cluster.create_topic(&format!("late-{}", now().as_millis()), 1, 3, &[]);
    }
    let before_id = cluster.allocate_producer_id();
    cluster.crash_controller();
    let before = cluster.metadata_text();
    sleep(lasts).await;
    shared.controller_disk.crash_torn(|n| shared.entropy.below(n));
    let restarted = cluster.restart_controller();
    let after = cluster.metadata_text();
    let restart = ControllerRestart {
        at: now(),
        error: restarted.err().map(|error| error.to_string()),
        lost: first_difference(&before, &after),
        producer_ids: before_id.zip(cluster.allocate_producer_id()),
    };
    shared.history.lock().controller_restarts.push(restart);
    shared.casualties.lock().controller_is_up();
}

/// A sync of the controller's journal does not return: the controller and the brokers, which are one process, stand still.
/// In the end it returns, or all machines lose power.
pub(super) async fn stick_journal(shared: &Shared, power: bool, lasts: Duration) {
    if !shared.casualties.lock().take_all_down() {
        return;
    }
    let (cluster, journal) = (&shared.cluster, &shared.controller_machine);
    let before = cluster.metadata_text();
    journal.hold_syncs(true);
    // The topic is not acknowledged before the sync has returned.
    let _ = cluster.create_topic(&format!("stuck-{}", now().as_millis()), 1, 3, &[]);
    let unsynced = cluster.metadata_text();
    let live = cluster.live_brokers();
    shared.standstill.begin();
    (1..=BROKERS).for_each(|broker| cluster.freeze(broker));
    sleep(lasts).await;
    journal.hold_syncs(false);
    shared.history.lock().stuck_syncs += 1;
    if power {
        lose_power(shared, &before, &unsynced).await;
    } else {
        // A later change syncs what is in the file.
        let _ = cluster.create_topic(&format!("synced-{}", now().as_millis()), 1, 3, &[]);
        shared.standstill.end();
        sleep(Duration::from_millis(1)).await;
        let still = cluster.live_brokers();
        let fenced = live.into_iter().filter(|broker| !still.contains(broker));
        shared.history.lock().fenced_for_nothing.extend(fenced.map(|broker| (broker, now())));
        (1..=BROKERS).for_each(|broker| cluster.thaw(broker));
    }
    let mut casualties = shared.casualties.lock();
    (1..=BROKERS).for_each(|broker| casualties.bring_up(broker));
}

/// All machines lose their unsynced data and restart. Acknowledged changes and records were synced.
async fn lose_power(shared: &Shared, before: &str, unsynced: &str) {
    let cluster = &shared.cluster;
    (1..=BROKERS).for_each(|broker| shared.switch(broker).set(Power::Off(Crash::Torn)));
    cluster.crash_controller();
    shared.controller_disk.crash_torn(|n| shared.entropy.below(n));
    sleep(Duration::from_millis(20)).await;
    shared.standstill.end();
    let restarted = cluster.restart_controller();
    let after = cluster.metadata_text();
    let lost = if after == unsynced { None } else { first_difference(before, &after) };
    let error = restarted.err().map(|error| error.to_string());
    let restart = ControllerRestart { at: now(), error, lost, producer_ids: None };
    shared.history.lock().controller_restarts.push(restart);
    (1..=BROKERS).for_each(|broker| shared.switch(broker).set(Power::On));
    shared.note("waiting for the brokers after a loss of power");
    cluster.wait_until(|_| shared.is_whole()).await;
}

/// The first line that differs.
fn first_difference(before: &str, after: &str) -> Option<String> {
    let pair = before.lines().zip(after.lines()).find(|(before, after)| before != after);
    pair.map(|(before, after)| format!("{before} became {after}"))
}

/// Makes operations of a disk fail, and repairs it.
pub(super) async fn fail(shared: &Shared, broker: i32, operation: DiskError, lasts: Duration) {
    if !shared.casualties.lock().take_down(broker) {
        return;
    }
    let machine = shared.machine(broker);
    machine.fail(operation);
    sleep(lasts).await;
    let (failed, ended) = machine.heal();
    if let Some(failed) = failed {
        let failure = DiskFailure { broker, failed, ended };
        shared.history.lock().disk_failures.push(failure);
    }
    shared.casualties.lock().bring_up(broker);
}

/// A follower loses a part of its logs, and replicates again from a leader whose disk has decayed there. Then the
/// leader restarts and finds the damage.
pub(super) async fn corrupt(shared: &Shared, broker: i32, follower: i32, lasts: Duration) {
    if !shared.is_whole() || !shared.casualties.lock().take_both_down(broker, follower) {
        return;
    }
    shared.switch(follower).set(Power::Off(Crash::Torn));
    sleep(Duration::from_millis(20)).await;
    let bytes =
        decay(&shared.disks[broker as usize - 1], broker, shared.partitions(), &shared.entropy);
    shared.fabric.trace().event("chaos", format_args!("{bytes} bytes of {broker} decayed"));
    shared.switch(follower).set(Power::On);
    sleep(lasts).await;
    shared.switch(broker).set(Power::Off(Crash::KeepsAll));
    sleep(Duration::from_millis(20)).await;
    shared.switch(broker).set(Power::On);
    shared.note(format!("waiting for broker {broker}, whose logs decayed, to be in sync"));
    shared.cluster.wait_until(|_| shared.is_whole()).await;
    let mut casualties = shared.casualties.lock();
    casualties.bring_up(broker);
    casualties.bring_up(follower);
}

/// Flips a bit in some batches of every partition; returns how many.
fn decay(disk: &MemDisk, broker: i32, partitions: i32, entropy: &Entropy) -> usize {
    let mut flipped = 0;
    for partition in 0..partitions {
        let dir = format!("broker-{broker}/{TOPIC}-{partition}");
        let files = disk.list(Path::new(&dir)).unwrap_or_default();
        for path in files.iter().filter(|path| path.extension().is_some_and(|end| end == "log")) {
            let _ = disk.alter(path, |bytes| flipped += flip(bytes, entropy));
        }
    }
    flipped
}

fn flip(bytes: &mut [u8], entropy: &Entropy) -> usize {
    let mut at = 0;
    let mut places = Vec::new();
    for batch in batches(bytes.to_vec().into()).map_while(Result::ok) {
        let size = batch.header.size_in_bytes();
        if size > BATCH_HEADER_LEN && entropy.below(4) == 0 {
            let within = entropy.below((size - CHECKED_FROM) as u64) as usize;
            places.push(at + CHECKED_FROM + within);
        }
        at += size;
    }
    for place in &places {
        bytes[*place] ^= 1 << entropy.below(8);
    }
    places.len()
}
