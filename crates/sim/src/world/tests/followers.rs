//! How long `acks=all` waits for followers, as on Apache Kafka (decision 0054).

use super::*;

/// Enough for every exchange that nothing delays.
const QUICK: Duration = Duration::from_millis(10);
const WAIT: Duration = Duration::from_millis(500);
const BACKOFF: Duration = Duration::from_secs(1);

/// Two brokers: one leads a partition, the other follows.
struct Pair {
    handle: Handle,
    cluster: Cluster,
    producer: Producer,
}

impl Pair {
    async fn start(handle: Handle) -> Self {
        let config = ClusterConfig { brokers: 2, ..ClusterConfig::default() };
        let cluster = handle.start_cluster(config).await.unwrap();
        let producer = producer(&handle, &cluster);
        Self { handle, cluster, producer }
    }

    async fn create(&self, topic: &str, partitions: i32) {
        self.cluster.create_topic(topic, partitions, 2, &[]).unwrap();
        self.cluster.settled().await;
        self.producer.warm_up(&[topic]).await.unwrap();
    }

    /// A partition that the broker leads.
    fn led_by(&self, topic: &str, broker: i32) -> i32 {
        let leads = |partition: &i32| self.cluster.leader(topic, *partition).unwrap().0 == broker;
        (0..2).find(leads).unwrap()
    }

    /// Writes a record with `acks=all` and returns when it was acknowledged.
    async fn write(&self, topic: &str, partition: i32) -> Duration {
        self.write_from(&self.producer, topic, partition).await
    }

    /// The same from another producer: a broker serves the requests of one connection in order.
    async fn write_from(&self, producer: &Producer, topic: &str, partition: i32) -> Duration {
        let record = Record::to(topic).partition(partition).value(b"x");
        producer.send(record).await.unwrap().await.unwrap();
        self.handle.now()
    }
}

fn producer(handle: &Handle, cluster: &Cluster) -> Producer {
    let env = handle.env(handle.add_host());
    let config = ProducerConfig::new(cluster.bootstrap()).linger(Duration::ZERO);
    Producer::with_env(config, &env).unwrap()
}

fn in_pair<F>(work: impl FnOnce(Pair) -> F + Send + 'static)
where
    F: Future<Output = ()> + Send,
{
    let world = World::new(model(), 1).unwrap();
    let handle = world.handle();
    world.run(async move { work(Pair::start(handle).await).await });
}

fn assert_between(elapsed: Duration, least: Duration, most: Duration) {
    assert!((least..=most).contains(&elapsed), "{elapsed:?} is not in {least:?}..={most:?}");
}

#[test]
fn the_first_partition_of_a_leader_is_fetched_at_once() {
    in_pair(|pair| async move {
        pair.create("first", 2).await;
        for broker in [1, 2] {
            let began = pair.handle.now();
            let done = pair.write("first", pair.led_by("first", broker)).await;
            assert_between(done - began, Duration::ZERO, QUICK);
        }
    });
}

#[test]
fn a_later_partition_waits_until_the_outstanding_fetch_returns() {
    in_pair(|pair| async move {
        pair.create("first", 2).await;
        let fetched = pair.write("first", pair.led_by("first", 1)).await;
        sleep(Duration::from_millis(100)).await;
        pair.create("second", 2).await;
        let done = pair.write("second", pair.led_by("second", 1)).await;
        assert_between(done - fetched, WAIT, WAIT + QUICK);
    });
}

#[test]
fn records_of_another_partition_end_the_wait_of_a_new_one() {
    in_pair(|pair| async move {
        pair.create("first", 2).await;
        let (first, began) = (pair.led_by("first", 1), pair.handle.now());
        let beside = producer(&pair.handle, &pair.cluster);
        pair.write_from(&beside, "first", first).await;
        pair.create("second", 2).await;
        let second = pair.led_by("second", 1);
        let other = async {
            sleep(Duration::from_millis(50)).await;
            pair.write_from(&beside, "first", first).await
        };
        let (done, _) = tokio::join!(pair.write("second", second), other);
        assert_between(done - began, Duration::from_millis(50), Duration::from_millis(100));
    });
}

#[test]
fn a_follower_ahead_of_its_leader_backs_off() {
    in_pair(|pair| async move {
        pair.cluster.set_metadata_delay(1, Duration::from_millis(40));
        let asked = pair.handle.now();
        pair.create("t", 2).await;
        let done = pair.write("t", pair.led_by("t", 1)).await;
        assert_between(done - asked, BACKOFF, BACKOFF + QUICK);
    });
}

#[test]
fn a_lagging_follower_does_not_back_off() {
    in_pair(|pair| async move {
        pair.cluster.set_metadata_delay(1, Duration::from_millis(40));
        pair.create("t", 2).await;
        let began = pair.handle.now();
        let done = pair.write("t", pair.led_by("t", 2)).await;
        assert_between(done - began, Duration::ZERO, QUICK);
    });
}

/// Both partitions of the lane are delayed. The one that comes back under a newer epoch is fetched at once, while the
/// lane and the other's delay stay.
#[test]
fn a_new_leader_epoch_ends_the_delay_of_its_partition_alone() {
    in_pair(|pair| async move {
        pair.cluster.set_metadata_delay(1, Duration::from_millis(40));
        let asked = pair.handle.now();
        pair.create("t", 4).await;
        let mine = |partition: &i32| pair.cluster.leader("t", *partition).unwrap().0 == 1;
        let led: Vec<i32> = (0..4).filter(mine).collect();
        pair.cluster.set_metadata_delay(1, Duration::ZERO);
        for leader in [2, 1] {
            pair.cluster.move_leader("t", led[0], leader).unwrap();
            pair.cluster.settled().await;
        }
        let began = pair.handle.now();
        let (moved, stayed) = tokio::join!(pair.write("t", led[0]), pair.write("t", led[1]));
        assert_between(moved - began, Duration::ZERO, Duration::from_millis(100));
        // At the end of its delay a fetch of the other one may be outstanding.
        assert_between(stayed - asked, BACKOFF, BACKOFF + WAIT);
    });
}
