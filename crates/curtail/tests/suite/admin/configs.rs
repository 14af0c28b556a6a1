//! Settings.

use curtail::{
    Admin, Error, ErrorCode, Record,
    admin::{ConfigChange, ConfigEntry, ConfigResource, ConfigResourceKind, ConfigSource, Mode},
};

use super::{Backend, admin, code, common, only, until};

fn topic(name: &str) -> ConfigResource {
    ConfigResource::Topic(name.to_owned())
}

async fn setting(admin: &Admin, name: &str) -> ConfigEntry {
    let all = only(admin.describe_configs(&[topic("tuned")]).await.unwrap()).unwrap();
    all.into_iter().find(|entry| entry.name == name).unwrap()
}

async fn alter(admin: &Admin, changes: Vec<ConfigChange>, mode: Mode) -> Result<(), Error> {
    only(admin.incremental_alter_configs(&[(topic("tuned"), changes)], mode).await.unwrap())
}

pub(super) async fn are_described_and_altered(backend: &Backend) {
    let admin = admin(backend);
    backend.create_topic_with("tuned", 1, 3, &[("retention.ms", "3600000")]).await;
    let ask = async || setting(&admin, "retention.ms").await;
    let given = ask().await;
    assert_eq!(given.value.as_deref(), Some("3600000"));
    assert_eq!(given.source, ConfigSource::Topic);
    assert!(!given.sensitive && !given.read_only);
    assert_eq!(setting(&admin, "index.interval.bytes").await.source, ConfigSource::Default);

    // Refused as a whole: no setting changes.
    let changes =
        vec![ConfigChange::set("retention.ms", "5"), ConfigChange::set("retention.mss", "5")];
    assert_eq!(code(&alter(&admin, changes, Mode::Apply).await), ErrorCode::INVALID_CONFIG);
    let changes = vec![ConfigChange::set("retention.ms", "soon")];
    assert_eq!(code(&alter(&admin, changes, Mode::Apply).await), ErrorCode::INVALID_CONFIG);
    let changes = vec![ConfigChange::append("retention.ms", "5")];
    assert_eq!(code(&alter(&admin, changes, Mode::Apply).await), ErrorCode::INVALID_CONFIG);
    alter(&admin, vec![ConfigChange::set("retention.ms", "7000")], Mode::Validate).await.unwrap();
    assert_eq!(ask().await.value.as_deref(), Some("3600000"));

    let changes = vec![
        ConfigChange::set("retention.ms", "7200000"),
        ConfigChange::set("max.message.bytes", "2000"),
    ];
    alter(&admin, changes, Mode::Apply).await.unwrap();
    until(ask, |entry| entry.value.as_deref() == Some("7200000")).await;
    // The leader applies it.
    let producer = common::producer(backend, &[]);
    let send = async |size: usize| {
        let value = vec![7_u8; size];
        let record = Record::to("tuned").partition(0).value(&value);
        producer.send(record).await.unwrap().await
    };
    let refused = until(async || send(3000).await, Result::is_err).await;
    let Err(Error::NotAcknowledged { cause, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(code::<()>(&Err((*cause).clone())), ErrorCode::MESSAGE_TOO_LARGE);
    send(1000).await.unwrap();

    // A deleted setting has Kafka's default again, which also applies.
    let changes =
        vec![ConfigChange::delete("max.message.bytes"), ConfigChange::delete("retention.ms")];
    alter(&admin, changes, Mode::Apply).await.unwrap();
    let back = until(ask, |entry| entry.source == ConfigSource::Default).await;
    assert_eq!(back.value.as_deref(), Some("604800000"));
    until(async || send(3000).await, Result::is_ok).await.unwrap();

    // Below min.insync.replicas a record is refused; with all replicas in sync, only if the topic has too few.
    alter(&admin, vec![ConfigChange::set("min.insync.replicas", "3")], Mode::Apply).await.unwrap();
    send(10).await.unwrap();

    let broker = ConfigResource::Broker(2);
    let asked = [broker.clone(), topic("missing"), ConfigResource::Broker(77), topic("tuned")];
    let described = admin.describe_configs(&asked).await.unwrap();
    let keys: Vec<&ConfigResource> = described.iter().map(|(resource, _)| resource).collect();
    assert_eq!(keys, asked.iter().collect::<Vec<_>>(), "in the order asked");
    let entries = described[0].1.as_ref().unwrap();
    assert!(entries.iter().any(|entry| entry.name == "num.partitions"), "{entries:?}");
    assert!(matches!(described[1].1, Err(Error::UnknownTopic(_))), "{described:?}");
    assert_eq!(code(&described[2].1), ErrorCode::BROKER_ID_NOT_REGISTERED);
    assert!(described[3].1.is_ok());
    // A setting that brokers read only at their start.
    let changes = vec![ConfigChange::set("log.dirs", "/elsewhere")];
    let refused = admin.incremental_alter_configs(&[(broker, changes)], Mode::Apply).await.unwrap();
    assert_eq!(code(&only(refused)), ErrorCode::INVALID_REQUEST);
}

pub(super) async fn of_brokers_and_groups_change_while_they_run(backend: &Backend) {
    let admin = admin(backend);
    let alter = async |resource: &ConfigResource, change: ConfigChange| {
        let changes = [(resource.clone(), vec![change])];
        only(admin.incremental_alter_configs(&changes, Mode::Apply).await.unwrap())
    };
    let entry = async |resource: &ConfigResource, name: &str| {
        let all =
            only(admin.describe_configs(std::slice::from_ref(resource)).await.unwrap()).unwrap();
        let entry = all.into_iter().find(|entry| entry.name == name).unwrap();
        (entry.value.unwrap_or_default(), entry.source)
    };
    backend.create_topic("bounded", 1, 3).await;
    let producer = common::producer(backend, &[]);
    let send = async || {
        let record = Record::to("bounded").partition(0).value(&[7_u8; 3000]);
        producer.send(record).await.unwrap().await
    };
    let (all, two) = (ConfigResource::AllBrokers, ConfigResource::Broker(2));
    alter(&all, ConfigChange::set("message.max.bytes", "2000")).await.unwrap();
    until(async || send().await, Result::is_err).await.unwrap_err();
    let of_two = async || entry(&two, "message.max.bytes").await;
    until(of_two, |found| *found == ("2000".into(), ConfigSource::AllBrokers)).await;
    alter(&two, ConfigChange::set("message.max.bytes", "2500")).await.unwrap();
    until(of_two, |found| *found == ("2500".into(), ConfigSource::Broker)).await;
    alter(&two, ConfigChange::delete("message.max.bytes")).await.unwrap();
    alter(&all, ConfigChange::delete("message.max.bytes")).await.unwrap();
    until(of_two, |(_, source)| *source == ConfigSource::Default).await;
    until(async || send().await, Result::is_ok).await.unwrap();
    // Settings of the brokers apply to topics without their own. Lists grow and shrink. A number of threads is accepted.
    let policy = "log.cleanup.policy";
    alter(&two, ConfigChange::set("background.threads", "9")).await.unwrap();
    alter(&two, ConfigChange::append(policy, "compact")).await.unwrap();
    let of_two = async || entry(&two, policy).await;
    until(of_two, |found| *found == ("delete,compact".into(), ConfigSource::Broker)).await;
    let of_two = async || entry(&two, "background.threads").await;
    until(of_two, |found| *found == ("9".into(), ConfigSource::Broker)).await;
    alter(&two, ConfigChange::subtract(policy, "delete")).await.unwrap();
    let of_two = async || entry(&two, policy).await;
    until(of_two, |found| *found == ("compact".into(), ConfigSource::Broker)).await;
    let wrong = alter(&two, ConfigChange::set(policy, "shrink")).await;
    assert_eq!(code(&wrong), ErrorCode::INVALID_REQUEST);
    alter(&two, ConfigChange::delete(policy)).await.unwrap();
    alter(&two, ConfigChange::delete("background.threads")).await.unwrap();
    let fixed = alter(&two, ConfigChange::set("num.partitions", "7")).await;
    assert_eq!(code(&fixed), ErrorCode::INVALID_REQUEST);

    let group = ConfigResource::Group("tuned".into());
    let timeout = "consumer.session.timeout.ms";
    let refused = alter(&group, ConfigChange::set(timeout, "1")).await;
    assert_eq!(code(&refused), ErrorCode::INVALID_CONFIG);
    alter(&group, ConfigChange::set(timeout, "50000")).await.unwrap();
    let ask = async || entry(&group, timeout).await;
    until(ask, |found| *found == ("50000".into(), ConfigSource::Group)).await;
    alter(&group, ConfigChange::delete(timeout)).await.unwrap();
    until(ask, |(value, source)| value == "45000" && *source != ConfigSource::Group).await;
}

pub(super) async fn resources_are_listed(backend: &Backend) {
    let admin = admin(backend);
    backend.create_topic("listed", 1, 1).await;
    let list =
        async |kinds: &[ConfigResourceKind]| admin.list_config_resources(kinds).await.unwrap();
    let topic = ConfigResource::Topic("listed".to_owned());
    until(async || list(&[ConfigResourceKind::Topic]).await, |found| found.contains(&topic)).await;
    let brokers = list(&[ConfigResourceKind::Broker]).await;
    assert_eq!(brokers.len(), 3, "{brokers:?}");
    let all = list(&[]).await;
    assert!(all.contains(&topic) && all.contains(&ConfigResource::BrokerLogger(2)), "{all:?}");
}
