mod followers;
mod idle;

use std::{io::ErrorKind, sync::Arc};

use curtail::{Consumer, ConsumerConfig, Producer, ProducerConfig, Record, TopicPartition};
use curtail_cluster::disk::Disk;
use curtail_net::{Socket, SocketExt as _, SocketOptions};
use tokio::time::{Instant, sleep};

use super::{disk::PacedDisk, *};

const US: u64 = 1000;

fn model() -> Model {
    Model {
        latency: Duration::from_micros(250),
        zones: Duration::from_millis(2),
        jitter: Duration::ZERO,
        bandwidth: 1_000_000_000,
        socket_buffer: 100_000,
        request: Duration::from_micros(10),
        append: Duration::from_micros(20),
        disk_bandwidth: 500_000_000,
    }
}

async fn pair(handle: &Handle) -> (Arc<dyn Socket>, Arc<dyn Socket>, HostId) {
    let (client, server) = (handle.add_host(), handle.add_host());
    let addr = SocketAddr::new(server.ip(), 9);
    let listener = handle.env(server).net.listen(addr).await.unwrap();
    let net = handle.env(client).net;
    let (ours, theirs) =
        tokio::join!(net.connect(addr, SocketOptions::default()), listener.accept());
    (ours.unwrap().into(), theirs.unwrap().0.into(), server)
}

#[test]
fn messages_take_their_way_and_their_bandwidth_to_the_nanosecond() {
    let world = World::new(model(), 1).unwrap();
    let handle = world.handle();
    world.run(async move {
        let began = Instant::now();
        let (ours, theirs, _) = pair(&handle).await;
        assert_eq!(handle.clock.now(), 500 * US);
        ours.write_all(&[1; 1000]).await.unwrap();
        ours.write_all(&[2; 1000]).await.unwrap();
        let mut buf = [0; 3000];
        assert_eq!(theirs.read(&mut buf).await.unwrap(), 1000);
        assert_eq!(handle.clock.now(), 751 * US);
        assert_eq!(theirs.read(&mut buf).await.unwrap(), 1000);
        assert_eq!((handle.clock.now(), buf[0]), (752 * US, 2));
        // Tokio's clock shows the same time, and its timers have the resolution they always have.
        assert_eq!(began.elapsed(), handle.now());
        sleep(Duration::from_millis(2)).await;
        assert_eq!(handle.now(), Duration::from_millis(3));
        handle.until(Duration::from_nanos(3_000_001)).await;
        assert_eq!(began.elapsed(), Duration::from_nanos(3_000_001));
        // No event between two distant timers is skipped.
        let far = tokio::spawn(sleep(Duration::from_secs(100)));
        handle.until(Duration::from_micros(7_000_500)).await;
        assert_eq!(handle.now(), Duration::from_micros(7_000_500));
        far.await.unwrap();
        assert_eq!(handle.now(), Duration::from_millis(100_004));
    });
}

#[test]
fn messages_between_zones_take_longer_and_delay_none_within_a_zone() {
    let world = World::new(model(), 1).unwrap();
    let handle = world.handle();
    world.run(async move {
        let [near, far, server] = ["a", "b", "a"].map(|zone| handle.add_host_in(zone));
        let addr = SocketAddr::new(server.ip(), 9);
        let listener = handle.env(server).net.listen(addr).await.unwrap();
        let mut connected = Vec::new();
        for (host, round_trip) in [(near, 500), (far, 4_500)] {
            let (net, began) = (handle.env(host).net, handle.now());
            let (ours, theirs) =
                tokio::join!(net.connect(addr, SocketOptions::default()), listener.accept());
            assert_eq!(handle.now() - began, Duration::from_micros(round_trip));
            connected.push((ours.unwrap(), theirs.unwrap().0));
        }
        let (mut buf, began) = ([0; 8], handle.now());
        connected[1].0.write_all(&[1]).await.unwrap();
        connected[0].0.write_all(&[2]).await.unwrap();
        for (at, delay) in [(0, 250), (1, 2_250)] {
            assert_eq!(connected[at].1.read(&mut buf).await.unwrap(), 1);
            assert_eq!((handle.now() - began).as_micros(), delay);
        }
    });
}

#[test]
fn a_full_connection_delays_writes_and_a_closed_one_fails() {
    let world = World::new(model(), 1).unwrap();
    let handle = world.handle();
    world.run(async move {
        let (ours, theirs, server) = pair(&handle).await;
        let big = vec![7; 250_000];
        let reading = tokio::spawn(async move {
            let mut read = Vec::new();
            let mut buf = vec![0; 60_000];
            while read.len() < 250_000 {
                let count = theirs.read(&mut buf).await.unwrap();
                assert!(count > 0);
                read.extend_from_slice(&buf[..count]);
            }
            (read, theirs)
        });
        ours.write_all(&big).await.unwrap();
        let (read, theirs) = reading.await.unwrap();
        assert!(read == big);
        theirs.write_all(b"bye").await.unwrap();
        drop(theirs);
        let mut buf = [0; 10];
        assert_eq!(ours.read(&mut buf).await.unwrap(), 3);
        assert_eq!(ours.read(&mut buf).await.unwrap(), 0);
        assert_eq!(ours.write_all(b"?").await.unwrap_err().kind(), ErrorKind::ConnectionReset);
        let addr = SocketAddr::new(server.ip(), 10);
        let refused = handle.env(server).net.connect(addr, SocketOptions::default()).await;
        assert_eq!(refused.err().unwrap().kind(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn a_disk_writes_for_one_request_at_a_time() {
    let world = World::new(model(), 1).unwrap();
    let handle = world.handle();
    world.run(async move {
        let disk = PacedDisk::new(handle.clock.clone(), model());
        let (first, second) = (disk.turn(1, 5000).unwrap(), disk.turn(2, 0).unwrap());
        second.await;
        assert_eq!(handle.clock.now(), 90 * US);
        first.await;
        assert_eq!(handle.clock.now(), 90 * US);
        handle.until(Duration::from_micros(100)).await;
        disk.turn(1, 0).unwrap().await;
        assert_eq!(handle.clock.now(), 130 * US);
    });
}

/// The old leader names the new one, which learns of its election only after 40 ms. Its refusal is the first of its
/// own. A consumer then waits for 20 ms, and then for 40, each plus or minus a fifth.
#[test]
fn a_consumer_soon_asks_a_new_leader_again() {
    for seed in 1..=3 {
        let world = World::new(model(), seed).unwrap();
        let handle = world.handle();
        let waited = world.run(async move {
            // A follower that asks the new leader too early would delay the record's commit.
            let config = ClusterConfig {
                brokers: 2,
                replica_fetch_backoff: Duration::from_millis(1),
                ..ClusterConfig::default()
            };
            let cluster = handle.start_cluster(config).await.unwrap();
            cluster.create_topic("t", 1, 2, &[]).unwrap();
            cluster.settled().await;
            let env = handle.env(handle.add_host());
            let config = ConsumerConfig::new(cluster.bootstrap());
            let mut consumer = Consumer::with_env(config, &env).unwrap();
            let partition = TopicPartition::new("t", 0);
            consumer.assign([partition.clone()]);
            consumer.seek_to_beginning(&[partition]).unwrap();
            assert!(consumer.poll(Duration::from_secs(1)).await.unwrap().is_empty());
            let (old, _) = cluster.leader("t", 0).unwrap();
            let new = 3 - old;
            cluster.set_metadata_delay(new, Duration::from_millis(40));
            cluster.move_leader("t", 0, new).unwrap();
            let moved = handle.now();
            let config = ProducerConfig::new(cluster.bootstrap());
            let producer = Producer::with_env(config, &env).unwrap();
            let sending = producer.send(Record::to("t").value(b"x"));
            let (sent, read) = tokio::join!(
                async { sending.await.unwrap().await },
                consumer.poll(Duration::from_secs(10))
            );
            sent.unwrap();
            assert_eq!(read.unwrap().len(), 1);
            handle.now() - moved
        });
        assert!(waited < Duration::from_millis(80), "seed {seed}: {waited:?}");
    }
}
