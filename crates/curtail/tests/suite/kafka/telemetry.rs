//! Metrics that Java's clients push to the embedded cluster (KIP-714), whose names are those of ours.

use std::{collections::BTreeSet, process::Stdio, time::Duration};

use curtail::{
    Consumer, ConsumerConfig, Record,
    admin::{Admin, ConfigChange, ConfigResource, Mode},
    config::AdminConfig,
};
use curtail_apache::Program;
use curtail_cluster::ClientMetrics;
use prost::Message as _;
use tokio::{
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::timeout,
};

use super::java;
use crate::{
    common::{Backend, producer},
    telemetry::decoded::MetricsData,
};

const LIMIT: Duration = Duration::from_secs(120);
const JAVA: &str = "apache-kafka-java";

/// Names with the KIP's prefix that clients of one software have pushed.
async fn names(
    pushes: &mut UnboundedReceiver<ClientMetrics>,
    into: &mut [BTreeSet<String>; 2],
    kind: &str,
) {
    let push = timeout(LIMIT, pushes.recv()).await.expect("a push").expect("a receiver");
    let (software, _) = push.software.expect("both clients name their software");
    let data = MetricsData::decode(push.metrics).expect("MetricsData");
    let of_kind = data.metrics().map(|metric| &metric.name).filter(|name| name.starts_with(kind));
    into[usize::from(software == JAVA)].extend(of_kind.cloned());
}

/// Reads pushes until Java's client has pushed all names that ours has.
async fn agree(pushes: &mut UnboundedReceiver<ClientMetrics>, kind: &str) {
    let mut found = [BTreeSet::new(), BTreeSet::new()];
    let reading = async {
        loop {
            names(pushes, &mut found, kind).await;
            let [ours, javas] = &found;
            if ours.len() > 20 && ours.is_subset(javas) {
                break;
            }
        }
    };
    let agreed = timeout(LIMIT, reading).await.is_ok();
    let [ours, javas] = &found;
    let only: Vec<_> = ours.difference(javas).collect();
    assert!(agreed, "only ours has {only:?}, of {} names; Java has {}", ours.len(), javas.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_pushed_metrics_are_those_of_javas_clients() {
    let test = "names_of_pushed_metrics_are_those_of_javas_clients";
    let Some(toolchain) = curtail_apache::require_or_skip(test) else { return };
    let backend = Backend::embedded(1).await;
    let Backend::Embedded(cluster) = &backend else { unreachable!("made so") };
    let (sender, mut pushes) = unbounded_channel();
    cluster.receive_client_metrics(move |push| sender.send(push).map_err(|e| e.to_string()));
    let admin = Admin::new(AdminConfig::new(backend.bootstrap())).unwrap();
    let changes = [("metrics", "*"), ("interval.ms", "200")]
        .map(|(name, value)| ConfigChange::Set(name.into(), value.into()));
    let wanted = [(ConfigResource::ClientMetrics("all".into()), changes.to_vec())];
    admin.incremental_alter_configs(&wanted, Mode::Apply).await.unwrap().remove(0).1.unwrap();
    cluster.settled().await;
    backend.create_topic("t", 1, 1).await;

    let bootstrap = backend.bootstrap();
    let ours = producer(&backend, &[]);
    ours.send(Record::to("t").value("x")).await.unwrap().await.unwrap();
    let tool = toolchain.tool("org.apache.kafka.tools.ConsoleProducer").short_lived();
    let mut command = tool.args(&["--bootstrap-server", &bootstrap, "--topic", "t"]).command();
    let mut javas = Program::start(command.stdin(Stdio::piped()).stderr(Stdio::null())).unwrap();
    javas.say("a").unwrap();
    javas.say("b").unwrap();
    agree(&mut pushes, "org.apache.kafka.producer.").await;
    javas.stop().unwrap();
    ours.close().await.unwrap();

    let javas = java::start(&toolchain, &bootstrap, ("t", "java"), &[]);
    let config = ConsumerConfig::from_properties([
        ("bootstrap.servers", &*bootstrap),
        ("group.id", "ours"),
        ("auto.offset.reset", "earliest"),
    ]);
    let mut ours = Consumer::new(config.unwrap()).unwrap();
    ours.subscribe(["t"]).unwrap();
    let mut read = 0;
    while read < 3 {
        read += ours.poll(LIMIT).await.unwrap().len();
    }
    ours.commit().await.unwrap();
    agree(&mut pushes, "org.apache.kafka.consumer.").await;
    javas.stop().unwrap();
    ours.close().await;
}
