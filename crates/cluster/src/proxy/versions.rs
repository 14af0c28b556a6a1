//! ApiVersions: clients are offered the versions that the proxy can read, and those of a release if a fault
//! says so.

#[cfg(test)]
mod tests;

use bytes::Bytes;
use curtail_wire::{ApiKey, DecodeError, Encoding, ErrorCode, Reader, Writer};

use super::addresses;
use crate::{
    faults::{self, KafkaRelease},
    handlers::newest_served,
};

/// The newest version of the share APIs whose addresses are known.
const NEWEST_SHARE: i16 = 2;

/// The oldest SaslHandshake. Version 0 is followed by tokens without a header (before KIP-152).
const OLDEST_HANDSHAKE: i16 = 1;

/// Returns the newest version of an API that may pass: responses of later ones may name addresses in
/// places that are not known, and their parts could not be refused.
fn newest(api: ApiKey) -> i16 {
    match api {
        ApiKey::SHARE_FETCH | ApiKey::SHARE_ACKNOWLEDGE => NEWEST_SHARE,
        _ if addresses::are_in(api) || faults::has_errors(api) || api == ApiKey::API_VERSIONS => {
            newest_served(api).unwrap_or(-1)
        }
        _ if ApiKey::all().any(|known| known == api) => i16::MAX,
        _ => -1,
    }
}

/// Returns whether a request may pass.
pub(super) fn may_pass(api: ApiKey, version: i16, release: Option<KafkaRelease>) -> bool {
    let newest = match release {
        Some(release) => release.newest(api).unwrap_or(-1).min(newest(api)),
        None => newest(api),
    };
    version <= newest && !(api == ApiKey::SASL_HANDSHAKE && version < OLDEST_HANDSHAKE)
}

/// Returns the frame of a response to ApiVersions with the versions that may pass.
pub(super) fn limited(
    version: i16,
    frame: &Bytes,
    release: Option<KafkaRelease>,
) -> Result<Bytes, DecodeError> {
    let mut r = Reader::new(frame, Encoding::Classic);
    let mut w = Writer::with_capacity(frame.len());
    w.i32(r.i32("correlation id")?);
    let error = r.i16("error code")?;
    // A broker that does not know the version responds in version 0 (KIP-511).
    let version = if error == ErrorCode::UNSUPPORTED_VERSION.0 { 0 } else { version };
    let encoding = ApiKey::API_VERSIONS.encoding(version);
    r.set_encoding(encoding);
    w.set_encoding(encoding);
    w.i16(error);
    let offered = r.array_of(6, "api keys", |r| {
        let api = ApiKey(r.i16("api key")?);
        let range = (r.i16("min version")?, r.i16("max version")?);
        r.skip_tagged("api version")?;
        Ok((api, range))
    })?;
    let offered: Vec<_> =
        offered.into_iter().filter_map(|(api, range)| offer(api, range, release)).collect();
    w.array(offered.len());
    for (api, min, max) in offered {
        w.i16(api.0);
        w.i16(min);
        w.i16(max);
        w.no_tags();
    }
    if version >= 1 {
        w.i32(r.i32("throttle time")?);
    }
    match release.is_none_or(KafkaRelease::has_features) {
        true => w.raw(&r.rest()),
        false => w.no_tags(),
    }
    Ok(w.into_bytes())
}

fn offer(
    api: ApiKey,
    (min, max): (i16, i16),
    release: Option<KafkaRelease>,
) -> Option<(ApiKey, i16, i16)> {
    let mut max = max.min(newest(api));
    if let Some(release) = release {
        max = max.min(release.newest(api)?);
    }
    // librdkafka assumes that a broker without SaslHandshake 0 supports no handshake at all. A request of
    // that version is refused.
    (min <= max).then_some((api, min, max))
}
