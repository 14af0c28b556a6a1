use curtail_proto::accumulator::Incarnation;
use curtail_wire::Uuid;

use super::{
    super::{
        lane::tests::{acknowledge, lane_of, open, open_batch, queue, response, start_with},
        topic::Form,
    },
    *,
};

fn topic(partitions: usize) -> TopicState {
    let form = Form { id: Uuid::ZERO, incarnation: Incarnation::FIRST, count: partitions };
    let partition = |index| Partition::new("t".into(), index, None);
    let partitions = (0..partitions as i32).map(partition).collect();
    TopicState::new("t".into(), form, partitions, 16_384, None, 0)
}

fn route(partitions: std::ops::Range<u32>) -> Route {
    Routes::default().carry_on(None, partitions.collect())
}

/// The first partition of a broker has the backlog. Beyond [`LOOKS`] partitions no search would find another one.
#[test]
fn the_first_proven_partition_is_remembered_while_its_broker_leads_it() {
    let topic = topic(300);
    let prove = |index: u32| topic.partitions[index as usize].standing.prove();
    let former = route(0..150);
    prove(100);
    former.remember(&topic, 100);
    prove(120);
    former.remember(&topic, 120);
    assert_eq!(former.home(&topic), Some(100), "the first");
    let now = route(150..300);
    now.home.set(100);
    assert_eq!(now.home(&topic), None, "it has another leader");
    prove(280);
    now.remember(&topic, 280);
    assert_eq!(now.home(&topic), Some(280), "in its place");
}

#[test]
fn an_unproven_partition_keeps_all_as_the_pioneer_and_only_its_trial_otherwise() {
    let now = Duration::from_secs(60);
    let route = route(0..4);
    route.pioneer.set(1);
    route.trial.begin(2, now);
    let keeps = |index, has_sent| route.unproven_keeps(index, has_sent, now);
    for (index, has_sent, expected) in [
        (0, false, Keeps::None),
        (0, true, Keeps::None),
        (1, false, Keeps::All),
        (1, true, Keeps::All),
        (2, false, Keeps::All),
        (2, true, Keeps::Sent),
    ] {
        assert_eq!(keeps(index, has_sent), expected, "partition {index}, sent: {has_sent}");
    }
}

/// A topic with these leaders of its partitions.
fn led_by<const N: usize>(
    shared: &Shared,
    leaders: [i32; N],
) -> (Arc<TopicState>, [Arc<Partition>; N]) {
    let mut answer = response(N as i32, 1, 5);
    for (partition, leader) in answer.topics[0].partitions.iter_mut().zip(leaders) {
        partition.leader_id = leader;
    }
    shared.metadata.learn(&answer);
    let known = shared.metadata.snapshot();
    let topic = shared.adopt(known.topic("t").expect("it is known")).expect("open");
    let partitions = std::array::from_fn(|index| topic.partitions[index].clone());
    (topic, partitions)
}

/// A topic with a partition at each of two brokers. The second one is proven.
fn tried_and_proven(shared: &Shared) -> (Arc<TopicState>, [Arc<Partition>; 2]) {
    let (topic, partitions) = led_by(shared, [1, 2]);
    partitions[1].standing.prove();
    (topic, partitions)
}

fn begin_trial(shared: &Shared, topic: &TopicState, partition: &Partition) {
    let routes = topic.routes.load();
    let broker = partition.state.lock().account();
    let route = routes.by_lane.iter().find(|route| route.broker() == broker).expect("a route");
    route.trial.begin(partition.index as u32, shared.age(Instant::now()));
}

fn waiting_batches(partition: &Partition) -> usize {
    partition.state.lock().queue.waiting_batches()
}

#[tokio::test]
async fn batches_behind_a_trial_in_flight_move_and_the_trial_stays() {
    let shared = start_with(|config| config.linger = Duration::ZERO);
    let (topic, [tried, proven]) = tried_and_proven(&shared);
    let lane = lane_of(&tried);
    open(&lane, 9);
    let now = Instant::now().into_std();
    let _sent = open_batch(&shared, &tried, now);
    queue(&tried);
    assert_eq!(lane.requests_in_flight(), 1);
    begin_trial(&shared, &topic, &tried);
    let _behind = open_batch(&shared, &tried, now);
    evacuate(&shared, &topic, [&tried]);
    assert!(tried.state.lock().queue.has_sent(), "the trial has no outcome yet");
    assert_eq!((waiting_batches(&tried), waiting_batches(&proven)), (0, 1));
    shared.stop();
}

/// The trial begins with batches that wait. Only the first one is sent to an untried leader.
#[tokio::test]
async fn batches_behind_a_trial_move_once_it_is_sent() {
    let shared = start_with(|config| config.linger = Duration::ZERO);
    let (topic, [tried, proven]) = tried_and_proven(&shared);
    begin_trial(&shared, &topic, &tried);
    let now = Instant::now().into_std();
    let _first = open_batch(&shared, &tried, now);
    tried.state.lock().queue.leader_is_untried();
    tried.state.lock().queue.seal_now(&shared.policy);
    let _second = open_batch(&shared, &tried, now);
    evacuate(&shared, &topic, [&tried]);
    assert_eq!(waiting_batches(&tried), 2, "nothing is sent, so all of them may try");
    let lane = lane_of(&tried);
    open(&lane, 9);
    queue(&tried);
    assert_eq!(lane.requests_in_flight(), 1);
    assert_eq!((waiting_batches(&tried), waiting_batches(&proven)), (0, 1));
    shared.stop();
}

/// **Was a bug:** the partitions were left one after the other. An idle connection took a batch of the first one, and an
/// older one of the second was written behind it.
#[tokio::test]
async fn batches_of_several_partitions_move_oldest_first() {
    let shared = start_with(|config| config.linger = Duration::ZERO);
    let (topic, partitions) = led_by(&shared, [1, 1, 2]);
    let [younger, older, proven] = &partitions;
    proven.standing.prove();
    open(&lane_of(proven), 9);
    let now = Instant::now().into_std();
    let _moved = [(younger, 20), (older, 10)]
        .map(|(of, age)| open_batch(&shared, of, now + Duration::from_millis(age)));
    evacuate(&shared, &topic, &partitions[..2]);
    let counted = shared.routing.counters.read();
    assert_eq!((counted.moved_batches, counted.records_behind_newer), (2, 0));
    assert!(proven.state.lock().queue.has_sent(), "an idle connection takes it at once");
    shared.stop();
}

/// **Was a bug:** the partition was queued before the older batches of another broker moved to it. Its connection took a
/// newer one at once.
#[tokio::test]
async fn a_partition_that_is_proven_sends_the_older_batches_of_others_first() {
    let shared = start_with(|config| config.linger = Duration::ZERO);
    let (topic, [waits, tried]) = led_by(&shared, [1, 2]);
    let lane = lane_of(&tried);
    open(&lane, 9);
    let now = Instant::now().into_std();
    let _tries = open_batch(&shared, &tried, now);
    queue(&tried);
    lane.transmit(&shared).expect("it takes everything");
    for route in &topic.routes.load().by_lane {
        route.pioneer.set(route.partitions[0]);
    }
    let at = |millis| now + Duration::from_millis(millis);
    let _moves = open_batch(&shared, &waits, at(10));
    let _waits = open_batch(&shared, &tried, at(20));
    let request = lane.answered(0, 100, Instant::now()).expect("the request that tries");
    acknowledge(&shared, &lane, request);
    let counted = shared.routing.counters.read();
    assert_eq!((counted.moved_batches, counted.records_behind_newer), (1, 0));
    assert!(tried.state.lock().queue.has_sent(), "an idle connection takes it at once");
    shared.stop();
}
