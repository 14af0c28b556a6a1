//! Listeners with authentication.

use std::{fs, path::Path, sync::Arc, time::Duration};

use crate::support::{Client, authenticate, batch, config, enter, soon, start, text};
use curtail_cluster::{
    ClientAuth, Cluster, ClusterConfig, Fault, Listeners, Requests, SecurityProtocol, Storage, User,
};
use curtail_net::{
    Env, HostCheck, Socket, SocketOptions,
    tls::{
        ClientConfig, Identity, RootCertStore, ServerName, TLS12, TLS13, TlsSocket,
        certificates_from_pem, client_config,
    },
};
use curtail_wire::{
    ErrorCode,
    api::ApiKey,
    cold::messages::{
        ApiVersionsRequest, DescribeClusterRequest, SaslAuthenticateRequest, SaslHandshakeRequest,
    },
};

fn secured(brokers: u32) -> ClusterConfig {
    let mut config = config(brokers);
    config.listeners = Listeners::local(SecurityProtocol::SaslPlaintext);
    config.security.users = vec![User::new("alice", "secret"), User::new("bob", "builder")];
    config.security.failed_authentication_delay = Duration::ZERO;
    config
}

#[tokio::test]
async fn an_authenticated_client_is_served_and_replicas_follow() {
    let cluster = start(secured(3)).await;
    cluster.create_topic("t", 1, 3, &[("min.insync.replicas", "3")]).unwrap();
    cluster.settled().await;
    let (leader, _) = cluster.leader("t", 0).unwrap();
    let mut client = Client::connect(&cluster, leader).await;
    let versions = client
        .cold(
            3,
            &ApiVersionsRequest::default()
                .with_client_software_name(text("test"))
                .with_client_software_version(text("1")),
        )
        .await;
    assert!(versions.api_keys.iter().any(|api| api.api_key == ApiKey::SASL_HANDSHAKE.0));
    assert_eq!(authenticate(&mut client, "alice\0secret").await, (ErrorCode::NONE, None, 0));
    // Every follower must fetch it.
    let answer = client.produce("t", 0, -1, batch(&["a"], None)).await;
    assert_eq!(answer.error, ErrorCode::NONE);
    assert_eq!(client.fetch_all("t", 0, 1).await, ["a"]);
    // Re-authentication is only for listeners that limit the lifetime.
    let handshake = SaslHandshakeRequest::default().with_mechanism(text("PLAIN"));
    let response = client.cold(1, &handshake).await;
    assert_eq!(response.error_code, ErrorCode::ILLEGAL_SASL_STATE.0);
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn a_client_without_valid_credentials_is_disconnected() {
    let cluster = start(secured(1)).await;
    let mut stranger = Client::connect(&cluster, 1).await;
    stranger.send_produce("t", 0, -1, batch(&["a"], None)).await;
    assert!(stranger.receive().await.is_none());

    let mut mistaken = Client::connect(&cluster, 1).await;
    let (code, told, _) = authenticate(&mut mistaken, "alice\0builder").await;
    assert_eq!(code, ErrorCode::SASL_AUTHENTICATION_FAILED);
    assert_eq!(told.as_deref(), Some("Authentication failed: Invalid username or password"));
    assert!(mistaken.receive().await.is_none());

    // The length prefix of a frame of more than 64 KiB, without the frame.
    let mut large = Client::connect(&cluster, 1).await;
    large.send(&65_537i32.to_be_bytes()).await;
    assert!(large.receive().await.is_none());
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn unauthenticated_connections_make_room_for_a_user() {
    let mut config = secured(1);
    config.set("max.connections", "3").unwrap();
    let cluster = start(config).await;
    cluster.create_topic("t", 1, 1, &[]).unwrap();
    cluster.settled().await;
    let mut strangers = Vec::new();
    for _ in 0..3 {
        strangers.push(Client::connect(&cluster, 1).await);
    }
    let mut alice = enter(&cluster, 1, "alice\0secret").await;
    let answer = alice.produce("t", 0, -1, batch(&["a"], None)).await;
    assert_eq!(answer.error, ErrorCode::NONE);
    assert!(strangers[0].receive().await.is_none(), "the oldest one was closed");
    // Further strangers do not close alice's connection either.
    for _ in 0..5 {
        strangers.push(Client::connect(&cluster, 1).await);
    }
    assert_eq!(alice.fetch_all("t", 0, 1).await, ["a"]);
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn a_connection_without_authentication_in_time_is_closed_and_a_users_stays() {
    let mut config = secured(1);
    config.set("connection.authentication.timeout.ms", "300").unwrap();
    let cluster = start(config).await;
    cluster.create_topic("t", 1, 1, &[]).unwrap();
    cluster.settled().await;
    let mut alice = enter(&cluster, 1, "alice\0secret").await;
    let mut stranger = Client::connect(&cluster, 1).await;
    let handshake = SaslHandshakeRequest::default().with_mechanism(text("PLAIN"));
    assert_eq!(stranger.cold(1, &handshake).await.error_code, 0);
    assert!(soon(stranger.receive()).await.is_none());
    let answer = alice.produce("t", 0, -1, batch(&["a"], None)).await;
    assert_eq!(answer.error, ErrorCode::NONE);
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn idle_connections_are_closed_after_connections_max_idle_ms() {
    let mut config = config(1);
    config.set("connections.max.idle.ms", "300").unwrap();
    let cluster = start(config).await;
    let mut idle = Client::connect(&cluster, 1).await;
    assert!(soon(idle.receive()).await.is_none());
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn a_connection_without_reauthentication_is_closed() {
    let mut config = secured(1);
    config.set("connections.max.reauth.ms", "1").unwrap();
    let cluster = start(config).await;
    let mut client = Client::connect(&cluster, 1).await;
    let (code, _, lifetime) = authenticate(&mut client, "bob\0builder").await;
    assert_eq!((code, lifetime), (ErrorCode::NONE, 1));
    // The connection stays open until the first request after that time.
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(authenticate(&mut client, "bob\0builder").await.0, ErrorCode::NONE);
    tokio::time::sleep(Duration::from_millis(5)).await;
    client.send_produce("t", 0, -1, batch(&["a"], None)).await;
    assert!(client.receive().await.is_none());
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn a_silenced_connection_does_not_answer_a_reauthentication() {
    let mut config = secured(1);
    config.set("connections.max.reauth.ms", "60000").unwrap();
    let cluster = start(config).await;
    cluster.create_topic("t", 1, 1, &[]).unwrap();
    cluster.settled().await;
    let mut client = enter(&cluster, 1, "bob\0builder").await;
    let mut other = enter(&cluster, 1, "alice\0secret").await;
    cluster.inject(Fault::silence(Requests::of(ApiKey::PRODUCE).times(1))).unwrap();
    client.send_produce("t", 0, -1, batch(&["a"], None)).await;
    let handshake = SaslHandshakeRequest::default().with_mechanism(text("PLAIN"));
    client.send_cold(1, &handshake).await;
    let login = SaslAuthenticateRequest::default().with_auth_bytes("\0bob\0builder".into());
    client.send_cold(2, &login).await;
    client.send_produce("t", 0, -1, batch(&["b"], None)).await;
    assert_eq!(soon(other.fetch_all("t", 0, 2)).await, ["a", "b"], "it is authenticated");
    tokio::select! {
        biased;
        open = client.receive_raw() => panic!("it sent something, or closed: {open}"),
        _ = other.list_offset("t", 0, -1) => {}
    }
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn a_restarted_broker_is_reached_by_the_others() {
    let cluster = start(secured(2)).await;
    cluster.create_topic("t", 1, 2, &[("min.insync.replicas", "2")]).unwrap();
    cluster.settled().await;
    let (leader, _) = cluster.leader("t", 0).unwrap();
    let follower = 3 - leader;
    cluster.kill(follower);
    soon(cluster.wait_until(|cluster| cluster.isr("t", 0).is_some_and(|isr| isr.len() == 1))).await;
    soon(cluster.restart(follower)).await.unwrap();
    soon(cluster.wait_until(|cluster| cluster.isr("t", 0).is_some_and(|isr| isr.len() == 2))).await;
    soon(cluster.settled()).await;
    let mut client = enter(&cluster, leader, "alice\0secret").await;
    let answer = client.produce("t", 0, -1, batch(&["a"], None)).await;
    assert_eq!(answer.error, ErrorCode::NONE);
    soon(cluster.shutdown()).await;
}

/// Returns a TLS configuration with these trusted certificates and this identity.
fn tls(ca: &[u8], identity: Option<Identity>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates_from_pem(ca).unwrap());
    client_config(roots, HostCheck::Https, identity, &[&TLS12, &TLS13]).unwrap()
}

/// Connects to the first broker, dialled by this name.
async fn dial(cluster: &Cluster, config: Arc<ClientConfig>, name: &str) -> Option<Client> {
    let addr = cluster.broker(1).unwrap().addr();
    let socket = Env::real().net.connect(addr, SocketOptions::default()).await.unwrap();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let limit = Duration::from_secs(60);
    let socket = TlsSocket::connect(socket, config, name, limit).await.ok()?;
    Some(Client::on(Box::new(socket) as Box<dyn Socket>))
}

fn encrypted(dir: &Path) -> ClusterConfig {
    let mut config = secured(1);
    config.listeners = Listeners::local(SecurityProtocol::SaslSsl);
    config.storage = Storage::Dir(dir.to_owned());
    config
}

#[tokio::test]
async fn certificates_are_created_once_for_the_names_that_clients_dial() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = start(encrypted(dir.path())).await;
    cluster.create_topic("t", 1, 1, &[]).unwrap();
    cluster.settled().await;
    let ca = fs::read(cluster.ca_file().unwrap()).unwrap();
    for name in ["localhost", "127.0.0.1", "::1"] {
        let mut client = dial(&cluster, tls(&ca, None), name).await.unwrap();
        assert_eq!(authenticate(&mut client, "alice\0secret").await.0, ErrorCode::NONE);
        let answer = client.produce("t", 0, -1, batch(&[name], None)).await;
        assert_eq!(answer.error, ErrorCode::NONE);
    }
    assert!(dial(&cluster, tls(&ca, None), "example.com").await.is_none());
    // A client without TLS.
    let mut clear = Client::connect(&cluster, 1).await;
    clear.send_produce("t", 0, -1, batch(&["a"], None)).await;
    soon(async { while clear.receive_raw().await {} }).await;
    soon(cluster.shutdown()).await;

    let cluster = start(encrypted(dir.path())).await;
    assert_eq!(fs::read(cluster.ca_file().unwrap()).unwrap(), ca);
    assert!(dial(&cluster, tls(&ca, None), "localhost").await.is_some());
    soon(cluster.shutdown()).await;

    // Another name needs another certificate.
    let mut config = encrypted(dir.path());
    config.set("advertised.listeners", "SASL_SSL://kafka.example:0").unwrap();
    let cluster = start(config).await;
    let renewed = fs::read(cluster.ca_file().unwrap()).unwrap();
    assert_ne!(renewed, ca);
    assert!(dial(&cluster, tls(&renewed, None), "kafka.example").await.is_some());
    soon(cluster.shutdown()).await;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = fs::metadata(dir.path().join("broker.pem")).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "only the owner may read the private key");
    }
}

/// Creates an authority and a certificate signed for a subject. Returns the authority as PEM, the
/// chain as PEM, and the key.
fn signed(common_name: &str, names: &[&str]) -> (String, String, String) {
    use rcgen::{
        BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
    };
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let ca = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CountryName, "CH");
    params.distinguished_name.push(DnType::OrganizationName, "Tail, Ltd");
    params.distinguished_name.push(DnType::CommonName, common_name);
    let key = KeyPair::generate().unwrap();
    (ca, params.signed_by(&key, &issuer).unwrap().pem(), key.serialize_pem())
}

#[tokio::test]
async fn a_client_certificate_sets_the_principal() {
    let dir = tempfile::tempdir().unwrap();
    let (ca, chain, key) = signed("broker", &["localhost"]);
    let (clients_ca, clients_chain, clients_key) = signed("alice", &[]);
    fs::write(dir.path().join("keystore.pem"), format!("{key}{chain}")).unwrap();
    fs::write(dir.path().join("truststore.pem"), clients_ca).unwrap();
    let mut config = config(1);
    config.listeners = Listeners::local(SecurityProtocol::Ssl);
    config.security.failed_authentication_delay = Duration::ZERO;
    config.security.key_store = Some(dir.path().join("keystore.pem"));
    config.security.trust_store = Some(dir.path().join("truststore.pem"));
    config.security.client_auth = ClientAuth::Required;
    let authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";
    config.set("authorizer.class.name", authorizer).unwrap();
    let params = clients_chain.clone();
    // The principal has the reverse order of the certificate.
    config.set("super.users", "User:CN=alice,O=Tail\\, Ltd,C=CH").unwrap();
    let cluster = start(config).await;
    assert_eq!(cluster.ca_file(), None);

    let identity = Identity::from_pem(params.as_bytes(), clients_key.as_bytes(), None).unwrap();
    let mut alice = dial(&cluster, tls(ca.as_bytes(), Some(identity)), "localhost").await.unwrap();
    let asked = DescribeClusterRequest::default().with_include_cluster_authorized_operations(true);
    let operations = alice.cold(0, &asked).await.cluster_authorized_operations;
    assert_eq!(operations, 0b1_1111_1010_0000, "she may do everything");

    // With TLS 1.3 a client without a certificate is refused only after the handshake.
    if let Some(mut anonymous) = dial(&cluster, tls(ca.as_bytes(), None), "localhost").await {
        anonymous.try_send_produce("t", 0, -1, batch(&["a"], None)).await;
        assert!(anonymous.receive().await.is_none());
    }
    soon(cluster.shutdown()).await;
}

/// A key made for these tests only.
const CLEAR_KEY: &str = "-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgXyGddv0CqbPbHReb
uPlBr+isFFfgKV+XRpE0BxTwCt2hRANCAAT9/wUF1HVoAW6xIap/f5AUOMIIdp1Q
G0KhWdYtCO3aIXux0Lt05NoSb0uZU8l+pguA1I5pzDpmGNqCloz1Jt6L
-----END PRIVATE KEY-----";

/// The same key: `openssl pkcs8 -topk8 -v2 aes256 -passout pass:opensesame`.
const ENCRYPTED_KEY: &str = "-----BEGIN ENCRYPTED PRIVATE KEY-----
MIHsMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAhP+8w4pSgmigICCAAw
DAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEECASq8jMgpjCGxvowcepCZIEgZDC
+MTm6cUaWLz6KAfFO1JWSIHgi8mtkxYQWqbxFpy91/KSL0m0Vu3d8ZkdN5My/no0
UULRkNhXb1lTXKpEQ+746ILv7FBECCEQ+4dXSVZX7ouN8Y0hfGiDSRmJBseoEru9
8CSaCPnIb0e1b9NczYZV3r5vaH7fFld93ijwSbZrs0wT+ndUZnc5Zm4uoQcGBQE=
-----END ENCRYPTED PRIVATE KEY-----";

#[tokio::test]
async fn an_encrypted_private_key_is_accepted_with_its_password() {
    let dir = tempfile::tempdir().unwrap();
    let key = rcgen::KeyPair::from_pem(CLEAR_KEY).unwrap();
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap().pem();
    let path = dir.path().join("keystore.pem");
    fs::write(&path, format!("{ENCRYPTED_KEY}\n{certificate}")).unwrap();
    let mut config = secured(1);
    config.listeners = Listeners::local(SecurityProtocol::SaslSsl);
    config.security.key_store = Some(path);
    let refused = |config: &ClusterConfig| {
        let config = config.clone();
        async { Cluster::start(config, Env::real()).await.unwrap_err().to_string() }
    };
    let told = refused(&config).await;
    assert!(told.contains("keystore.pem") && told.contains("ssl.key.password"), "{told}");
    config.set("ssl.key.password", "sesame").unwrap();
    let told = refused(&config).await;
    assert!(told.contains("password is wrong") && !told.contains("sesame"), "{told}");
    config.set("ssl.key.password", "opensesame").unwrap();
    let shown = format!("{config:?} {:?}", config.properties().collect::<Vec<_>>());
    assert!(!shown.contains("sesame") && shown.contains("[hidden]"), "{shown}");
    let cluster = start(config).await;
    let mut client = dial(&cluster, tls(certificate.as_bytes(), None), "localhost").await.unwrap();
    assert_eq!(authenticate(&mut client, "alice\0secret").await.0, ErrorCode::NONE);
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn unusable_security_settings_are_reported_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("keystore.pem");
    fs::write(&path, "no PEM").unwrap();
    let mut config = secured(1);
    config.listeners = Listeners::local(SecurityProtocol::SaslSsl);
    config.security.key_store = Some(path.clone());
    let error = Cluster::start(config.clone(), Env::real()).await.unwrap_err().to_string();
    assert!(error.contains("keystore.pem") && error.contains("no certificate"), "{error}");
    for (name, value, said) in [
        (
            "listeners",
            "SASL_PLAINTEXT://127.0.0.1:0",
            "ssl.keystore.location is for SSL and SASL_SSL",
        ),
        ("listeners", "SSL://127.0.0.1:0", "users authenticate with SASL only"),
        ("ssl.client.auth", "required", "needs ssl.truststore.location"),
        ("ssl.keystore.location", "", "ssl.key.password needs ssl.keystore.location"),
    ] {
        let mut config = config.clone();
        config.set("ssl.key.password", "secret").unwrap();
        config.set(name, value).unwrap();
        let error = config.validate().unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    config.security.users.clear();
    let error = config.validate().unwrap_err().to_string();
    assert!(error.contains("no client could authenticate"), "{error}");
}
