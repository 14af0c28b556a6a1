use super::*;

fn variables(given: &[(&str, &str)]) -> Result<Vec<Given>, String> {
    let pairs = given.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    environment(pairs).map_err(text)
}

fn text(failure: Failure) -> String {
    match failure {
        Failure::Message(text) => text,
        _ => panic!("another failure"),
    }
}

fn applied(given: &[Given]) -> Result<(ClusterConfig, Vec<String>), String> {
    let mut config = ClusterConfig::default();
    let without_effect = apply(&mut config, given, false).map_err(text)?;
    Ok((config, without_effect))
}

#[test]
fn variables_are_named_as_in_kafkas_images() {
    for (variable, property) in [
        ("KAFKA_NUM_PARTITIONS", "num.partitions"),
        ("KAFKA_LISTENER_NAME_SASL__SSL_X", "listener.name.sasl_ssl.x"),
        ("KAFKA_A___B_C", "a-b.c"),
    ] {
        assert_eq!(property_of(variable), property);
        assert_eq!(variable_of(property), variable);
    }
}

#[test]
fn variables_of_images_and_other_programs_are_ignored_by_name() {
    let others = [
        ("CLUSTER_ID", "5L6g3nShT-eMCtK--X86sw"),
        ("KAFKA_HEAP_OPTS", "-Xmx1G"),
        ("KAFKA_OPTS", "-Dx=y"),
        ("KAFKA_LOG4J_LOGGERS", "kafka=WARN"),
        ("KAFKA_LOG4J_ROOT_LOGLEVEL", "WARN"),
        ("KAFKA_JMX_PORT", "9999"),
        ("KAFKA_PORT_9092_TCP_ADDR", "10.0.0.1"),
        ("KAFKA_SERVICE_HOST", "10.0.0.1"),
        ("KAFKA_PORT", "tcp://10.0.0.1:9092"),
        ("KAFKA_UI_PORT", "tcp://10.0.0.1:8080"),
        ("KAFKA_UI_PORT_8080_TCP", "tcp://10.0.0.1:8080"),
        ("KAFKA_UI_PORT_8080_TCP_PROTO", "tcp"),
        ("KAFKA_UI_SERVICE_HOST", "10.0.0.1"),
        ("KAFKA_UI_SERVICE_PORT", "8080"),
        ("KAFKA_UI_SERVICE_PORT_HTTP", "8080"),
        ("KAFKA", "x"),
        ("PATH", "/bin"),
    ];
    assert_eq!(variables(&others), Ok(Vec::new()));
}

#[test]
fn no_property_has_a_variable_of_a_service() {
    for (name, _) in ClusterConfig::default().properties() {
        assert!(is_property(&variable_of(name)), "{name}");
    }
    for variable in ["KAFKA_SUPPORT_X", "KAFKA_PORT_X", "KAFKA_PORT__TCP", "KAFKA_PORT_9_TCPX"] {
        assert!(is_property(variable), "{variable}");
    }
}

#[test]
fn empty_variables_of_listeners_count_as_unset() {
    let empty = [("KAFKA_LISTENERS", ""), ("KAFKA_ADVERTISED_LISTENERS", "")];
    assert_eq!(variables(&empty), Ok(Vec::new()));
}

/// Only the value in force must be valid.
#[test]
fn the_last_value_of_a_property_counts() {
    let given = |value: &str, origin: Origin| Given {
        name: "num.partitions".to_owned(),
        value: value.to_owned(),
        origin,
    };
    let all = vec![
        given("many", Origin::File("f".to_owned())),
        given("some", Origin::Variable("KAFKA_NUM_PARTITIONS".to_owned())),
        given("3", Origin::Flag),
    ];
    assert_eq!(applied(&in_force(all)).unwrap().0.num_partitions, 3);
}

#[test]
fn variables_set_properties_and_list_those_without_effect() {
    let given = variables(&[
        ("KAFKA_AUTO_LEADER_REBALANCE_ENABLE", "true"),
        ("KAFKA_NUM_PARTITIONS", "7"),
        ("KAFKA_PROCESS_ROLES", "broker,controller"),
        ("KAFKA_LOG_DIRS", "/var/lib/kafka/data"),
        ("KAFKA_ZOOKEEPER_CONNECT", "zookeeper:2181"),
    ]);
    let (config, without_effect) = applied(&given.unwrap()).unwrap();
    assert_eq!(config.num_partitions, 7);
    let expected = [
        "auto.leader.rebalance.enable (preferred leaders are elected on request only)",
        "log.dirs (use --data DIR)",
        "process.roles",
        "zookeeper.connect",
    ];
    assert_eq!(without_effect, expected);
}

#[test]
fn a_wrong_variable_is_refused_with_the_nearest() {
    let refused =
        |name: &str, value: &str| applied(&variables(&[(name, value)]).unwrap()).unwrap_err();
    assert_eq!(
        refused("KAFKA_NUM_PARTITION", "1"),
        "KAFKA_NUM_PARTITION: the embedded cluster has no property 'num.partition'; did you mean KAFKA_NUM_PARTITIONS?"
    );
    assert_eq!(
        refused("KAFKA_NUM_PARTITIONS", "many"),
        "KAFKA_NUM_PARTITIONS: num.partitions=many: expected a count, at least 1"
    );
    assert!(refused("KAFKA_SSL_KEYSTORE_FILENAME", "x.jks").contains("PEM files"));
    assert_eq!(
        refused("KAFKA_COLOUR", "red"),
        "KAFKA_COLOUR: the embedded cluster has no property 'colour'"
    );
}

#[cfg(unix)]
#[test]
fn a_variable_that_is_not_utf_8_is_named() {
    use std::os::unix::ffi::OsStringExt as _;
    let value = OsString::from_vec(vec![0xff]);
    let error = environment([("KAFKA_BROKER_RACK".into(), value)]).map_err(text);
    assert_eq!(error, Err("KAFKA_BROKER_RACK is not UTF-8".to_owned()));
}

#[test]
fn listeners_open_on_every_address_as_advertised() {
    let advertised = ("KAFKA_ADVERTISED_LISTENERS", "A://kafka:29092,B://[::1]:9092");
    let given = variables(&[advertised]).unwrap();
    let listeners = opened_as_advertised(&given).unwrap();
    assert_eq!((&*listeners.name, &*listeners.value), ("listeners", "A://:29092,B://:9092"));
    let given = variables(&[advertised, ("KAFKA_LISTENERS", "A://:1,B://:2")]).unwrap();
    assert_eq!(opened_as_advertised(&given), None);
    assert_eq!(opened_as_advertised(&[]), None);
}

#[test]
fn errors_of_a_file_name_it() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path();
    std::fs::write(path, "# comment\nnum.partition = 3\n").unwrap();
    let error = applied(&super::file(path).unwrap()).unwrap_err();
    let said =
        "the embedded cluster has no property 'num.partition'; did you mean 'num.partitions'?";
    assert_eq!(error, format!("{}: {said}", path.display()));
    let missing = super::file(Path::new("/no/such/file")).unwrap_err();
    assert!(text(missing).contains("/no/such/file"));
}

/// The variables of Confluent's example for one broker with two listeners.
#[test]
fn the_variables_of_an_image_with_two_listeners_are_accepted() {
    let given = variables(&[
        ("CLUSTER_ID", "MkU3OEVBNTcwNTJENDM2Qk"),
        ("KAFKA_ADVERTISED_LISTENERS", "PLAINTEXT://broker:29092,PLAINTEXT_HOST://localhost:9092"),
        ("KAFKA_CONFLUENT_LICENSE_TOPIC_REPLICATION_FACTOR", "1"),
        ("KAFKA_CONTROLLER_LISTENER_NAMES", "CONTROLLER"),
        ("KAFKA_CONTROLLER_QUORUM_VOTERS", "1@broker:29093"),
        ("KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS", "0"),
        ("KAFKA_INTER_BROKER_LISTENER_NAME", "PLAINTEXT"),
        ("KAFKA_JMX_HOSTNAME", "localhost"),
        ("KAFKA_JMX_PORT", "9101"),
        (
            "KAFKA_LISTENERS",
            "PLAINTEXT://broker:29092,CONTROLLER://broker:29093,PLAINTEXT_HOST://0.0.0.0:9092",
        ),
        (
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP",
            "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT",
        ),
        ("KAFKA_LOG_DIRS", "/tmp/kraft-combined-logs"),
        ("KAFKA_NODE_ID", "1"),
        ("KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR", "1"),
        ("KAFKA_PROCESS_ROLES", "broker,controller"),
        ("KAFKA_TRANSACTION_STATE_LOG_MIN_ISR", "1"),
        ("KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR", "1"),
    ]);
    let (config, _) = applied(&given.unwrap()).unwrap();
    config.validate().unwrap();
    let listeners = config.listeners_of(1).unwrap();
    let shown: Vec<_> = listeners.iter().map(|l| format!("{} {}", l.name, l.advertised)).collect();
    assert_eq!(shown, ["PLAINTEXT broker:29092", "PLAINTEXT_HOST localhost:9092"]);
}
