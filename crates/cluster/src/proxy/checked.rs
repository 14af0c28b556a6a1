//! Properties of the proxy's parsers, for the fuzz targets.

use bytes::Bytes;
use curtail_wire::{ApiKey, ErrorCode, header::split_request};

use super::{
    addresses::{self, Addresses},
    directory::Directory,
    refuse::{self, Verdict},
    versions,
};
use crate::faults::Item;

/// Returns the frame with other addresses.
fn replaced(
    api: ApiKey,
    version: i16,
    frame: &Bytes,
    found: &Addresses,
    places: &[(&str, u16)],
) -> Bytes {
    let mut out = Vec::new();
    addresses::replace(frame, api.encoding(version), found, places, &mut out);
    let length: usize = out.iter().skip(1).map(Bytes::len).sum();
    assert_eq!(out[0][..], (length as u32).to_be_bytes(), "the length");
    out[1..].concat().into()
}

/// See [`crate::fuzzing::proxied_response`].
pub(crate) fn check_response(api: ApiKey, version: i16, frame: &Bytes) {
    if api == ApiKey::API_VERSIONS {
        // What it offers may pass, and is offered unchanged.
        let Ok(limited) = versions::limited(version, frame, None) else { return };
        assert_eq!(versions::limited(version, &limited, None).as_ref(), Ok(&limited));
        return;
    }
    let Ok(found) = addresses::find(api, version, frame) else { return };
    if found.found.is_empty() {
        return;
    }
    let before: Vec<_> =
        found.found.iter().map(|address| (address.host.as_str(), address.port)).collect();
    let after: Vec<(&str, u16)> = (1..=before.len() as u16).map(|port| ("proxy", port)).collect();
    let there = replaced(api, version, frame, &found, &after);
    let named = |frame: &Bytes, places: &[(&str, u16)]| {
        let found = addresses::find(api, version, frame).unwrap_or_default();
        let shown = found.found.iter().map(|address| (address.host.as_str(), address.port));
        assert!(shown.eq(places.iter().copied()), "the addresses");
        found
    };
    // A port of 0 in between is no address.
    if after.iter().all(|(_, port)| *port > 0) {
        let found = named(&there, &after);
        named(&replaced(api, version, &there, &found, &before), &before);
    }
}

/// See [`crate::fuzzing::proxied_request`].
pub(crate) fn check_request(frame: &Bytes) {
    let Ok((header, body)) = split_request(frame) else { return };
    let directory = Directory::new("proxy".into(), None);
    for every in [0, 1, 2] {
        let mut asked = 0_u32;
        let mut ask = |_: Item<'_>| {
            asked += 1;
            (every > 0 && asked.is_multiple_of(every)).then_some(ErrorCode::REQUEST_TIMED_OUT)
        };
        let decided = refuse::decide(&header, &body, &directory, &mut ask);
        if let Ok(Verdict::Part { merge, .. }) = decided {
            // The cluster may respond with anything.
            let _ = merge(frame);
        }
    }
}
