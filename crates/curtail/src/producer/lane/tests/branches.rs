//! The side lane of a broker.

use curtail_proto::accumulator::PartitionQueue;

use super::*;
use crate::producer::topic::TopicState;

/// Starts a producer whose broker 1 leads partitions 0 and 1, and broker 2 partition 2. Partition 0 has broker 2 in
/// sync, partition 1 has not.
fn start_with_followers(
    change: impl FnOnce(&mut ProducerConfig),
) -> (Arc<Shared>, [Arc<Partition>; 3]) {
    let shared = start_with(|config| {
        config.linger = Duration::ZERO;
        change(config);
    });
    let topic = learn(&shared, &[1, 2]);
    let partitions = [0, 1, 2].map(|index: usize| topic.partitions[index].clone());
    (shared, partitions)
}

/// Metadata with these replicas of partition 0 in sync.
fn learn(shared: &Shared, in_sync: &[i32]) -> Arc<TopicState> {
    let mut answer = response(3, 1, 5);
    let partitions = &mut answer.topics[0].partitions;
    partitions[0].isr = in_sync.to_vec();
    partitions[1].isr = vec![1];
    (partitions[2].leader_id, partitions[2].isr) = (2, vec![2]);
    shared.metadata.learn(&answer);
    let known = shared.metadata.snapshot();
    shared.adopt(known.topic("t").expect("it is known")).expect("open")
}

/// Broker 2 completes no handshake.
fn cut_off(shared: &Shared, [_, _, gone]: &[Arc<Partition>; 3]) {
    let unreachable = lane_of(gone);
    unreachable.gate.set_unreachable();
    shared.notice(&unreachable);
}

/// Acknowledges the first batch that the lane can send. Returns its partition.
fn acknowledge_one(shared: &Shared, lane: &Arc<Lane>) -> i32 {
    open(lane, 9);
    lane.transmit(shared).expect("it takes everything");
    let request = lane.answered(0, 100, Instant::now()).expect("a request");
    lane.take_down();
    acknowledge(shared, lane, request)
}

/// Opens a batch, changes the queue, and hands it over as a sender does.
fn open_and(
    change: impl FnOnce(&mut PartitionQueue<Completion>),
    shared: &Shared,
    partition: &Arc<Partition>,
) -> Arc<Lane> {
    drop(open_batch(shared, partition, Instant::now().into_std()));
    let mut state = partition.state.lock();
    change(&mut state.queue);
    resubmit(state, partition);
    lane_of(partition)
}

/// Hands over a batch that may go to any partition.
fn open_one(shared: &Shared, partition: &Arc<Partition>) -> Arc<Lane> {
    open_and(|_| {}, shared, partition)
}

/// Hands over a batch that must go to this partition.
fn make_bound(shared: &Shared, partition: &Arc<Partition>) -> Arc<Lane> {
    open_and(PartitionQueue::bind, shared, partition)
}

#[tokio::test]
async fn bound_batches_that_wait_for_an_unreachable_replica_have_the_side_lane() {
    let (shared, partitions) = start_with_followers(|_| {});
    let [stuck, other, gone] = &partitions;
    assert_eq!(make_bound(&shared, stuck).branch, Branch::Main);
    cut_off(&shared, &partitions);
    let side = lane_of(stuck);
    assert_eq!((side.broker, side.branch), (1, Branch::Side), "the waiting batch is bound");
    assert_eq!(make_bound(&shared, gone).branch, Branch::Main);

    let main = make_bound(&shared, other);
    assert_eq!(main.branch, Branch::Main);
    assert_eq!(acknowledge_one(&shared, &main), 1, "it does not share a request");
    learn(&shared, &[1]);
    assert!(Arc::ptr_eq(&side, &lane_of(stuck)), "until it acknowledges");
    assert_eq!(acknowledge_one(&shared, &side), 0);
    assert_eq!(lane_of(stuck).branch, Branch::Main);
    shared.stop();
}

#[tokio::test]
async fn batches_that_are_not_bound_stay_on_the_main_lane() {
    let (shared, partitions) = start_with_followers(|_| {});
    drop(open_batch(&shared, &partitions[0], Instant::now().into_std()));
    cut_off(&shared, &partitions);
    assert_eq!(lane_of(&partitions[0]).branch, Branch::Main);
    assert_eq!(make_bound(&shared, &partitions[0]).branch, Branch::Side);
    shared.stop();
}

#[tokio::test]
async fn batches_that_wait_move_with_their_partition() {
    let (shared, partitions) = start_with_followers(|config| config.max_in_flight = 1);
    let stuck = &partitions[0];
    make_bound(&shared, stuck);
    cut_off(&shared, &partitions);
    let side = lane_of(stuck);
    stuck.state.lock().queue.seal_now(&shared.policy);
    make_bound(&shared, stuck);
    learn(&shared, &[1]);
    acknowledge_one(&shared, &side);
    let main = lane_of(stuck);
    for (lane, sends) in [(main, 1), (side, 0)] {
        let socket = open(&lane, 9);
        assert_eq!(written(&lane, &shared, &socket).len(), sends);
    }
    shared.stop();
}

#[tokio::test]
async fn without_followers_to_wait_for_there_is_no_side_lane() {
    let (shared, partitions) = start_with_followers(|config| config.acks = Acks::Leader);
    make_bound(&shared, &partitions[0]);
    cut_off(&shared, &partitions);
    let lane = make_bound(&shared, &partitions[0]);
    assert!(lane.branch == Branch::Main && lane.side().is_none());
    shared.stop();
}

#[tokio::test]
async fn batches_return_to_the_main_lane_if_the_side_lane_cannot_connect() {
    let (shared, partitions) = start_with_followers(|_| {});
    let stuck = &partitions[0];
    make_bound(&shared, stuck);
    cut_off(&shared, &partitions);
    let side = lane_of(stuck);
    assert_eq!(side.branch, Branch::Side);
    shared.close_side(&side);
    let main = lane_of(stuck);
    assert_eq!((main.broker, main.branch), (1, Branch::Main));
    shared.close_side(&main);
    assert_eq!(acknowledge_one(&shared, &main), 0);
    assert_eq!(make_bound(&shared, stuck).branch, Branch::Main);
    shared.stop();
}

#[tokio::test]
async fn the_side_connection_is_not_needed_after_a_while_without_batches() {
    let (shared, partitions) = start_with_followers(|_| {});
    let main = make_bound(&shared, &partitions[0]);
    cut_off(&shared, &partitions);
    let side = lane_of(&partitions[0]);
    side.open(Arc::new(Slow::default()), 9);
    let later = Instant::now().into_std() + QUIET;
    assert_eq!(side.timed_out(later).1, None, "a batch waits");
    learn(&shared, &[1]);
    acknowledge_one(&shared, &side);
    for lane in [&main, &side] {
        lane.open(Arc::new(Slow::default()), 9);
    }
    let later = Instant::now().into_std() + QUIET;
    let at = side.next_deadline(&mut side.line()).expect("the driver looks again");
    assert!(at <= later, "{:?}", later - at);
    assert_eq!(side.timed_out(later - QUIET / 2).1, None);
    assert_eq!([&main, &side].map(|lane| lane.timed_out(later).1), [None, Some(Reason::Unused)]);
    shared.stop();
}

/// A producer whose partitions have no followers that are known. Records stay where they are.
fn start_apart(change: impl FnOnce(&mut ProducerConfig)) -> Arc<Shared> {
    start_with(|config| {
        config.prefer_proven_partitions = false;
        config.linger = Duration::ZERO;
        change(config);
    })
}

#[tokio::test]
async fn batches_for_a_new_leader_have_the_side_lane_until_it_acknowledges() {
    let shared = start_apart(|_| {});
    let partitions = adopt(&shared, 1, 5);
    let first = open_one(&shared, &partitions[0]);
    assert_eq!((first.broker, first.branch), (1, Branch::Main), "the first leader that is known");
    acknowledge_one(&shared, &first);
    adopt(&shared, 2, 6);
    assert_eq!(lane_of(&partitions[0]).branch, Branch::Main, "there is no batch");
    let side = open_one(&shared, &partitions[0]);
    assert_eq!((side.broker, side.branch), (2, Branch::Side));
    adopt(&shared, 2, 6);
    assert!(Arc::ptr_eq(&side, &lane_of(&partitions[0])), "the leader is as unproven as before");

    assert_eq!(acknowledge_one(&shared, &side), 0);
    let main = open_one(&shared, &partitions[0]);
    assert_eq!((main.broker, main.branch), (2, Branch::Main));
    acknowledge_one(&shared, &main);
    assert_eq!(open_one(&shared, &partitions[1]).branch, Branch::Side, "it proves itself alone");
    adopt(&shared, 2, 7);
    let another_term = open_one(&shared, &partitions[0]);
    assert!(Arc::ptr_eq(&side, &another_term), "another term of the same broker");
    shared.stop();
}

#[tokio::test]
async fn records_of_the_partition_stay_on_the_main_lane_to_a_new_leader() {
    let shared = start_apart(|_| {});
    let [partition, _] = adopt(&shared, 1, 5);
    adopt(&shared, 2, 6);
    let main = make_bound(&shared, &partition);
    assert_eq!((main.broker, main.branch), (2, Branch::Main));
    assert_eq!(acknowledge_one(&shared, &main), 0);
    assert_eq!(open_one(&shared, &partition).branch, Branch::Main, "it has acknowledged");
    shared.stop();
}

#[tokio::test]
async fn new_leaders_share_the_connection_if_nothing_waits_for_followers_or_if_it_is_switched_off()
{
    let without_followers = start_apart(|config| config.acks = Acks::Leader);
    let off = start_apart(|config| config.separate_unproven_partitions = false);
    for shared in [without_followers, off] {
        let [partition, _] = adopt(&shared, 1, 5);
        adopt(&shared, 2, 6);
        assert_eq!(open_one(&shared, &partition).branch, Branch::Main);
        shared.stop();
    }
}

#[tokio::test]
async fn a_new_leader_has_the_main_lane_if_the_side_lane_cannot_connect() {
    let shared = start_apart(|_| {});
    let [partition, other] = adopt(&shared, 1, 5);
    adopt(&shared, 2, 6);
    let side = open_one(&shared, &partition);
    assert_eq!(side.branch, Branch::Side);
    shared.close_side(&side);
    let main = lane_of(&partition);
    assert_eq!((main.broker, main.branch), (2, Branch::Main));
    assert_eq!(acknowledge_one(&shared, &main), 0);
    assert_eq!(open_one(&shared, &partition).branch, Branch::Main);
    assert_eq!(open_one(&shared, &other).branch, Branch::Side, "each partition tries");
    shared.close_side(&main);
    adopt(&shared, 1, 7);
    assert_eq!(open_one(&shared, &partition).branch, Branch::Side, "the next leader");
    shared.stop();
}
