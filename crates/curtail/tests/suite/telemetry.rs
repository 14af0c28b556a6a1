//! Client metrics push (KIP-714), against the embedded cluster with a receiver, and against clusters without one.

use std::time::Duration;

use curtail::{
    Admin, AdminConfig, Consumer, ConsumerConfig, Error, ErrorCode, Producer, ProducerConfig,
    Record, TopicPartition, TransactionalProducer, Uuid,
    admin::{ConfigChange, ConfigEntry, ConfigResource, ConfigResourceKind, Mode},
    consumer::CloseOptions,
};
use curtail_cluster::{ClientMetrics, Cluster, ClusterConfig, Codec};
use prost::Message as _;
use tokio::{
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::{Instant, timeout},
};

use self::decoded::{MetricsData, Value, pairs};
use crate::common::{Backend, producer};

#[path = "../../../wire/src/otlp/decoded.rs"]
pub(crate) mod decoded;

const LIMIT: Duration = Duration::from_secs(30);

fn embedded(backend: &Backend) -> &Cluster {
    match backend {
        Backend::Embedded(cluster) => cluster,
        Backend::Apache(_) => panic!("an embedded cluster was started"),
    }
}

/// A cluster that receives metrics, with a subscription.
async fn receiving(settings: &[(&str, &str)]) -> (Backend, UnboundedReceiver<ClientMetrics>) {
    let backend = Backend::embedded(1).await;
    let (sender, pushes) = unbounded_channel();
    embedded(&backend)
        .receive_client_metrics(move |push| sender.send(push).map_err(|error| error.to_string()));
    subscribe(&backend, settings).await;
    backend.create_topic("t", 1, 1).await;
    (backend, pushes)
}

async fn subscribe(backend: &Backend, settings: &[(&str, &str)]) {
    let admin = Admin::new(AdminConfig::new(backend.bootstrap())).unwrap();
    let changes = settings
        .iter()
        .map(|(name, value)| ConfigChange::Set((*name).to_owned(), (*value).to_owned()));
    let resource = ConfigResource::ClientMetrics("all".into());
    let wanted = [(resource, changes.collect::<Vec<_>>())];
    for (_, done) in admin.incremental_alter_configs(&wanted, Mode::Apply).await.unwrap() {
        done.unwrap();
    }
    if let Backend::Embedded(cluster) = backend {
        cluster.settled().await;
    }
}

async fn next(pushes: &mut UnboundedReceiver<ClientMetrics>) -> (ClientMetrics, MetricsData) {
    let push = timeout(LIMIT, pushes.recv()).await.expect("a push in time").expect("a receiver");
    let data = MetricsData::decode(push.metrics.clone()).expect("MetricsData");
    (push, data)
}

fn sum(data: &MetricsData, name: &str) -> f64 {
    let points =
        data.metrics().filter(|metric| metric.name == name).flat_map(decoded::Metric::points);
    let values = points.map(|point| match point.value {
        Some(Value::AsDouble(value)) => value,
        _ => panic!("{point:?}"),
    });
    values.sum()
}

async fn send(producer: &Producer, records: usize) {
    for _ in 0..records {
        // The flush waits for it.
        drop(producer.send(Record::to("t").value("v")).await.unwrap());
    }
    producer.flush().await.unwrap();
}

const SENT: &str = "org.apache.kafka.producer.record.send.total";

#[tokio::test]
async fn producer_pushes_what_was_requested_at_the_interval_and_a_last_time_at_its_close() {
    let settings = [
        ("metrics", "org.apache.kafka.producer."),
        ("interval.ms", "200"),
        ("match", "client_id=p"),
    ];
    let (backend, mut pushes) = receiving(&settings).await;
    let producer = producer(&backend, &[("client.id", "p"), ("client.rack", "r1")]);
    send(&producer, 7).await;
    let id = producer.client_instance_id(LIMIT).await.unwrap();
    assert_eq!(producer.client_instance_id(Duration::ZERO).await.unwrap(), id);
    let (first, data) = next(&mut pushes).await;
    assert_eq!((first.client_instance_id, &*first.client_id, first.terminating), (id, "p", false));
    assert_eq!(first.codec, Codec::Zstd, "the first one that the broker accepts");
    assert_eq!(first.software.unwrap().0, "curtail");
    let resource = data.resource_metrics[0].resource.as_ref().unwrap();
    assert_eq!(pairs(&resource.attributes), [("client_rack".to_owned(), "r1".to_owned())]);
    assert!(data.metrics().all(|m| m.name.starts_with("org.apache.kafka.producer.")));
    assert!(data.metrics().any(|m| m.name.ends_with("producer.node.request.latency.max")));
    let mut sent = sum(&data, SENT);
    send(&producer, 3).await;
    producer.close().await.unwrap();
    loop {
        let (push, data) = next(&mut pushes).await;
        assert_eq!(push.client_instance_id, id);
        sent += sum(&data, SENT);
        if push.terminating {
            break;
        }
    }
    // Differences: each record counts once.
    assert_eq!(sent, 10.0);
}

#[tokio::test]
async fn consumer_pushes_the_metrics_of_its_fetches_and_its_group() {
    let (backend, mut pushes) = receiving(&[("metrics", "*"), ("interval.ms", "100")]).await;
    let producer = producer(&backend, &[("enable.metrics.push", "false")]);
    send(&producer, 5).await;
    let config = ConsumerConfig::from_properties([
        ("bootstrap.servers", &*backend.bootstrap()),
        ("group.id", "g"),
        ("group.instance.id", "i"),
        ("auto.offset.reset", "earliest"),
    ]);
    let mut consumer = Consumer::new(config.unwrap()).unwrap();
    consumer.subscribe(["t"]).unwrap();
    let (mut read, mut consumed) = (0, 0.0);
    while read < 5 {
        read += consumer.poll(LIMIT).await.unwrap().len();
    }
    consumer.commit().await.unwrap();
    consumer.close().await;
    loop {
        let (push, data) = next(&mut pushes).await;
        consumed += sum(&data, "org.apache.kafka.consumer.fetch.manager.records.consumed.total");
        if !push.terminating {
            continue;
        }
        let resource = data.resource_metrics[0].resource.as_ref().unwrap();
        let attributes = pairs(&resource.attributes);
        assert!(attributes.contains(&("group_id".into(), "g".into())), "{attributes:?}");
        assert!(attributes.contains(&("group_instance_id".into(), "i".into())), "{attributes:?}");
        assert!(attributes.iter().any(|(key, _)| key == "group_member_id"), "{attributes:?}");
        let names: Vec<_> = data.metrics().map(|metric| metric.name.as_str()).collect();
        for name in ["coordinator.commit.latency.avg", "coordinator.rebalance.latency.max"] {
            let name = format!("org.apache.kafka.consumer.{name}");
            assert!(names.contains(&&*name), "{name}: {names:?}");
        }
        break;
    }
    assert_eq!(consumed, 5.0);
}

#[tokio::test]
async fn unresponsive_coordinator_leaves_time_for_the_terminating_push() {
    const LEAVE_GROUP: i16 = 13;
    let (backend, mut pushes) = receiving(&[("metrics", "*"), ("interval.ms", "100")]).await;
    let config = ConsumerConfig::new(backend.bootstrap()).group_id("g");
    let mut consumer = Consumer::new(config).unwrap();
    consumer.subscribe(["t"]).unwrap();
    while consumer.assignment().is_empty() {
        consumer.poll(Duration::from_millis(20)).await.unwrap();
    }
    consumer.client_instance_id(LIMIT).await.unwrap();
    let member = consumer.handle().group_metadata().unwrap().member_id;
    embedded(&backend).delay(None, Some(LEAVE_GROUP), Duration::from_secs(3600));
    let began = Instant::now();
    let limit = Duration::from_secs(2);
    consumer.close_with(CloseOptions::new().timeout(limit)).await;
    assert!(began.elapsed() < limit, "the push was acknowledged");
    loop {
        let (push, data) = next(&mut pushes).await;
        if push.terminating {
            let resource = data.resource_metrics[0].resource.as_ref().unwrap();
            let expected = ("group_member_id".to_owned(), member);
            assert!(pairs(&resource.attributes).contains(&expected), "{resource:?}");
            break;
        }
    }
}

#[tokio::test]
async fn changed_subscription_reaches_the_client_with_the_same_id() {
    let (backend, mut pushes) = receiving(&[("metrics", "curtail."), ("interval.ms", "100")]).await;
    let producer = producer(&backend, &[]);
    send(&producer, 1).await;
    let (first, _) = next(&mut pushes).await;
    subscribe(&backend, &[("metrics", SENT)]).await;
    loop {
        let (push, data) = next(&mut pushes).await;
        assert_eq!(push.client_instance_id, first.client_instance_id);
        if data.metrics().all(|metric| metric.name == SENT) {
            break;
        }
    }
    producer.close().await.unwrap();
}

#[tokio::test]
async fn payload_keeps_to_the_brokers_limit() {
    let limited = |config: &mut ClusterConfig| config.telemetry_max_bytes = 1000;
    let backend = Backend::embedded_with(1, limited).await;
    let (sender, mut pushes) = unbounded_channel();
    embedded(&backend)
        .receive_client_metrics(move |push| sender.send(push).map_err(|error| error.to_string()));
    subscribe(&backend, &[("metrics", "*"), ("interval.ms", "100")]).await;
    backend.create_topic("t", 1, 1).await;
    let producer = producer(&backend, &[]);
    send(&producer, 1).await;
    for _ in 0..2 {
        let (push, data) = next(&mut pushes).await;
        assert!(push.metrics.len() <= 1000 && data.metrics().count() > 3, "{data:?}");
    }
    producer.close().await.unwrap();
}

#[tokio::test]
async fn client_moves_to_another_broker_with_its_id() {
    let backend = Backend::embedded(3).await;
    let (sender, mut pushes) = unbounded_channel();
    embedded(&backend)
        .receive_client_metrics(move |push| sender.send(push).map_err(|error| error.to_string()));
    subscribe(&backend, &[("metrics", "*"), ("interval.ms", "100")]).await;
    backend.create_topic("t", 1, 3).await;
    let producer = producer(&backend, &[]);
    send(&producer, 1).await;
    let (first, _) = next(&mut pushes).await;
    backend.kill(first.broker);
    loop {
        let (push, _) = next(&mut pushes).await;
        assert_eq!(push.client_instance_id, first.client_instance_id);
        if push.broker != first.broker {
            break;
        }
    }
}

#[tokio::test]
async fn transactional_producer_names_its_id_in_its_metrics() {
    // The terminating push does not wait for the interval.
    let (backend, mut pushes) = receiving(&[("metrics", SENT), ("interval.ms", "3600000")]).await;
    let config = ProducerConfig::new(backend.bootstrap()).transactional_id("tx");
    let mut producer = TransactionalProducer::new(config).unwrap();
    producer.init_transactions().await.unwrap();
    let transaction = producer.begin_transaction().await.unwrap();
    drop(transaction.send(Record::to("t").value("v")).await.unwrap());
    transaction.commit().await.unwrap();
    producer.client_instance_id(LIMIT).await.unwrap();
    producer.close().await.unwrap();
    let (push, data) = next(&mut pushes).await;
    assert!(push.terminating);
    let resource = data.resource_metrics[0].resource.as_ref().unwrap();
    assert_eq!(pairs(&resource.attributes), [("transactional_id".to_owned(), "tx".to_owned())]);
}

#[tokio::test]
async fn admin_receives_one_id_for_all_calls() {
    let (backend, _pushes) = receiving(&[]).await;
    let config = AdminConfig::new(backend.bootstrap());
    let off = Admin::new(config.clone()).unwrap();
    assert!(matches!(off.client_instance_id(LIMIT).await, Err(Error::IllegalState(_))));
    let admin = Admin::new(config.enable_metrics_push(true)).unwrap();
    let id = admin.client_instance_id(LIMIT).await.unwrap();
    assert_ne!(id, Uuid::ZERO);
    assert_eq!(admin.clone().client_instance_id(LIMIT).await.unwrap(), id);
}

#[tokio::test]
async fn client_asks_for_its_id_before_its_first_record() {
    let (backend, _pushes) = receiving(&[]).await;
    let producer = producer(&backend, &[]);
    let id = producer.client_instance_id(Duration::MAX).await.unwrap();
    let consumer = Consumer::new(ConsumerConfig::new(backend.bootstrap())).unwrap();
    assert_ne!(consumer.client_instance_id(LIMIT).await.unwrap(), id);
    // Without a subscription to metrics nothing is pushed.
    let began = Instant::now();
    consumer.close().await;
    producer.close().await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(1));
}

/// What every cluster without a receiver must show.
async fn nothing_is_pushed(backend: &Backend) {
    backend.create_topic("t", 1, 1).await;
    let producer = producer(backend, &[]);
    send(&producer, 1).await;
    let short = Duration::from_millis(200);
    match producer.client_instance_id(short).await {
        Err(Error::Timeout { last: Some(last), .. }) => {
            assert!(matches!(*last, Error::UnsupportedVersion(_)), "{last}");
        }
        other => panic!("{other:?}"),
    }
    let mut consumer = Consumer::new(ConsumerConfig::new(backend.bootstrap())).unwrap();
    consumer.assign([TopicPartition::new("t", 0)]);
    assert!(matches!(consumer.client_instance_id(short).await, Err(Error::Timeout { .. })));
    let admin = AdminConfig::new(backend.bootstrap()).enable_metrics_push(true);
    let refused = Admin::new(admin).unwrap().client_instance_id(LIMIT).await;
    assert!(matches!(refused, Err(Error::UnsupportedVersion(_))), "{refused:?}");
    let off = ProducerConfig::new(backend.bootstrap()).enable_metrics_push(false);
    let refused = Producer::new(off).unwrap().client_instance_id(LIMIT).await;
    assert!(matches!(refused, Err(Error::IllegalState(_))), "{refused:?}");
    let began = Instant::now();
    producer.close().await.unwrap();
    consumer.close().await;
    assert!(began.elapsed() < Duration::from_secs(1), "a close does not wait");
}

#[tokio::test]
async fn cluster_without_a_receiver_is_sent_nothing() {
    nothing_is_pushed(&Backend::embedded(1).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn apache_kafka_without_a_plugin_is_sent_nothing() {
    let Some(backend) = Backend::apache("apache_kafka_without_a_plugin_is_sent_nothing", 1) else {
        return;
    };
    nothing_is_pushed(&backend).await;
}

/// Settings of a subscription are accepted, described and refused alike on both clusters.
async fn subscriptions_are_settings(backend: &Backend) {
    let admin = Admin::new(AdminConfig::new(backend.bootstrap())).unwrap();
    let at = ConfigResource::ClientMetrics("s".into());
    let set = |name: &str, value: &str| vec![ConfigChange::Set(name.into(), value.into())];
    let alter = async |changes: Vec<ConfigChange>| {
        let wanted = [(at.clone(), changes)];
        let mut done = admin.incremental_alter_configs(&wanted, Mode::Apply).await.unwrap();
        done.remove(0).1.err().and_then(|error| error.code()).map(ErrorCode::name)
    };
    for (name, value, refused) in [
        ("metrics", "a.,b.", None),
        ("interval.ms", "100", None),
        ("match", "client_id=c.*", None),
        ("interval.ms", "99", Some("INVALID_REQUEST")),
        ("interval.ms", "3600001", Some("INVALID_REQUEST")),
        ("interval.ms", "soon", Some("INVALID_CONFIG")),
        ("match", "colour=red", Some("INVALID_CONFIG")),
        ("match", "client_id", Some("INVALID_CONFIG")),
        ("retention.ms", "1", Some("INVALID_REQUEST")),
    ] {
        assert_eq!(alter(set(name, value)).await, refused, "{name}={value}");
    }
    for change in [ConfigChange::append("metrics", "c."), ConfigChange::subtract("metrics", "a.")] {
        assert_eq!(alter(vec![change]).await, Some("INVALID_CONFIG"));
    }
    assert_eq!(alter(vec![ConfigChange::Delete("match".into())]).await, None);
    let described = async || {
        let mut found = admin.describe_configs(std::slice::from_ref(&at)).await.unwrap();
        let mut entries = found.remove(0).1.unwrap();
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        let one = |entry: &ConfigEntry| {
            (entry.name.clone(), entry.value.clone().unwrap_or_default(), entry.source.name())
        };
        entries.iter().map(one).collect::<Vec<_>>()
    };
    let row = |name: &str, value: &str, source| (name.to_owned(), value.to_owned(), source);
    let own = "DYNAMIC_CLIENT_METRICS_CONFIG";
    let expected = [
        row("interval.ms", "100", own),
        row("match", "", "DEFAULT_CONFIG"),
        row("metrics", "a.,b.", own),
    ];
    let began = Instant::now();
    loop {
        let found = described().await;
        if found == expected {
            break;
        }
        // Brokers learn of the change a moment later.
        assert!(began.elapsed() < LIMIT, "{found:?}");
    }
    let kinds = [ConfigResourceKind::ClientMetrics];
    assert_eq!(admin.list_config_resources(&kinds).await.unwrap(), std::slice::from_ref(&at));
    let gone =
        vec![ConfigChange::Delete("metrics".into()), ConfigChange::Delete("interval.ms".into())];
    assert_eq!(alter(gone).await, None);
    while !admin.list_config_resources(&kinds).await.unwrap().is_empty() {
        assert!(began.elapsed() < LIMIT);
    }
}

#[tokio::test]
async fn subscriptions_are_settings_of_the_embedded_cluster() {
    subscriptions_are_settings(&Backend::embedded(1).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn subscriptions_are_settings_of_apache_kafka() {
    let test = "subscriptions_are_settings_of_apache_kafka";
    let Some(backend) = Backend::apache(test, 1) else { return };
    subscriptions_are_settings(&backend).await;
}
