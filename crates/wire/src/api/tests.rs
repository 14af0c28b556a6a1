use kafka_protocol::messages::ApiVersionsResponse;
use kafka_protocol::messages::api_versions_response::{
    ApiVersion, FinalizedFeatureKey, SupportedFeatureKey,
};
use kafka_protocol::protocol::{Encodable, StrBytes};

use super::*;
use crate::test_support::survive_extreme_lengths;

fn answer(version: i16) -> ApiVersionsResponse {
    let api = |key, min, max| {
        ApiVersion::default().with_api_key(key).with_min_version(min).with_max_version(max)
    };
    let answer = ApiVersionsResponse::default().with_api_keys(vec![
        api(3, 0, 13),
        api(0, 3, 13),
        api(9999, 0, 1),
    ]);
    if version < 3 {
        return answer;
    }
    let name = StrBytes::from_static_str("transaction.version");
    answer
        .with_throttle_time_ms(5)
        .with_supported_features(vec![
            SupportedFeatureKey::default()
                .with_name(name.clone())
                .with_min_version(1)
                .with_max_version(3),
        ])
        .with_finalized_features_epoch(42)
        .with_finalized_features(vec![
            FinalizedFeatureKey::default()
                .with_name(name)
                .with_min_version_level(1)
                .with_max_version_level(2),
        ])
}

fn encoded(version: i16) -> Bytes {
    let mut bytes = Vec::new();
    answer(version).encode(&mut bytes, version).unwrap();
    bytes.into()
}

#[test]
fn keys_are_in_order_and_named() {
    for (i, fact) in FACTS.iter().enumerate() {
        assert_eq!(usize::try_from(fact.key), Ok(i), "{}", fact.name);
    }
    assert_eq!(ApiKey::API_VERSIONS.to_string(), "ApiVersions");
    assert_eq!(ApiKey(-1).to_string(), "API -1");
    assert_eq!(ApiKey(999).name(), "Unknown");
    assert_eq!(ApiKey(999).first_flexible(), None);
    assert_eq!(ApiKey::SASL_HANDSHAKE.first_flexible(), None);
    assert_eq!(ApiKey::PRODUCE.first_flexible(), Some(9));
}

#[test]
fn coded_versions_are_those_of_the_codecs() {
    assert_eq!(ApiKey::FETCH.coded_versions(), Some(4..=18));
    assert_eq!(ApiKey::API_VERSIONS.coded_versions(), Some(0..=4));
    assert_eq!(ApiKey(999).coded_versions(), None);
    assert_eq!(ApiKey::LEADER_AND_ISR.coded_versions(), None);
}

#[test]
fn every_version_of_the_response_is_decoded() {
    for version in 0..=4 {
        let answer = ApiVersions::decode(version, &encoded(version)).unwrap();
        assert_eq!(answer.error, ErrorCode::NONE);
        assert_eq!(answer.range(ApiKey::PRODUCE), Some(3..=13));
        assert_eq!(answer.range(ApiKey(9999)), Some(0..=1));
        assert_eq!(answer.range(ApiKey::FETCH), None);
        let (epoch, level) = if version >= 3 { (42, Some(2)) } else { (-1, None) };
        assert_eq!(answer.finalized_epoch, epoch);
        assert_eq!(answer.finalized_level("transaction.version"), level);
        if version >= 3 {
            let feature = FeatureRange { name: "transaction.version".to_owned(), min: 1, max: 3 };
            assert_eq!(answer.supported_features, [feature]);
            assert_eq!(answer.throttle_time_ms, 5);
        }
    }
}

#[test]
fn a_broker_that_is_too_old_is_understood() {
    let theirs = answer(0).with_error_code(ErrorCode::UNSUPPORTED_VERSION.0);
    let mut bytes = Vec::new();
    theirs.encode(&mut bytes, 0).unwrap();
    let answer = ApiVersions::decode(4, &bytes.into()).unwrap();
    assert_eq!(answer.error, ErrorCode::UNSUPPORTED_VERSION);
    assert_eq!(answer.range(ApiKey::METADATA), Some(0..=13));
    // Brokers before 2.4 list nothing.
    let bare = Bytes::from_static(&[0, 35, 0, 0, 0, 0]);
    assert_eq!(ApiVersions::decode(4, &bare).unwrap().apis, []);
}

#[test]
fn damaged_responses_are_refused() {
    for version in 0..=4 {
        let bytes = encoded(version);
        for end in 0..bytes.len() {
            assert!(ApiVersions::decode(version, &bytes.slice(..end)).is_err());
        }
        survive_extreme_lengths(&bytes, |damaged| drop(ApiVersions::decode(version, damaged)));
    }
}

#[test]
fn the_highest_common_version_is_taken() {
    let broker = ApiVersions::decode(0, &encoded(0)).unwrap();
    assert_eq!(broker.negotiate(ApiKey::PRODUCE, 3..=13), Ok(13));
    assert_eq!(broker.negotiate(ApiKey::PRODUCE, 0..=9), Ok(9));
    assert_eq!(broker.negotiate(ApiKey::PRODUCE, 13..=20), Ok(13));
    let none = broker.negotiate(ApiKey::PRODUCE, 0..=2).unwrap_err();
    assert_eq!(none.theirs, Some(3..=13));
    assert_eq!(
        none.to_string(),
        "no common version of Produce: this side speaks 0..=2, the broker 3..=13"
    );
    let missing = broker.negotiate(ApiKey::FETCH, 4..=17).unwrap_err();
    assert_eq!(missing.theirs, None);
    assert_eq!(
        missing.to_string(),
        "no common version of Fetch: this side speaks 4..=17, the broker none"
    );
}
