use curtail_wire::{
    cold::{
        self,
        messages::{
            ApiVersionsResponse,
            api_versions_response::{ApiVersion, FinalizedFeatureKey, SupportedFeatureKey},
        },
    },
    header::response_body,
};

use super::*;

fn version(api: ApiKey, min: i16, max: i16) -> ApiVersion {
    ApiVersion::default().with_api_key(api.0).with_min_version(min).with_max_version(max)
}

fn offered(
    version: i16,
    response: &ApiVersionsResponse,
    release: Option<KafkaRelease>,
) -> ApiVersionsResponse {
    let frame = cold::encode_response(ApiKey::API_VERSIONS, version, 7, response).unwrap();
    let frame = limited(version, &Bytes::from(frame).slice(4..), release).unwrap();
    let body = response_body(&frame, ApiKey::API_VERSIONS, version).unwrap();
    let version = if response.error_code == 0 { version } else { 0 };
    cold::decode_response(version, body).unwrap()
}

#[test]
fn versions_that_the_proxy_knows_keep_their_bytes() {
    for v in 0..=4 {
        let mut response = ApiVersionsResponse::default().with_api_keys(vec![
            version(ApiKey::PRODUCE, 0, 13),
            version(ApiKey::FETCH, 4, 18),
            version(ApiKey::DESCRIBE_CONFIGS, 1, 99),
            version(ApiKey::SASL_HANDSHAKE, 0, 1),
        ]);
        if v >= 1 {
            response.throttle_time_ms = 9;
        }
        if v >= 3 {
            let name = cold::StrBytes::from_static_str("f");
            response.supported_features =
                vec![SupportedFeatureKey::default().with_name(name.clone()).with_max_version(1)];
            response.finalized_features =
                vec![FinalizedFeatureKey::default().with_name(name).with_max_version_level(1)];
        }
        let frame = cold::encode_response(ApiKey::API_VERSIONS, v, 7, &response).unwrap();
        let frame = Bytes::from(frame).slice(4..);
        assert_eq!(limited(v, &frame, None).unwrap(), frame, "version {v}");
    }
}

#[test]
fn newer_versions_and_unknown_apis_are_not_offered() {
    let response = ApiVersionsResponse::default().with_api_keys(vec![
        version(ApiKey::METADATA, 0, 14),
        version(ApiKey::SHARE_FETCH, 1, 7),
        version(ApiKey::SHARE_ACKNOWLEDGE, 3, 7),
        version(ApiKey::OFFSET_COMMIT, 2, 11),
        version(ApiKey(1000), 0, 0),
    ]);
    let offered = offered(4, &response, None).api_keys;
    assert_eq!(
        offered,
        [
            version(ApiKey::METADATA, 0, 13),
            version(ApiKey::SHARE_FETCH, 1, 2),
            version(ApiKey::OFFSET_COMMIT, 2, 10),
        ]
    );
    for (api, version, may) in [
        (ApiKey::METADATA, 13, true),
        (ApiKey::METADATA, 14, false),
        (ApiKey::API_VERSIONS, 4, true),
        (ApiKey::API_VERSIONS, 5, false),
        (ApiKey::DESCRIBE_CONFIGS, 99, true),
        (ApiKey::SASL_HANDSHAKE, 0, false),
        (ApiKey::SASL_HANDSHAKE, 1, true),
        (ApiKey(1000), 0, false),
        (ApiKey(-1), 0, false),
    ] {
        assert_eq!(may_pass(api, version, None), may, "{api} {version}");
    }
}

#[test]
fn a_release_limits_versions_and_hides_features() {
    let release: KafkaRelease = "2.8".parse().unwrap();
    let name = cold::StrBytes::from_static_str("f");
    let response = ApiVersionsResponse::default()
        .with_api_keys(vec![
            version(ApiKey::FETCH, 4, 18),
            version(ApiKey::CONSUMER_GROUP_HEARTBEAT, 0, 1),
        ])
        .with_supported_features(vec![SupportedFeatureKey::default().with_name(name)]);
    let offered = offered(3, &response, Some(release));
    assert_eq!(offered.api_keys, [version(ApiKey::FETCH, 4, 12)]);
    assert!(offered.supported_features.is_empty());
    assert!(may_pass(ApiKey::FETCH, 12, Some(release)));
    assert!(!may_pass(ApiKey::FETCH, 13, Some(release)));
    assert!(!may_pass(ApiKey::CONSUMER_GROUP_HEARTBEAT, 0, Some(release)));
}

#[test]
fn a_refused_version_is_read_in_version_0() {
    let response = ApiVersionsResponse::default()
        .with_error_code(ErrorCode::UNSUPPORTED_VERSION.0)
        .with_api_keys(vec![version(ApiKey::API_VERSIONS, 0, 9)]);
    let frame = cold::encode_response(ApiKey::API_VERSIONS, 0, 7, &response).unwrap();
    let frame = limited(4, &Bytes::from(frame).slice(4..), None).unwrap();
    let body = response_body(&frame, ApiKey::API_VERSIONS, 4).unwrap();
    let read: ApiVersionsResponse = cold::decode_response(0, body).unwrap();
    assert_eq!(read.api_keys, [version(ApiKey::API_VERSIONS, 0, 4)]);
}
