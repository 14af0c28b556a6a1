//! ApiVersions, key 18, versions 0 to 4.
//!
//! The response to an unknown version is UNSUPPORTED_VERSION in version 0, with the versions of
//! this API (KIP-511), so that the client can retry.

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    api::ApiKey,
    cold::{
        self,
        messages::{
            ApiVersionsRequest, ApiVersionsResponse,
            api_versions_response::{ApiVersion, FinalizedFeatureKey, SupportedFeatureKey},
        },
    },
    header::RequestHeader,
};

use super::{
    Answer, Call,
    served::{SERVED, Served},
    text,
};
use crate::faults::KafkaRelease;

/// The feature of streams groups.
const STREAMS_VERSION: &str = "streams.version";

/// A feature of the cluster.
pub(super) struct Feature {
    pub(super) name: &'static str,
    /// The newest supported level.
    pub(super) newest: i16,
    /// The finalized level.
    pub(super) level: i16,
}

/// Returns the features by which clients choose their protocols. With `transaction.version` 2 they let
/// brokers add partitions to transactions, and take a new epoch with every EndTxn (KIP-890).
/// `group.version` 1 means the consumer protocol (KIP-848), `streams.version` 1 streams groups (KIP-1071).
pub(super) fn levels(call: &Call<'_>) -> [Feature; 3] {
    let transactions = call.broker.config.transaction_version;
    [
        Feature { name: "group.version", newest: 1, level: 1 },
        Feature { name: STREAMS_VERSION, newest: 1, level: 1 },
        Feature { name: "transaction.version", newest: 2, level: transactions },
    ]
}

pub(super) fn handle(call: &Call<'_>, body: Bytes, out: &mut Vec<Bytes>) -> Result<Answer, String> {
    let request: ApiVersionsRequest = call.decode(body)?;
    let mut response = ApiVersionsResponse::default();
    let named = |name: &str, version: &str| well_formed(name) && well_formed(version);
    if call.version() >= 3
        && !named(&request.client_software_name, &request.client_software_version)
    {
        response.error_code = ErrorCode::INVALID_REQUEST.0;
        return call.answer(&response, out);
    }
    if call.version() >= 3 {
        let software = &request.client_software_name;
        let version = &request.client_software_version;
        // As in Kafka, a connection keeps the first names.
        let _ = call.origin.software.set((software.to_string(), version.to_string()));
    }
    let release = call.release();
    if release.is_none_or(KafkaRelease::has_features) {
        features(call, &mut response);
    }
    let offered = SERVED.iter().filter(|served| call.is_offered(served));
    response.api_keys = offered.filter_map(|served| api_version(served, release)).collect();
    call.answer(&response, out)
}

fn features(call: &Call<'_>, response: &mut ApiVersionsResponse) {
    // Before version 4, version ranges starting at 0 were omitted (KAFKA-17011).
    let lowest = if call.version() >= 4 { 0 } else { 1 };
    let features = levels(call);
    let features = features.iter().filter(|feature| is_offered(feature, call.release()));
    let supported = features.clone().map(|feature| {
        SupportedFeatureKey::default()
            .with_name(text(feature.name))
            .with_min_version(lowest)
            .with_max_version(feature.newest)
    });
    response.supported_features = supported.collect();
    // Features do not change during the cluster's lifetime.
    response.finalized_features_epoch = 0;
    let finalized = features.filter(|feature| feature.level > 0).map(|feature| {
        FinalizedFeatureKey::default()
            .with_name(text(feature.name))
            .with_min_version_level(feature.level)
            .with_max_version_level(feature.level)
    });
    response.finalized_features = finalized.collect();
}

/// Returns whether a release has a feature. Those before streams groups do not know `streams.version`.
fn is_offered(feature: &Feature, release: Option<KafkaRelease>) -> bool {
    let has_streams = |release: KafkaRelease| release.newest(ApiKey::STREAMS_GROUP_HEARTBEAT);
    feature.name != STREAMS_VERSION || release.is_none_or(|it| has_streams(it).is_some())
}

/// Returns whether a client name has only letters, digits, dots and hyphens, and begins and ends
/// with a letter or digit (KIP-511).
fn well_formed(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    let outer = |c: char| c.is_ascii_alphanumeric();
    name.starts_with(outer) && name.ends_with(outer) && name.chars().all(inner)
}

/// Returns the versions of an API that clients are offered, `None` if there are none.
fn api_version(served: &Served, release: Option<KafkaRelease>) -> Option<ApiVersion> {
    let version = ApiVersion::default()
        .with_api_key(served.api.0)
        .with_min_version(served.lowest)
        .with_max_version(served.newest(release)?);
    Some(version)
}

/// Responds to an ApiVersions request of an unknown version. Releases before KIP-511 do not name
/// the known ones.
pub(crate) fn unsupported(
    header: &RequestHeader<'_>,
    release: Option<KafkaRelease>,
    out: &mut Vec<Bytes>,
) -> Result<Answer, String> {
    let named = release.is_none_or(KafkaRelease::names_versions);
    let own = SERVED.iter().filter(|served| named && served.api == ApiKey::API_VERSIONS);
    let response = ApiVersionsResponse::default()
        .with_error_code(ErrorCode::UNSUPPORTED_VERSION.0)
        .with_api_keys(own.filter_map(|served| api_version(served, release)).collect());
    let frame = cold::encode_response(ApiKey::API_VERSIONS, 0, header.correlation_id, &response)
        .map_err(|error| error.to_string())?;
    out.push(frame.into());
    Ok(Answer::Written)
}
