//! A refusal names as leader the broker that refuses, in the epoch the producer knows.
//!
//! - Client: franz-go; AutoMQ is a cluster that answers so
//! - Threads: https://github.com/twmb/franz-go/pull/1413, https://github.com/AutoMQ/automq/pull/3547
//! - Failure: the hint counted as a move, so the retry skipped its backoff and the metadata refresh: 475 requests in 5 s, and retries exhausted within 55 ms
//! - Promise: a hint that changes nothing leads to a metadata request after at most one repeat

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use curtail::ErrorCode;
use curtail_wire::{ApiKey, produce::LeaderIdAndEpoch};

use crate::stage::{Gate, Stage, Step, TOPIC, Work, curtail_only, run};

/// Sends one record against brokers that refuse with a hint until metadata is requested.
async fn refused_with(hint: impl Fn(i32, i32) -> LeaderIdAndEpoch) {
    let stage = Stage::new(3, 1).await;
    let (first, _) = stage.cluster.leader(TOPIC, 0).unwrap();
    stage.cluster.move_leader(TOPIC, 0, first % 3 + 1).unwrap();
    stage.cluster.settled().await;
    let producer = stage.producer(|config| config);
    let mut work = Work::default();
    work.deliver(&producer, 0, "first").await;
    let (leader, epoch) = stage.cluster.leader(TOPIC, 0).unwrap();
    let hint = hint(leader, epoch);
    assert!(hint.leader_epoch >= 0, "a hint without an epoch is no hint");
    let refusals = Arc::new(AtomicUsize::new(0));
    let (count, asked) = (Arc::clone(&refusals), AtomicBool::new(false));
    stage.script(move |request| {
        match request.api {
            ApiKey::METADATA if count.load(Ordering::SeqCst) > 0 => {
                asked.store(true, Ordering::SeqCst);
            }
            ApiKey::PRODUCE if !asked.load(Ordering::SeqCst) => {
                count.fetch_add(1, Ordering::SeqCst);
                return request.refuse_with(ErrorCode::NOT_LEADER_OR_FOLLOWER, Some(hint));
            }
            _ => {}
        }
        Step::Pass
    });
    work.send(&producer, 0, "second").await;
    work.all_acknowledged(&stage).await;
    let refusals = refusals.load(Ordering::SeqCst);
    assert!((1..=2).contains(&refusals), "{refusals} requests before metadata was asked for");
}

#[test]
pub(crate) fn the_same_leader_in_the_same_epoch_is_no_move() {
    run(refused_with(|leader_id, leader_epoch| LeaderIdAndEpoch { leader_id, leader_epoch }));
}

#[test]
pub(crate) fn another_leader_in_the_same_epoch_is_no_move() {
    run(refused_with(|leader, leader_epoch| LeaderIdAndEpoch {
        leader_id: leader % 3 + 1,
        leader_epoch,
    }));
}

#[test]
pub(crate) fn the_same_leader_in_an_older_epoch_is_no_move() {
    run(refused_with(|leader_id, epoch| LeaderIdAndEpoch { leader_id, leader_epoch: epoch - 1 }));
}

/// The response to the metadata request comes only after the retry, which a client may not wait for.
#[test]
pub(crate) fn another_leader_in_an_older_epoch_is_not_followed() {
    curtail_only("the retry need not wait for metadata");
    run(async {
        let stage = Stage::new(3, 1).await;
        let (first, _) = stage.cluster.leader(TOPIC, 0).unwrap();
        stage.cluster.move_leader(TOPIC, 0, first % 3 + 1).unwrap();
        stage.cluster.settled().await;
        let producer = stage.producer(|config| config);
        let mut work = Work::default();
        work.deliver(&producer, 0, "first").await;
        let (leader, epoch) = stage.cluster.leader(TOPIC, 0).unwrap();
        let hint = LeaderIdAndEpoch { leader_id: leader % 3 + 1, leader_epoch: epoch - 1 };
        let gate = Gate::closed();
        let (held, mut refused) = (gate.clone(), false);
        stage.script(move |request| match request.api {
            ApiKey::METADATA => Step::Hold(held.clone(), Box::new(Step::Pass)),
            ApiKey::PRODUCE if !std::mem::replace(&mut refused, true) => {
                request.refuse_with(ErrorCode::NOT_LEADER_OR_FOLLOWER, Some(hint))
            }
            _ => Step::Pass,
        });
        let before = stage.count(ApiKey::PRODUCE);
        work.send(&producer, 0, "second").await;
        stage.arrived(ApiKey::PRODUCE, before + 2).await;
        gate.open();
        work.all_acknowledged(&stage).await;
        let brokers: Vec<i32> = stage.seen(ApiKey::PRODUCE).iter().map(|r| r.broker).collect();
        assert!(brokers.iter().all(|broker| *broker == leader), "{brokers:?} for leader {leader}");
    });
}
