//! Listeners that ask who connects.

mod support;

use std::time::Duration;

use curtail_cluster::{Cluster, ClusterConfig, SecurityProtocol, User};
use curtail_wire::{
    ErrorCode,
    api::ApiKey,
    cold::{
        StrBytes,
        messages::{ApiVersionsRequest, SaslAuthenticateRequest, SaslHandshakeRequest},
    },
};
use support::{Client, batch, config, soon, start};

fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}

fn secured(brokers: u32) -> ClusterConfig {
    let mut config = config(brokers);
    config.security.protocol = SecurityProtocol::SaslPlaintext;
    config.security.users = vec![User::new("alice", "secret"), User::new("bob", "builder")];
    config.security.failed_authentication_delay = Duration::ZERO;
    config
}

/// The error, its message and the lifetime that the broker answers a password with.
async fn authenticate(client: &mut Client, password: &str) -> (ErrorCode, Option<String>, i64) {
    let handshake = SaslHandshakeRequest::default().with_mechanism(text("PLAIN"));
    let response = client.cold(1, &handshake).await;
    assert_eq!(response.error_code, 0);
    let message = format!("\0{password}").into_bytes();
    let request = SaslAuthenticateRequest::default().with_auth_bytes(message.into());
    let response = client.cold(2, &request).await;
    let told = response.error_message.map(|message| message.to_string());
    (ErrorCode(response.error_code), told, response.session_lifetime_ms)
}

async fn enter(cluster: &Cluster, broker: i32, password: &str) -> Client {
    let mut client = Client::connect(cluster, broker).await;
    let (code, ..) = authenticate(&mut client, password).await;
    assert_eq!(code, ErrorCode::NONE);
    client
}

#[tokio::test]
async fn who_has_authenticated_is_served_and_replicas_follow() {
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
    // Every follower has to fetch it.
    let answer = client.produce("t", 0, -1, batch(&["a"], None)).await;
    assert_eq!(answer.error, ErrorCode::NONE);
    assert_eq!(client.fetch_all("t", 0, 1).await, ["a"]);
    // A second authentication is for listeners that limit the first one.
    let handshake = SaslHandshakeRequest::default().with_mechanism(text("PLAIN"));
    let response = client.cold(1, &handshake).await;
    assert_eq!(response.error_code, ErrorCode::ILLEGAL_SASL_STATE.0);
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn others_are_not() {
    let cluster = start(secured(1)).await;
    let mut stranger = Client::connect(&cluster, 1).await;
    stranger.send_produce("t", 0, -1, batch(&["a"], None)).await;
    assert!(stranger.receive().await.is_none());

    let mut mistaken = Client::connect(&cluster, 1).await;
    let (code, told, _) = authenticate(&mut mistaken, "alice\0builder").await;
    assert_eq!(code, ErrorCode::SASL_AUTHENTICATION_FAILED);
    assert_eq!(told.as_deref(), Some("Authentication failed: Invalid username or password"));
    assert!(mistaken.receive().await.is_none());

    // A frame of more than 64 KiB, of which only the length has come.
    let mut large = Client::connect(&cluster, 1).await;
    large.send(&65_537i32.to_be_bytes()).await;
    assert!(large.receive().await.is_none());
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn an_authentication_that_is_not_renewed_ends_the_connection() {
    let mut config = secured(1);
    config.set("connections.max.reauth.ms", "1").unwrap();
    let cluster = start(config).await;
    let mut client = Client::connect(&cluster, 1).await;
    let (code, _, lifetime) = authenticate(&mut client, "bob\0builder").await;
    assert_eq!((code, lifetime), (ErrorCode::NONE, 1));
    // The connection stays until a request comes after that time.
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(authenticate(&mut client, "bob\0builder").await.0, ErrorCode::NONE);
    tokio::time::sleep(Duration::from_millis(5)).await;
    client.send_produce("t", 0, -1, batch(&["a"], None)).await;
    assert!(client.receive().await.is_none());
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn a_broker_that_comes_back_is_reached_by_the_others() {
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
