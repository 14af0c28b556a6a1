use super::*;

fn config(listeners: &str) -> ClusterConfig {
    let mut config = ClusterConfig::default();
    config.set("listeners", listeners).unwrap();
    config
}

/// Returns `NAME PROTOCOL host:port advertised` for each listener of a broker.
fn shown(config: &ClusterConfig, id: i32) -> Vec<String> {
    let show = |listener: Listener| {
        let Listener { name, protocol, host, port, advertised } = listener;
        format!("{name} {} {host}:{port} {advertised}", protocol.name())
    };
    config.listeners_of(id).unwrap().into_iter().map(show).collect()
}

fn refusal(config: &ClusterConfig) -> String {
    config.validate().and_then(|()| config.validate_ports()).unwrap_err().to_string()
}

#[test]
fn each_further_broker_has_the_next_port_of_every_listener() {
    let mut config = config("plaintext://127.0.0.1:9092, External://[::1]:19092");
    config.set("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,EXTERNAL:SSL").unwrap();
    config.validate().unwrap();
    config.validate_ports().unwrap();
    let third = [
        "PLAINTEXT PLAINTEXT 127.0.0.1:9094 127.0.0.1:9094",
        "EXTERNAL SSL [::1]:19094 [::1]:19094",
    ];
    assert_eq!(shown(&config, 3), third);
    assert_eq!(config.listeners_of(3).unwrap()[1].advertised.host(), "::1");
}

#[test]
fn advertised_endpoints_have_names_and_ports_of_their_own() {
    let mut config = config("SSL://:9093,PLAINTEXT://0.0.0.0:0");
    config.set("advertised.listeners", "PLAINTEXT://localhost:0,SSL://kafka.example:443").unwrap();
    let second = ["SSL SSL :9094 kafka.example:444", "PLAINTEXT PLAINTEXT 0.0.0.0:0 localhost:0"];
    assert_eq!(shown(&config, 2), second);
    assert_eq!(config.listeners_of(2).unwrap()[1].advertised.or_port(40_000).port(), 40_000);
}

#[test]
fn a_semicolon_separates_the_listeners_of_brokers() {
    let each = "PLAINTEXT://10.0.0.1:9092;PLAINTEXT://10.0.0.2:9092;PLAINTEXT://b3:1";
    let config = config(each);
    config.validate().unwrap();
    config.validate_ports().unwrap();
    assert_eq!(shown(&config, 2), ["PLAINTEXT PLAINTEXT 10.0.0.2:9092 10.0.0.2:9092"]);
    assert_eq!(shown(&config, 3), ["PLAINTEXT PLAINTEXT b3:1 b3:1"]);
    assert_eq!(config.listeners.to_string(), each);
    let second = config.listeners.of_broker(2).unwrap().to_string();
    assert_eq!(second, "PLAINTEXT://10.0.0.2:9092");
}

#[test]
fn listeners_of_controllers_are_not_opened() {
    let mut config = config("PLAINTEXT://localhost:9092,CONTROLLER://:9093");
    config.set("controller.listener.names", "controller").unwrap();
    config
        .set("advertised.listeners", "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093")
        .unwrap();
    config.validate_ports().unwrap();
    assert_eq!(shown(&config, 1), ["PLAINTEXT PLAINTEXT localhost:9092 localhost:9092"]);
    config.set("controller.listener.names", "CONTROLLER,PLAINTEXT").unwrap();
    assert_eq!(refusal(&config), "listeners has no listener for clients");
}

#[test]
fn malformed_listeners_are_refused_with_the_expected_form() {
    for text in [
        "",
        "localhost:9092",
        "PLAINTEXT://localhost",
        "PLAINTEXT://localhost:65536",
        "PLAINTEXT://localhost:-1",
        "PLAINTEXT://::1:9092",
        "PLAINTEXT://[::1:9092",
        "PLAINTEXT://local host:9092",
        "PLAINTEXT://localhost:9092,",
        "PLAINTEXT://localhost:9092;",
        "A B://localhost:9092",
        "://localhost:9092",
    ] {
        let error = ClusterConfig::default().set("listeners", text).unwrap_err().to_string();
        assert_eq!(error, format!("listeners={text}: expected {EXPECTED}"));
    }
    for text in ["", "A", "A:TLS", "A:SSL,A:PLAINTEXT", ":SSL"] {
        let error = ClusterConfig::default().set("listener.security.protocol.map", text);
        assert!(error.unwrap_err().to_string().ends_with(EXPECTED_PROTOCOLS), "{text}");
    }
}

#[test]
fn contradicting_listeners_are_refused_with_their_names() {
    for (listeners, properties, said) in [
        (
            "A://h:1,a://h:2",
            &[("listener.security.protocol.map", "A:SSL")][..],
            "listeners has A twice",
        ),
        (
            "SSL://h:1",
            &[("advertised.listeners", "SSL://h:1,ssl://h:2")],
            "advertised.listeners has SSL twice",
        ),
        ("A://h:1", &[], "listener A has no security protocol; add A:PROTOCOL"),
        ("SSL://:1", &[], "SSL://:1 listens on every address; set advertised.listeners"),
        ("SSL://0.0.0.0:1", &[], "such as SSL://localhost:1"),
        (
            "SSL://h:1",
            &[("advertised.listeners", "SSL://0.0.0.0:1")],
            "no client can connect to SSL://0.0.0.0:1",
        ),
        (
            "SSL://h:1",
            &[("advertised.listeners", "SSL://h:1,PLAINTEXT://h:2")],
            "advertised.listeners has PLAINTEXT, which listeners lacks; it has SSL",
        ),
        (
            "SSL://h:1,PLAINTEXT://h:20",
            &[("advertised.listeners", "SSL://h:1")],
            "advertised.listeners lacks PLAINTEXT",
        ),
        ("SSL://h:1;SSL://h:2", &[], "listeners of 2 brokers, but the cluster has 3"),
        ("SSL://h:1;SSL://h:2;PLAINTEXT://h:3", &[], "the same names in the same order"),
        ("PLAINTEXT://h:65534", &[], "3 brokers need as many ports from 65534 on"),
        (
            "PLAINTEXT://h:1,SSL://h:1",
            &[],
            "listener PLAINTEXT of broker 1 and listener SSL of broker 1 have the same port, 1; each listener",
        ),
        (
            "PLAINTEXT://h:9092,SSL://h:9093",
            &[],
            "listener SSL of broker 1 and listener PLAINTEXT of broker 2 have the same port, 9093; each further",
        ),
        (
            "PLAINTEXT://h:1",
            &[("inter.broker.listener.name", "ssl")],
            "inter.broker.listener.name=SSL: listeners has PLAINTEXT",
        ),
    ] {
        let mut config = config(listeners);
        for (name, value) in properties {
            config.set(name, value).unwrap();
        }
        let refused = refusal(&config);
        assert!(refused.contains(said), "{listeners}: {refused}");
    }
}

#[test]
fn a_port_may_be_shared_by_ipv4_and_ipv6() {
    let mut config = config("PLAINTEXT://127.0.0.1:9092,SSL://[::1]:9092");
    config.brokers = 1;
    config.default_replication_factor = 1;
    config.validate().unwrap();
    config.set("listeners", "PLAINTEXT://127.0.0.1:9092,SSL://:9092").unwrap();
    config.set("advertised.listeners", "PLAINTEXT://h:1,SSL://h:1").unwrap();
    assert!(refusal(&config).contains("same port"), "an empty host is every address");
}

#[test]
fn brokers_use_a_plaintext_listener_unless_an_authorizer_must_tell_them_from_clients() {
    let mut config = config("SSL://h:1,PLAINTEXT://h:11,B://h:21");
    config
        .set("listener.security.protocol.map", "SSL:SSL,PLAINTEXT:PLAINTEXT,B:PLAINTEXT")
        .unwrap();
    let used =
        |config: &ClusterConfig| config.listener_between_brokers(&config.listeners_of(1).unwrap());
    assert_eq!(used(&config), Some(1));
    config.set("inter.broker.listener.name", "B").unwrap();
    assert_eq!(used(&config), Some(2));
    config.set("inter.broker.listener.name", "SSL").unwrap();
    assert_eq!(used(&config), None);
    config.set("inter.broker.listener.name", "B").unwrap();
    let authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";
    config.set("authorizer.class.name", authorizer).unwrap();
    assert_eq!(used(&config), None);
}
