//! Several listeners: each has its security, and its clients are directed to what it advertises.

use std::net::SocketAddr;

use crate::{
    described::{BROKER, describe},
    support::{Client, PATIENCE, authenticate, batch, config, soon, start, text},
};
use curtail_cluster::{ClientLogin, Cluster, ClusterConfig, Listeners, User};
use curtail_net::{
    Env, HostCheck, Socket, SocketOptions,
    tls::{
        RootCertStore, ServerName, TLS12, TLS13, TlsSocket, certificates_from_pem, client_config,
    },
};
use curtail_wire::{
    ErrorCode,
    cold::messages::{DescribeClusterRequest, DescribeQuorumRequest, FindCoordinatorRequest},
};
use tokio::net::{TcpListener, TcpStream};

/// INTERNAL is PLAINTEXT, EXTERNAL is SASL_SSL and advertises a name.
fn two_listeners(brokers: u32) -> ClusterConfig {
    let mut config = config(brokers);
    config.security.users = vec![User::new("alice", "secret")];
    for (name, value) in [
        ("listeners", "INTERNAL://127.0.0.1:0,EXTERNAL://127.0.0.1:0"),
        ("advertised.listeners", "EXTERNAL://localhost:0,INTERNAL://127.0.0.1:0"),
        ("listener.security.protocol.map", "INTERNAL:PLAINTEXT,EXTERNAL:SASL_SSL"),
    ] {
        config.set(name, value).unwrap();
    }
    config
}

/// Returns host and port of each endpoint of the listener, in the order of the brokers.
fn endpoints(cluster: &Cluster, listener: &str) -> Vec<(String, i32)> {
    let servers = cluster.bootstrap_of(listener).unwrap();
    let endpoint = |server: &str| {
        let (host, port) = server.rsplit_once(':').unwrap();
        (host.to_owned(), port.parse().unwrap())
    };
    servers.split(',').map(endpoint).collect()
}

/// Connects through EXTERNAL, and logs in.
async fn external(cluster: &Cluster, broker: i32) -> Client {
    let (host, port) = endpoints(cluster, "EXTERNAL").remove(broker as usize - 1);
    let ca = std::fs::read(cluster.ca_file().unwrap()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates_from_pem(&ca).unwrap());
    let tls = client_config(roots, HostCheck::Https, None, &[&TLS12, &TLS13]).unwrap();
    let addr = SocketAddr::from(([127, 0, 0, 1], port as u16));
    let socket = Env::real().net.connect(addr, SocketOptions::default()).await.unwrap();
    let name = ServerName::try_from(host).unwrap();
    let socket = TlsSocket::connect(socket, tls, name, PATIENCE).await.unwrap();
    let mut client = Client::on(Box::new(socket) as Box<dyn Socket>);
    assert_eq!(authenticate(&mut client, "alice\0secret").await.0, ErrorCode::NONE);
    client
}

/// The endpoints in responses, in the order of the brokers.
struct Directions {
    metadata: Vec<(String, i32)>,
    describe_cluster: Vec<(String, i32)>,
    coordinator: (String, i32),
    /// The voters' endpoints.
    quorum: Vec<(String, i32)>,
}

async fn directions(client: &mut Client) -> Directions {
    let (metadata, _) = client.metadata("t").await;
    let mut nodes = metadata.brokers;
    nodes.sort_by_key(|node| node.node_id);
    let metadata = nodes.into_iter().map(|node| (node.host, node.port)).collect();
    let described = client.cold(0, &DescribeClusterRequest::default()).await;
    let mut brokers = described.brokers;
    brokers.sort_by_key(|broker| broker.broker_id.0);
    let describe_cluster = brokers.into_iter().map(|broker| (broker.host.to_string(), broker.port));
    let asked = FindCoordinatorRequest::default().with_key(text("g"));
    let coordinator = loop {
        let found = client.cold(3, &asked).await;
        if found.error_code == ErrorCode::NONE.0 {
            break (found.host.to_string(), found.port);
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    let quorum = client.cold(2, &DescribeQuorumRequest::default()).await;
    let voters = quorum.nodes.into_iter().flat_map(|node| node.listeners);
    let voters = voters.map(|listener| (listener.host.to_string(), i32::from(listener.port)));
    Directions {
        metadata,
        describe_cluster: describe_cluster.collect(),
        coordinator,
        quorum: voters.collect(),
    }
}

#[tokio::test]
async fn logins_have_what_a_client_of_the_listener_needs() {
    let mut config = two_listeners(1);
    config.security.users.push(User::new("bob", "hidden"));
    let cluster = start(config).await;
    let logins = cluster.client_logins().unwrap();
    let of = |login: &ClientLogin| (login.listener.clone(), login.user.clone());
    let external = |user: &str| ("EXTERNAL".to_owned(), Some(user.to_owned()));
    let expected = [("INTERNAL".to_owned(), None), external("alice"), external("bob")];
    assert_eq!(logins.iter().map(of).collect::<Vec<_>>(), expected);
    let names = |login: &ClientLogin| login.properties.iter().map(|(name, _)| *name).collect();
    let plaintext: Vec<&str> = names(&logins[0]);
    assert_eq!(plaintext, ["bootstrap.servers", "security.protocol"]);
    let secured: Vec<&str> = names(&logins[1]);
    let tls = ["ssl.truststore.type", "ssl.truststore.location"];
    assert_eq!(secured, [&plaintext[..], &tls, &["sasl.mechanism", "sasl.jaas.config"]].concat());
    let shown = format!("{logins:?}");
    assert!(!shown.contains("secret") && !shown.contains("hidden"), "{shown}");
}

#[tokio::test]
async fn clients_are_directed_to_the_endpoints_of_their_listener() {
    let cluster = start(two_listeners(3)).await;
    cluster.create_topic("t", 1, 3, &[("min.insync.replicas", "3")]).unwrap();
    cluster.settled().await;
    assert_eq!(cluster.bootstrap(), cluster.bootstrap_of("internal").unwrap());
    assert_eq!(cluster.bootstrap_of("OTHER"), None);
    let mut inside = Client::connect(&cluster, 1).await;
    let mut outside = external(&cluster, 1).await;
    for (client, listener, host) in
        [(&mut inside, "INTERNAL", "127.0.0.1"), (&mut outside, "EXTERNAL", "localhost")]
    {
        let expected = endpoints(&cluster, listener);
        assert!(expected.iter().all(|(own, _)| own == host), "{expected:?}");
        let given = soon(directions(client)).await;
        assert_eq!(given.metadata, expected, "{listener}");
        assert_eq!(given.describe_cluster, expected, "{listener}");
        assert!(expected.contains(&given.coordinator), "{listener}: {:?}", given.coordinator);
        assert_eq!(given.quorum, expected[..1], "{listener}");
    }
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn a_refusal_names_the_leader_by_the_clients_listener() {
    let cluster = start(two_listeners(3)).await;
    cluster.create_topic("t", 1, 3, &[]).unwrap();
    cluster.settled().await;
    let (leader, _) = cluster.leader("t", 0).unwrap();
    let other = leader % 3 + 1;
    let mut outside = external(&cluster, other).await;
    outside.send_produce("t", 0, -1, batch(&["a"], None)).await;
    let (refused, _) = outside.produce_answer().await;
    let named: Vec<_> = refused
        .node_endpoints
        .into_iter()
        .map(|node| (node.node_id, node.host, node.port))
        .collect();
    let (host, port) = endpoints(&cluster, "EXTERNAL").remove(leader as usize - 1);
    assert_eq!(named, [(leader, host, port)]);
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn each_listener_requires_what_its_protocol_says() {
    let cluster = start(two_listeners(1)).await;
    cluster.create_topic("t", 1, 1, &[]).unwrap();
    cluster.settled().await;
    let mut outside = external(&cluster, 1).await;
    assert_eq!(outside.produce("t", 0, -1, batch(&["a"], None)).await.error, ErrorCode::NONE);
    let mut inside = Client::connect(&cluster, 1).await;
    assert_eq!(inside.fetch_all("t", 0, 1).await, ["a"]);
    // A client without TLS on EXTERNAL.
    let (_, port) = endpoints(&cluster, "EXTERNAL").remove(0);
    let mut clear = Client::connect_to(SocketAddr::from(([127, 0, 0, 1], port as u16))).await;
    clear.send_produce("t", 0, -1, batch(&["b"], None)).await;
    soon(async { while clear.receive_raw().await {} }).await;
    // A restarted broker has the same ports.
    let before = (cluster.bootstrap(), cluster.bootstrap_of("EXTERNAL"));
    cluster.kill(1);
    soon(cluster.restart(1)).await.unwrap();
    assert_eq!((cluster.bootstrap(), cluster.bootstrap_of("EXTERNAL")), before);
    let mut outside = external(&cluster, 1).await;
    assert_eq!(outside.fetch_all("t", 0, 1).await, ["a"]);
    soon(cluster.shutdown()).await;
}

/// Forwards connections from a port to an address, as a container's port mapping does.
fn forward(from: TcpListener, to: SocketAddr) {
    tokio::spawn(async move {
        while let Ok((mut inbound, _)) = from.accept().await {
            tokio::spawn(async move {
                let mut outbound = TcpStream::connect(to).await.unwrap();
                // Either side may close the connection.
                let _ = tokio::io::copy_bidirectional(&mut inbound, &mut outbound).await;
            });
        }
    });
}

#[tokio::test]
async fn brokers_replicate_behind_a_forwarded_port() {
    let mut public = Vec::new();
    for _ in 0..3 {
        public.push(TcpListener::bind("127.0.0.1:0").await.unwrap());
    }
    let ports: Vec<u16> = public.iter().map(|p| p.local_addr().unwrap().port()).collect();
    let mut config = config(3);
    config.set("listeners", "PLAINTEXT://0.0.0.0:0").unwrap();
    let advertised: Vec<String> =
        ports.iter().map(|port| format!("PLAINTEXT://localhost:{port}")).collect();
    config.set("advertised.listeners", &advertised.join(";")).unwrap();
    // Before the ports are forwarded: brokers need only each other.
    let cluster = start(config).await;
    cluster.create_topic("t", 1, 3, &[("min.insync.replicas", "3")]).unwrap();
    cluster.settled().await;
    let (leader, _) = cluster.leader("t", 0).unwrap();
    let mut client = Client::connect(&cluster, leader).await;
    assert_eq!(client.produce("t", 0, -1, batch(&["a"], None)).await.error, ErrorCode::NONE);
    for (from, id) in public.into_iter().zip(1..) {
        forward(from, cluster.broker(id).unwrap().addr());
    }
    let endpoint = cluster.broker(leader).unwrap().endpoint();
    assert_eq!((endpoint.host(), endpoint.port()), ("localhost", ports[leader as usize - 1]));
    let mut outside = Client::connect_to(SocketAddr::from(([127, 0, 0, 1], endpoint.port()))).await;
    let (metadata, _) = outside.metadata("t").await;
    let mut given: Vec<u16> = metadata.brokers.iter().map(|node| node.port as u16).collect();
    given.sort_unstable();
    let mut expected = ports;
    expected.sort_unstable();
    assert_eq!(given, expected);
    assert_eq!(outside.fetch_all("t", 0, 1).await, ["a"]);
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn an_empty_host_listens_on_ipv4_and_ipv6() {
    let mut config = config(1);
    config.set("listeners", "PLAINTEXT://:0").unwrap();
    config.set("advertised.listeners", "PLAINTEXT://[::1]:0").unwrap();
    let cluster = start(config).await;
    let port = cluster.broker(1).unwrap().addr().port();
    assert_eq!(cluster.bootstrap(), format!("[::1]:{port}"));
    let mut client = Client::connect_to(SocketAddr::from(([127, 0, 0, 1], port))).await;
    let (metadata, _) = client.metadata("t").await;
    assert_eq!((&*metadata.brokers[0].host, metadata.brokers[0].port), ("::1", i32::from(port)));
    if std::net::TcpListener::bind("[::1]:0").is_ok() {
        let mut client =
            Client::connect_to(SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, port))).await;
        assert_eq!(client.metadata("t").await.0.brokers.len(), 1);
    }
    soon(cluster.shutdown()).await;
}

/// A machine with IPv6 may lack `::1`, so brokers must not dial it.
#[tokio::test]
async fn brokers_on_every_address_reach_each_other_over_ipv4() {
    let mut config = config(3);
    config.set("listeners", "PLAINTEXT://:0").unwrap();
    config.set("advertised.listeners", "PLAINTEXT://localhost:0").unwrap();
    let cluster = start(config).await;
    for id in 1..=3 {
        assert!(cluster.broker(id).unwrap().addr().is_ipv4());
    }
    cluster.create_topic("t", 1, 3, &[("min.insync.replicas", "3")]).unwrap();
    cluster.settled().await;
    let (leader, _) = cluster.leader("t", 0).unwrap();
    let mut client = Client::connect(&cluster, leader).await;
    assert_eq!(client.produce("t", 0, -1, batch(&["a"], None)).await.error, ErrorCode::NONE);
    soon(cluster.shutdown()).await;
}

/// The families have separate ports, so both addresses can have the same one.
#[tokio::test]
async fn the_unspecified_addresses_of_both_families_are_separate_listeners() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        return;
    }
    let port = TcpListener::bind("0.0.0.0:0").await.unwrap().local_addr().unwrap().port();
    let mut config = config(1);
    for (name, value) in [
        ("listeners", format!("A://0.0.0.0:{port},B://[::]:{port}")),
        ("advertised.listeners", "A://127.0.0.1:0,B://[::1]:0".to_owned()),
        ("listener.security.protocol.map", "A:PLAINTEXT,B:PLAINTEXT".to_owned()),
    ] {
        config.set(name, &value).unwrap();
    }
    let cluster = start(config).await;
    for (listener, host) in [("A", "127.0.0.1"), ("B", "::1")] {
        let addr = SocketAddr::new(host.parse().unwrap(), port);
        let (metadata, _) = Client::connect_to(addr).await.metadata("t").await;
        assert_eq!(metadata.brokers[0].host, host, "{listener}");
    }
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn a_host_name_that_does_not_resolve_is_named() {
    let mut config = config(1);
    config.set("listeners", "PLAINTEXT://no-such-host.invalid:9092").unwrap();
    let error = Cluster::start(config, Env::real()).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "cannot listen on no-such-host.invalid:9092 (choose a name that this machine can resolve)"
    );
}

#[tokio::test]
async fn a_broker_describes_its_own_listeners() {
    let mut config = config(2);
    config.listeners =
        "PLAINTEXT://localhost:0;PLAINTEXT://127.0.0.1:0".parse::<Listeners>().unwrap();
    let cluster = start(config).await;
    let mut client = Client::connect(&cluster, 2).await;
    let described = describe(&mut client, (BROKER, "2"), false).await;
    let listeners = described.iter().find(|config| &*config.name == "listeners").unwrap();
    assert_eq!(listeners.value.as_deref(), Some("PLAINTEXT://127.0.0.1:0"));
    soon(cluster.shutdown()).await;
}
