//! The client through a proxy, on both clusters, and the proxy's faults.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use curtail::{
    Admin, AdminConfig, Consumer, ConsumerConfig, Env, Producer, ProducerConfig, Record,
    TopicPartition, TransactionalProducer,
};
use curtail_cluster::{
    ApiKey, CutClients, Delay, Direction, Disconnect, ErrorCode, Fault, HandledRequest,
    KafkaRelease, Observer, Requests, Time, When, WrongLeader,
    proxy::{Proxy, ProxyConfig},
};
use tokio::time::{Instant, timeout};

use crate::common::{Backend, read_all, read_past_damage, until};

async fn proxy(backend: &Backend) -> Proxy {
    let config = ProxyConfig::to(&backend.bootstrap()).unwrap();
    Proxy::start(config, Env::real()).await.unwrap()
}

async fn with_topic(brokers: u32) -> (Backend, Proxy) {
    let backend = Backend::embedded(brokers).await;
    backend.create_topic("t", 1, brokers as i16).await;
    let proxy = proxy(&backend).await;
    (backend, proxy)
}

fn producer(proxy: &Proxy, properties: &[(&str, &str)]) -> Producer {
    let mut config = ProducerConfig::new(proxy.bootstrap());
    for (name, value) in properties {
        config.set(name, value).unwrap();
    }
    Producer::new(config).unwrap()
}

fn hits(proxy: &Proxy, name: &str) -> u64 {
    proxy.faults().into_iter().find(|fault| fault.name == name).expect("it is listed").hits
}

/// The APIs that have passed, by broker.
#[derive(Default)]
struct Seen(Mutex<BTreeSet<(i32, ApiKey)>>);

impl Observer for Seen {
    fn appended(&self, _: i32, _: &str, _: i32, _: i64, _: i64, _: Instant) {}

    fn committed(&self, _: i32, _: &str, _: i32, _: i64, _: Instant) {}

    fn handled(&self, request: &HandledRequest<'_>) {
        self.0.lock().unwrap().insert((request.broker, request.api));
    }
}

impl Seen {
    fn has(&self, broker: i32, api: ApiKey) -> bool {
        self.0.lock().unwrap().contains(&(broker, api))
    }
}

const PARTITIONS: i32 = 6;
const RECORDS: u32 = 300;

async fn clients_work_through_a_proxy(backend: &Backend) {
    backend.create_topic("t", PARTITIONS, 3).await;
    let proxy = proxy(backend).await;
    let seen = Arc::new(Seen::default());
    proxy.observe(Arc::clone(&seen) as Arc<dyn Observer>);

    // Every broker has an address of the proxy.
    let admin = Admin::new(AdminConfig::new(proxy.bootstrap())).unwrap();
    let described = admin.describe_cluster().await.unwrap();
    let shown: BTreeMap<i32, String> = described
        .brokers
        .iter()
        .map(|broker| (broker.id, format!("{}:{}", broker.host, broker.port)))
        .collect();
    let known: BTreeMap<i32, String> =
        proxy.brokers().into_iter().map(|broker| (broker.id, broker.address)).collect();
    assert_eq!(shown, known);
    let direct: BTreeSet<&str> = backend.bootstrap().leak().split(',').collect();
    assert!(shown.values().all(|address| !direct.contains(address.as_str())), "{shown:?}");

    let plain = producer(&proxy, &[("linger.ms", "1")]);
    let mut sent = Vec::new();
    for number in 0..RECORDS {
        let key = number.to_be_bytes();
        sent.push(plain.send(Record::to("t").key(&key).value("plain")).await.unwrap());
    }
    for delivery in sent {
        delivery.await.unwrap();
    }

    let mut config = ProducerConfig::new(proxy.bootstrap());
    config.set("transactional.id", "x").unwrap();
    let mut transactional = TransactionalProducer::new(config).unwrap();
    transactional.init_transactions().await.unwrap();
    for commit in [true, false] {
        let transaction = transactional.begin_transaction().await.unwrap();
        for partition in 0..PARTITIONS {
            let record = Record::to("t").partition(partition).value("transactional");
            transaction.send(record).await.unwrap().await.unwrap();
        }
        match commit {
            true => transaction.commit().await.unwrap(),
            false => transaction.abort().await.unwrap(),
        }
    }

    let mut config = ConsumerConfig::new(proxy.bootstrap()).group_id("g");
    for (name, value) in [
        ("auto.offset.reset", "earliest"),
        ("isolation.level", "read_committed"),
        ("enable.auto.commit", "false"),
    ] {
        config.set(name, value).unwrap();
    }
    let mut consumer = Consumer::new(config).unwrap();
    consumer.subscribe(["t"]).unwrap();
    let mut values: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
    let reading = async {
        while values.values().sum::<u32>() < RECORDS + PARTITIONS as u32 {
            for record in consumer.poll(Duration::from_secs(1)).await.unwrap() {
                *values.entry(record.value().unwrap().to_vec()).or_default() += 1;
            }
        }
        consumer.commit().await.unwrap();
    };
    timeout(Duration::from_secs(60), reading).await.expect("all records in time");
    consumer.close().await;
    let expected = [(b"plain".to_vec(), RECORDS), (b"transactional".to_vec(), PARTITIONS as u32)];
    assert_eq!(values, expected.into());

    // Each leader was written and read through the proxy.
    for id in known.into_keys() {
        for api in [ApiKey::PRODUCE, ApiKey::FETCH] {
            assert!(seen.has(id, api), "broker {id}: {api}");
        }
    }
}

#[tokio::test]
async fn clients_work_through_a_proxy_embedded() {
    clients_work_through_a_proxy(&Backend::embedded(3).await).await;
}

#[tokio::test]
async fn clients_work_through_a_proxy_apache() {
    let Some(backend) = Backend::apache("clients_work_through_a_proxy_apache", 3) else { return };
    clients_work_through_a_proxy(&backend).await;
    faults_of_a_producer(&backend, &proxy(&backend).await).await;
}

/// Each fault meets a record that the producer sends again, and none of them duplicates it.
async fn faults_of_a_producer(backend: &Backend, proxy: &Proxy) {
    backend.create_topic("faulty", 1, 1).await;
    let producer = producer(proxy, &[("linger.ms", "0"), ("request.timeout.ms", "1000")]);
    producer.warm_up(&["faulty"]).await.unwrap();
    let produce = || Requests::of(ApiKey::PRODUCE).on_topic("faulty");
    let whole = || Requests::of(ApiKey::PRODUCE);
    let partly = Disconnect { requests: produce().times(2), when: When::Response, after_bytes: 7 };
    let hint = WrongLeader { requests: produce(), epoch_shift: -1, ..WrongLeader::default() };
    let faults = [
        vec![Fault::error(produce().times(2), ErrorCode::NOT_LEADER_OR_FOLLOWER)],
        vec![Fault::error(produce().times(2), ErrorCode::NOT_ENOUGH_REPLICAS)],
        vec![Fault::disconnect(whole().times(2), When::Request)],
        vec![Fault::disconnect(produce().times(2), When::Response)],
        vec![Fault::Disconnect(partly)],
        vec![Fault::silence(produce().times(1))],
        vec![Fault::delay(produce().times(1), Time::Fixed(Duration::from_millis(200)))],
        vec![
            Fault::WrongLeader(hint),
            Fault::error(produce().times(1), ErrorCode::NOT_LEADER_OR_FOLLOWER),
        ],
    ];
    let mut offset = 0;
    for faults in faults {
        let text = format!("{faults:?}");
        let names: Vec<String> =
            faults.into_iter().map(|fault| proxy.inject(fault).unwrap()).collect();
        let sent = producer.send(Record::to("faulty").value("a")).await.unwrap().await.unwrap();
        assert_eq!(sent.offset, Some(offset), "{text}");
        offset += 1;
        for name in names {
            assert!(hits(proxy, &name) > 0, "{text}");
            assert!(proxy.lift(&name));
        }
    }
    assert_eq!(read_all(backend, "faulty", 1).await[&0].len() as i64, offset);
}

#[tokio::test]
async fn records_are_written_once_through_the_faults_of_a_proxy() {
    let (backend, proxy) = with_topic(1).await;
    faults_of_a_producer(&backend, &proxy).await;
}

/// Waits for the only broker's next record.
async fn send(producer: &Producer) -> Duration {
    let begun = Instant::now();
    producer.send(Record::to("t").value("a")).await.unwrap().await.unwrap();
    begun.elapsed()
}

#[tokio::test]
async fn a_proxy_delays_throttles_and_cuts() {
    let (_backend, proxy) = with_topic(1).await;
    let producer = producer(&proxy, &[("linger.ms", "0"), ("client.id", "app")]);
    producer.warm_up(&["t"]).await.unwrap();
    let time = Duration::from_millis(300);
    let delay = |client: &str| {
        let requests = Requests::of(ApiKey::PRODUCE).to_broker(1).by_client(client);
        Fault::Delay(Delay { requests, time: Time::Fixed(time) })
    };
    let name = proxy.inject(delay("app*")).unwrap();
    assert!(send(&producer).await >= time);
    proxy.lift(&name);
    let name = proxy.inject(delay("other")).unwrap();
    send(&producer).await;
    assert_eq!(hits(&proxy, &name), 0);
    proxy.lift_all();

    proxy.inject(Fault::throttle(1000)).unwrap();
    assert!(send(&producer).await >= Duration::from_millis(50));
    proxy.lift_all();

    for direction in [Direction::In, Direction::Out, Direction::Both] {
        let cut = CutClients { broker: Some(1), direction, ..CutClients::default() };
        let name = proxy.inject(Fault::CutClients(cut)).unwrap();
        let mut sending = Box::pin(send(&producer));
        let held = timeout(Duration::from_millis(300), &mut sending).await;
        assert!(held.is_err(), "{direction:?}");
        proxy.lift(&name);
        sending.await;
    }
}

#[tokio::test]
async fn a_consumer_detects_a_batch_that_a_proxy_damages() {
    let (_backend, proxy) = with_topic(1).await;
    let producer = producer(&proxy, &[]);
    send(&producer).await;
    let name = proxy.inject(Fault::corrupt(Requests::all().on_topic("t").times(2))).unwrap();
    let (damaged, first) = read_past_damage(proxy.bootstrap(), "t").await;
    assert_eq!((damaged, hits(&proxy, &name)), (2, 2));
    assert_eq!(first, b"a");
}

#[tokio::test]
async fn a_group_outlasts_errors_that_a_proxy_injects() {
    let (_backend, proxy) = with_topic(1).await;
    let producer = producer(&proxy, &[]);
    send(&producer).await;
    let mut names = Vec::new();
    for (api, code) in [
        (ApiKey::METADATA, ErrorCode::LEADER_NOT_AVAILABLE),
        (ApiKey::FIND_COORDINATOR, ErrorCode::COORDINATOR_NOT_AVAILABLE),
        (ApiKey::JOIN_GROUP, ErrorCode::COORDINATOR_LOAD_IN_PROGRESS),
        (ApiKey::SYNC_GROUP, ErrorCode::REBALANCE_IN_PROGRESS),
        (ApiKey::OFFSET_FETCH, ErrorCode::COORDINATOR_LOAD_IN_PROGRESS),
        (ApiKey::LIST_OFFSETS, ErrorCode::LEADER_NOT_AVAILABLE),
        (ApiKey::FETCH, ErrorCode::UNKNOWN_LEADER_EPOCH),
        (ApiKey::OFFSET_COMMIT, ErrorCode::COORDINATOR_LOAD_IN_PROGRESS),
    ] {
        names.push(proxy.inject(Fault::error(Requests::of(api).times(1), code)).unwrap());
    }
    let mut config = ConsumerConfig::new(proxy.bootstrap()).group_id("g");
    config.set("auto.offset.reset", "earliest").unwrap();
    config.set("enable.auto.commit", "false").unwrap();
    let mut consumer = Consumer::new(config).unwrap();
    consumer.subscribe(["t"]).unwrap();
    let reading = async {
        while consumer.poll(Duration::from_secs(1)).await.unwrap().is_empty() {}
        consumer.commit().await.unwrap();
    };
    timeout(Duration::from_secs(60), reading).await.expect("a record in time");
    for name in names {
        assert_eq!(hits(&proxy, &name), 1, "{name}");
    }
    consumer.close().await;
}

#[tokio::test]
async fn clients_work_with_the_versions_of_every_release_through_a_proxy() {
    let (_backend, proxy) = with_topic(1).await;
    let releases: Vec<KafkaRelease> = KafkaRelease::all().collect();
    let count = releases.len();
    for release in releases {
        let name = proxy.inject(Fault::kafka_version(release)).unwrap();
        let producer = producer(&proxy, &[]);
        let sent = producer.send(Record::to("t").value("a")).await.unwrap().await;
        sent.unwrap_or_else(|error| panic!("{release}: {error}"));
        assert_eq!(read_all_through(&proxy).await, 1 + hits_before(&release), "{release}");
        proxy.lift(&name);
    }
    assert!(count > 20);
}

/// The number of releases before this one, each of which has written a record.
fn hits_before(release: &KafkaRelease) -> usize {
    KafkaRelease::all().position(|known| known == *release).unwrap()
}

async fn read_all_through(proxy: &Proxy) -> usize {
    let mut consumer = Consumer::new(ConsumerConfig::new(proxy.bootstrap())).unwrap();
    let partition = TopicPartition::new("t", 0);
    consumer.assign([partition.clone()]);
    consumer.seek_to_beginning([&partition]).unwrap();
    let end = consumer.end_offsets(std::slice::from_ref(&partition)).await.unwrap()[&partition];
    let mut count = 0;
    while (count as i64) < end {
        count += consumer.poll(Duration::from_secs(1)).await.unwrap().len();
    }
    consumer.close().await;
    count
}

/// The broker's address is that of the proxy while it is down, and its clients find it again.
#[tokio::test]
async fn clients_outlast_a_restart_of_a_broker_behind_a_proxy() {
    let (backend, proxy) = with_topic(2).await;
    let Backend::Embedded(cluster) = &backend else { unreachable!("made so") };
    let producer = producer(&proxy, &[("linger.ms", "0")]);
    send(&producer).await;
    let before = proxy.brokers();
    let leader = cluster.leader("t", 0).unwrap().0;
    cluster.kill(leader);
    send(&producer).await;
    cluster.restart(leader).await.unwrap();
    until("the replica returns", || cluster.isr("t", 0).unwrap().len() == 2).await;
    cluster.move_leader("t", 0, leader).unwrap();
    send(&producer).await;
    let addresses = |brokers: Vec<curtail_cluster::proxy::ProxiedBroker>| {
        brokers.into_iter().map(|broker| (broker.id, broker.address)).collect::<Vec<_>>()
    };
    assert_eq!(addresses(before), addresses(proxy.brokers()));
    assert_eq!(read_all(&backend, "t", 1).await[&0].len(), 3);
}
