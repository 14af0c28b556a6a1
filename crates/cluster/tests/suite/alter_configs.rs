//! AlterConfigs, the request older than KIP-339: the settings it names replace all overrides.

use curtail_wire::{
    ErrorCode,
    cold::messages::{
        AlterConfigsRequest, DescribeConfigsRequest,
        alter_configs_request::{AlterConfigsResource, AlterableConfig},
        describe_configs_request::DescribeConfigsResource,
    },
};

use crate::support::{Client, one_partition, soon, text};

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const GROUP: i8 = 32;

/// A resource, and two of its settings.
type Target = (i8, &'static str, [(&'static str, &'static str); 2]);

const TARGETS: [Target; 4] = [
    (TOPIC, "t", [("retention.ms", "1000"), ("min.insync.replicas", "1")]),
    (BROKER, "1", [("max.connections", "77"), ("message.max.bytes", "99999")]),
    (BROKER, "", [("max.connections", "78"), ("log.segment.bytes", "2000000")]),
    (
        GROUP,
        "g",
        [("consumer.session.timeout.ms", "50000"), ("consumer.heartbeat.interval.ms", "6000")],
    ),
];

fn resource((kind, name): (i8, &str), settings: &[(&str, Option<&str>)]) -> AlterConfigsResource {
    let setting = |(name, value): &(&str, Option<&str>)| {
        AlterableConfig::default().with_name(text(name)).with_value(value.map(text))
    };
    AlterConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(name))
        .with_configs(settings.iter().map(setting).collect())
}

async fn send(
    client: &mut Client,
    version: i16,
    resources: Vec<AlterConfigsResource>,
    validate_only: bool,
) -> Vec<(ErrorCode, String)> {
    let request =
        AlterConfigsRequest::default().with_resources(resources).with_validate_only(validate_only);
    let responses = client.cold(version, &request).await.responses;
    let told = responses.iter().map(|response| {
        let message = response.error_message.as_ref().map(ToString::to_string);
        (ErrorCode(response.error_code), message.unwrap_or_default())
    });
    told.collect()
}

async fn set(client: &mut Client, version: i16, of: (i8, &str), settings: &[(&str, &str)]) {
    let settings: Vec<_> = settings.iter().map(|(name, value)| (*name, Some(*value))).collect();
    let done = send(client, version, vec![resource(of, &settings)], false).await;
    assert_eq!(done, [(ErrorCode::NONE, String::new())], "{of:?} {settings:?}");
}

/// Returns the overrides of a resource.
async fn overrides(client: &mut Client, (kind, name): (i8, &str)) -> Vec<(String, String)> {
    let source = match (kind, name) {
        (TOPIC, _) => 1,
        (BROKER, "") => 3,
        (BROKER, _) => 2,
        _ => 8,
    };
    let resource = DescribeConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(name))
        .with_configuration_keys(None);
    let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
    let response = client.cold(4, &request).await;
    let configs = response.results[0].configs.iter();
    let mut own: Vec<_> = configs
        .filter(|config| config.config_source == source)
        .map(|config| (config.name.to_string(), config.value.as_ref().unwrap().to_string()))
        .collect();
    own.sort();
    own
}

fn owned(settings: &[(&str, &str)]) -> Vec<(String, String)> {
    let mut owned: Vec<_> =
        settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    owned.sort();
    owned
}

#[tokio::test]
async fn alter_configs_deletes_overrides_that_it_does_not_name() {
    let (cluster, mut client) = one_partition().await;
    for version in 0..=2 {
        for (kind, name, settings) in TARGETS {
            let of = (kind, name);
            set(&mut client, version, of, &settings).await;
            assert_eq!(overrides(&mut client, of).await, owned(&settings), "{of:?}");
            set(&mut client, version, of, &settings[1..]).await;
            assert_eq!(overrides(&mut client, of).await, owned(&settings[1..]), "{of:?}");
            set(&mut client, version, of, &[]).await;
            assert_eq!(overrides(&mut client, of).await, owned(&[]), "{of:?}");
        }
    }
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn alter_configs_that_only_validates_or_is_refused_changes_nothing() {
    let (cluster, mut client) = one_partition().await;
    for (kind, name, settings) in TARGETS {
        let of = (kind, name);
        set(&mut client, 2, of, &settings).await;
        let first = (settings[0].0, Some(settings[0].1));
        let done = send(&mut client, 2, vec![resource(of, &[first])], true).await;
        assert_eq!(done, [(ErrorCode::NONE, String::new())], "{of:?}");
        let bad = (settings[1].0, Some("many"));
        let invalid = match kind {
            BROKER => ErrorCode::INVALID_REQUEST,
            _ => ErrorCode::INVALID_CONFIG,
        };
        for validate_only in [true, false] {
            let refused = send(&mut client, 2, vec![resource(of, &[bad])], validate_only).await;
            assert_eq!(refused[0].0, invalid, "{of:?}: {refused:?}");
        }
        let wrong = [
            (vec![resource(of, &[first, first])], "Error due to duplicate config keys"),
            (vec![resource(of, &[(first.0, None)])], "Null value not supported for : "),
            (
                vec![resource(of, &[first]), resource(of, &[])],
                "Each resource must appear at most once.",
            ),
        ];
        for (resources, message) in wrong {
            let asked = resources.len();
            let refused = send(&mut client, 2, resources, false).await;
            assert_eq!(refused.len(), asked);
            for (code, told) in refused {
                assert_eq!(code, ErrorCode::INVALID_REQUEST);
                assert!(told.starts_with(message), "{told}");
            }
        }
        assert_eq!(overrides(&mut client, of).await, owned(&settings), "{of:?}");
    }
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn alter_configs_of_an_unknown_topic_broker_or_type_is_refused() {
    let (cluster, mut client) = one_partition().await;
    let resources = [(TOPIC, "u"), (BROKER, "2"), (8, "1")];
    let resources = resources.map(|of| resource(of, &[])).into();
    let codes: Vec<_> =
        send(&mut client, 2, resources, false).await.into_iter().map(|(code, _)| code).collect();
    let expected = [
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode::INVALID_REQUEST,
        ErrorCode::INVALID_REQUEST,
    ];
    assert_eq!(codes, expected);
    soon(cluster.shutdown()).await;
}
