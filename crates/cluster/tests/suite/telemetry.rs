//! GetTelemetrySubscriptions and PushTelemetry (KIP-714), byte by byte.

use std::time::Duration;

use bytes::Bytes;
use curtail_cluster::{ClientMetrics, Cluster, Uuid};
use curtail_wire::{
    ErrorCode,
    api::ApiKey,
    cold::messages::{
        ApiVersionsRequest, GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse,
        IncrementalAlterConfigsRequest, ListConfigResourcesRequest, PushTelemetryRequest,
        incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig},
    },
    compression::{Codec, Compression},
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::support::{Client, config, one_partition, soon, start, text};

const CLIENT_METRICS: i8 = 16;
const NONE: i16 = ErrorCode::NONE.0;
/// Longer than a test takes.
const HOUR: &str = "3600000";

fn receive(cluster: &Cluster) -> UnboundedReceiver<ClientMetrics> {
    let (sender, pushes) = unbounded_channel();
    cluster.receive_client_metrics(move |push| match &push.metrics[..] {
        b"refused" => Err("planted".into()),
        _ => sender.send(push).map_err(|error| error.to_string()),
    });
    pushes
}

async fn subscribe(cluster: &Cluster, client: &mut Client, settings: &[(&str, &str)]) -> i16 {
    let setting = |(name, value): &(&str, &str)| {
        AlterableConfig::default().with_name(text(name)).with_value(Some(text(value)))
    };
    let resource = AlterConfigsResource::default()
        .with_resource_type(CLIENT_METRICS)
        .with_resource_name(text("s"))
        .with_configs(settings.iter().map(setting).collect());
    let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
    let code = client.cold(1, &request).await.responses[0].error_code;
    cluster.settled().await;
    code
}

async fn get(client: &mut Client, id: Uuid) -> GetTelemetrySubscriptionsResponse {
    let request = GetTelemetrySubscriptionsRequest::default()
        .with_client_instance_id(uuid::Uuid::from_bytes(id.0));
    client.cold(0, &request).await
}

async fn push(client: &mut Client, request: PushTelemetryRequest) -> ErrorCode {
    ErrorCode(client.cold(0, &request).await.error_code)
}

fn of(subscription: &GetTelemetrySubscriptionsResponse, metrics: &[u8]) -> PushTelemetryRequest {
    PushTelemetryRequest::default()
        .with_client_instance_id(subscription.client_instance_id)
        .with_subscription_id(subscription.subscription_id)
        .with_metrics(Bytes::copy_from_slice(metrics))
}

async fn offered(client: &mut Client) -> Vec<ApiKey> {
    let request = ApiVersionsRequest::default()
        .with_client_software_name(text("tester"))
        .with_client_software_version(text("1.2"));
    let keys = client.cold(3, &request).await.api_keys;
    let keys = keys.iter().map(|api| ApiKey(api.api_key));
    let of_metrics = [ApiKey::GET_TELEMETRY_SUBSCRIPTIONS, ApiKey::PUSH_TELEMETRY];
    keys.filter(|api| of_metrics.contains(api)).collect()
}

#[tokio::test]
async fn apis_are_offered_while_there_is_a_receiver() {
    let (cluster, mut client) = one_partition().await;
    assert!(offered(&mut client).await.is_empty());
    let pushes = receive(&cluster);
    let both = [ApiKey::GET_TELEMETRY_SUBSCRIPTIONS, ApiKey::PUSH_TELEMETRY];
    assert_eq!(offered(&mut client).await, both);
    assert_eq!(get(&mut client, Uuid::ZERO).await.error_code, NONE);
    cluster.stop_receiving_client_metrics();
    assert!(offered(&mut client).await.is_empty());
    drop(pushes);
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn client_without_a_subscription_has_an_id_and_nothing_to_push() {
    let (cluster, mut client) = one_partition().await;
    let _pushes = receive(&cluster);
    let first = get(&mut client, Uuid::ZERO).await;
    assert!(!first.client_instance_id.is_nil());
    assert_eq!((first.push_interval_ms, first.telemetry_max_bytes), (300_000, 1 << 20));
    assert!(first.requested_metrics.is_empty() && first.delta_temporality);
    assert_eq!(first.accepted_compression_types, [4, 3, 1, 2]);
    // The id of the request is kept, whichever broker has assigned it.
    let own = Uuid([9; 16]);
    assert_eq!(get(&mut client, own).await.client_instance_id.as_bytes(), &own.0);
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn push_reaches_the_receiver_decompressed() {
    let (cluster, mut client) = one_partition().await;
    let mut pushes = receive(&cluster);
    offered(&mut client).await;
    let settings = [("metrics", "a.,b."), ("interval.ms", "100")];
    assert_eq!(subscribe(&cluster, &mut client, &settings).await, NONE);
    let subscription = get(&mut client, Uuid::ZERO).await;
    assert_eq!(subscription.requested_metrics, [text("a."), text("b.")]);
    let content = b"some metrics of a client ".repeat(100);
    for codec in Codec::ALL {
        let mut compressed = Vec::new();
        Compression::from(codec).compress(&content, &mut compressed).unwrap();
        // Each is the terminating push of another client, which no interval delays.
        let subscription = get(&mut client, Uuid([codec.id() + 10; 16])).await;
        let request = of(&subscription, &compressed)
            .with_terminating(true)
            .with_compression_type(codec.id() as i8);
        assert_eq!(push(&mut client, request).await, ErrorCode::NONE, "{codec}");
        let received = soon(pushes.recv()).await.unwrap();
        assert_eq!((received.codec, &received.metrics[..]), (codec, &content[..]));
        assert_eq!(received.software, Some(("tester".into(), "1.2".into())));
        assert!(received.terminating && received.broker == 1);
        assert_eq!(received.client_instance_id.0, *subscription.client_instance_id.as_bytes());
    }
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn push_is_refused_with_kafkas_error_codes() {
    let (cluster, mut client) = one_partition().await;
    let mut pushes = receive(&cluster);
    let settings = [("metrics", "*"), ("interval.ms", HOUR)];
    assert_eq!(subscribe(&cluster, &mut client, &settings).await, NONE);
    let mut next = 100;
    let mut fresh = async |client: &mut Client| {
        next += 1;
        get(client, Uuid([next; 16])).await
    };
    let one = fresh(&mut client).await;
    assert_eq!(push(&mut client, of(&one, b"x")).await, ErrorCode::NONE);
    let early = push(&mut client, of(&one, b"x")).await;
    assert_eq!(early, ErrorCode::THROTTLING_QUOTA_EXCEEDED);
    let id = Uuid(*one.client_instance_id.as_bytes());
    let again = get(&mut client, id).await;
    assert_eq!(ErrorCode(again.error_code), ErrorCode::THROTTLING_QUOTA_EXCEEDED);
    let last = of(&one, b"x").with_terminating(true);
    assert_eq!(push(&mut client, last.clone()).await, ErrorCode::NONE);
    assert_eq!(push(&mut client, last).await, ErrorCode::INVALID_REQUEST);

    let subscription = fresh(&mut client).await;
    let zero = of(&subscription, b"x").with_client_instance_id(uuid::Uuid::nil());
    assert_eq!(push(&mut client, zero).await, ErrorCode::INVALID_REQUEST);
    let unknown = of(&subscription, b"x").with_subscription_id(subscription.subscription_id ^ 1);
    assert_eq!(push(&mut client, unknown).await, ErrorCode::UNKNOWN_SUBSCRIPTION_ID);
    for (change, expected) in [
        (PushTelemetryRequest::default().with_compression_type(7), "UNSUPPORTED_COMPRESSION_TYPE"),
        (PushTelemetryRequest::default().with_compression_type(4), "INVALID_RECORD"),
        (
            PushTelemetryRequest::default().with_metrics(vec![0; (1 << 20) + 1].into()),
            "TELEMETRY_TOO_LARGE",
        ),
        (
            PushTelemetryRequest::default().with_metrics(Bytes::from_static(b"refused")),
            "INVALID_RECORD",
        ),
    ] {
        let subscription = fresh(&mut client).await;
        let metrics = if change.metrics.is_empty() { b"x".as_slice() } else { &change.metrics };
        let request = of(&subscription, metrics).with_compression_type(change.compression_type);
        assert_eq!(push(&mut client, request).await.name(), expected);
    }
    let largest = vec![0; 1 << 20];
    let subscription = fresh(&mut client).await;
    assert_eq!(push(&mut client, of(&subscription, &largest)).await, ErrorCode::NONE);
    let received = std::iter::from_fn(|| pushes.try_recv().ok()).count();
    assert_eq!(received, 3);
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn subscription_of_another_connection_is_forgotten_with_it() {
    let (cluster, mut client) = one_partition().await;
    let _pushes = receive(&cluster);
    let settings = [("metrics", "*"), ("interval.ms", HOUR)];
    assert_eq!(subscribe(&cluster, &mut client, &settings).await, NONE);
    let subscription = get(&mut client, Uuid::ZERO).await;
    let id = Uuid(*subscription.client_instance_id.as_bytes());
    drop(client);
    let mut other = Client::connect(&cluster, 1).await;
    let asking = async {
        while get(&mut other, id).await.error_code != NONE {
            tokio::task::yield_now().await;
        }
    };
    soon(asking).await;
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn subscriptions_survive_a_restart_and_end_without_settings() {
    let cluster = start(config(3)).await;
    let mut client = Client::connect(&cluster, 1).await;
    let settings =
        [("metrics", "x."), ("interval.ms", HOUR), ("match", "client_source_address=.*")];
    assert_eq!(subscribe(&cluster, &mut client, &settings).await, NONE);
    cluster.crash_controller();
    cluster.restart_controller().unwrap();
    let _pushes = receive(&cluster);
    for broker in 1..=3 {
        let mut client = Client::connect(&cluster, broker).await;
        let subscription = get(&mut client, Uuid::ZERO).await;
        assert_eq!(subscription.requested_metrics, [text("x.")]);
        let interval = Duration::from_millis(u64::try_from(subscription.push_interval_ms).unwrap());
        assert_eq!(interval, Duration::from_secs(3600).min(Duration::from_secs(300)));
        let request = ListConfigResourcesRequest::default();
        let listed = client.cold(0, &request).await.config_resources;
        assert_eq!(listed.iter().map(|found| &*found.resource_name).collect::<Vec<_>>(), ["s"]);
    }
    soon(cluster.shutdown()).await;
}
