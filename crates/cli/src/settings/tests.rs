use curtail::{AdminConfig, ConsumerConfig, ProducerConfig};

use super::{ClientArguments, Property, of_others, properties, property, set_both};
use crate::failure::Failure;

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()
}

#[test]
fn properties_are_split_at_the_first_equals_sign() {
    let parsed = property("a.b=c=d").unwrap();
    assert_eq!(parsed, Property { name: "a.b".into(), value: "c=d".into() });
    assert_eq!(property("a=").unwrap().value, "");
    assert!(property("a").is_err() && property("=a").is_err());
}

#[test]
fn the_address_flag_counts_most_and_there_is_a_default() {
    let mut arguments = ClientArguments {
        bootstrap_server: None,
        properties: vec![property("linger.ms=0").unwrap()],
        command_config: None,
        profile: None,
    };
    let expected = pairs(&[("linger.ms", "0"), ("bootstrap.servers", "localhost:9092")]);
    assert_eq!(arguments.all().unwrap(), expected);
    arguments.properties = vec![property("bootstrap.servers=a:1").unwrap()];
    assert_eq!(arguments.all().unwrap(), pairs(&[("bootstrap.servers", "a:1")]));
    arguments.bootstrap_server = Some("b:1".into());
    assert_eq!(arguments.all().unwrap().last().unwrap().1, "b:1");
}

#[test]
fn clients_of_several_kinds_share_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = |text: &str| {
        let path = directory.path().join("client.properties");
        std::fs::write(&path, text).unwrap();
        ClientArguments {
            bootstrap_server: None,
            properties: vec![property("client.id=flag").unwrap()],
            command_config: Some(path),
            profile: None,
        }
    };
    let shared = file("linger.ms=7\ngroup.id=g\nclient.id=file\nbootstrap.servers=a:1\n");
    let producer: ProducerConfig = shared.config(&[("linger.ms", "1")], &[]).unwrap();
    assert_eq!((producer.get_linger().as_millis(), producer.get_client_id()), (7, "flag"));
    let consumer: ConsumerConfig = shared.config(&[], &[("group.id", "fixed")]).unwrap();
    assert_eq!(consumer.get_group_id(), Some("fixed"));
    let admin: AdminConfig = shared.config(&[], &[]).unwrap();
    assert_eq!(admin.get_bootstrap_servers(), ["a:1"]);
    let admin: AdminConfig = file("client.rack=r").config(&[], &[]).unwrap();
    assert_eq!(admin.get_bootstrap_servers(), [super::DEFAULT_BOOTSTRAP]);
    // All problems at once, each with its line.
    let wrong = file("linger.ms=soon\nclient.rack=r\nretention.ms=5\n");
    let Failure::Message(text) = wrong.config::<ProducerConfig>(&[], &[]).unwrap_err() else {
        panic!("no message")
    };
    assert!(text.contains("client.properties:1: linger.ms=soon"), "{text}");
    assert!(text.contains("client.properties:3: retention.ms is a setting of topics"), "{text}");
}

#[test]
fn the_order_of_config_providers_and_variables_does_not_matter() {
    let all = [
        "client.id=${env:CARGO_PKG_NAME}",
        "config.providers=env",
        "config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider",
    ];
    let id = std::env::var("CARGO_PKG_NAME").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("client.properties");
    for (file, flags) in [(&all[..0], &all[..]), (&all[..], &[][..]), (&all[..1], &all[1..])] {
        std::fs::write(&path, file.join("\n")).unwrap();
        let arguments = ClientArguments {
            bootstrap_server: None,
            properties: flags.iter().map(|text| property(text).unwrap()).collect(),
            command_config: Some(path.clone()),
            profile: None,
        };
        let config: ProducerConfig = arguments.config(&[], &[]).unwrap();
        assert_eq!(config.get_client_id(), id, "file {file:?}, flags {flags:?}");
        let (mut producer, mut consumer) = (ProducerConfig::default(), ConsumerConfig::default());
        set_both(&mut producer, &mut consumer, &arguments.all().unwrap()).unwrap();
        assert_eq!(producer.get_client_id(), id, "file {file:?}, flags {flags:?}");
        assert_eq!(consumer.get_client_id(), id, "file {file:?}, flags {flags:?}");
    }
}

#[test]
fn variables_have_the_providers_of_their_source_in_every_client() {
    const CLASS: &str = "org.apache.kafka.common.config.provider.EnvVarConfigProvider";
    let of_env =
        |name: &str| format!("config.providers={name}\nconfig.providers.{name}.class={CLASS}\n");
    let value = std::env::var("CARGO_PKG_NAME").unwrap();
    let variable = |provider: &str| format!("${{{provider}:CARGO_PKG_NAME}}");
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: String| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let profile = format!("client.id={}\n{}", variable("a"), of_env("a"));
    let profile = file("profile", profile);
    let given = format!("client.rack={}\n{}", variable("b"), of_env("b"));
    let arguments = ClientArguments {
        bootstrap_server: None,
        properties: vec![property("bootstrap.servers=h:1").unwrap()],
        command_config: Some(file("file", given)),
        profile: None,
    };
    let config: ConsumerConfig = arguments.config_with(Some(&profile), &[], &[]).unwrap();
    let shown = |config: &ConsumerConfig| {
        (config.get_client_id().to_owned(), config.get_client_rack().to_owned())
    };
    assert_eq!(shown(&config), (value.clone(), value));
    let all =
        properties(Some(&profile), arguments.command_config.as_deref(), &arguments.properties);
    let (mut producer, mut consumer) = (ProducerConfig::default(), ConsumerConfig::default());
    set_both(&mut producer, &mut consumer, &all.unwrap()).unwrap();
    assert_eq!(shown(&consumer), shown(&config));
    assert_eq!(producer.get_client_id(), config.get_client_id());
}

#[test]
fn each_client_takes_its_own_properties() {
    let (mut producer, mut consumer) = (ProducerConfig::default(), ConsumerConfig::default());
    let list = [("linger.ms", "7"), ("fetch.max.wait.ms", "3"), ("client.id", "me")];
    set_both(&mut producer, &mut consumer, &pairs(&list)).unwrap();
    assert_eq!(producer.get_linger().as_millis(), 7);
    assert_eq!(consumer.get_fetch_max_wait().as_millis(), 3);
    assert_eq!((producer.get_client_id(), consumer.get_client_id()), ("me", "me"));
    for wrong in
        [("linger.ms", "x"), ("fetch.max.wait.ms", "x"), ("linger", "1"), ("group.protocol", "x")]
    {
        let (mut producer, mut consumer) = (ProducerConfig::default(), ConsumerConfig::default());
        let failed = set_both(&mut producer, &mut consumer, &pairs(&[wrong]));
        assert!(failed.is_err(), "{wrong:?}");
    }
}

#[test]
fn a_property_in_place_of_a_file_is_explained_without_its_value() {
    let said = |file: &str| match properties(None, Some(file.as_ref()), &[]) {
        Err(Failure::Message(text)) => text,
        other => panic!("{file}: {other:?}"),
    };
    let topic = said("retention.ms=1000");
    assert!(topic.starts_with("retention.ms is a setting of topics; use "), "{topic}");
    assert!(topic.contains("topics create --config retention.ms=VALUE"), "{topic}");
    let client = said("ssl.key.password=hunter2");
    assert!(client.ends_with("--command-property ssl.key.password=VALUE"), "{client}");
    assert_eq!(said("none"), "cannot read properties from none: no such file");
}

#[test]
fn properties_that_no_client_has_are_led_to_their_place() {
    for (name, part) in [
        ("retention.ms", "`curtail configs alter --topic NAME --add retention.ms=VALUE`"),
        ("segment.ms", "is a setting of topics"),
        ("num.partitions", "`curtail cluster --property num.partitions=VALUE`"),
        ("print.key", "is a property of Kafka's console tools; use --key-delimiter TEXT"),
    ] {
        let text = of_others(name).unwrap();
        assert!(text.starts_with(name) && text.contains(part), "{text}");
    }
    assert_eq!(of_others("linger"), None);
}
