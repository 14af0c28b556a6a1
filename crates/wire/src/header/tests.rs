use kafka_protocol::messages;
use kafka_protocol::protocol::{Encodable, StrBytes};
use proptest::prelude::*;

use super::*;
use crate::test_support::nullable_text;

/// Every version of every API both implementations know.
fn versions() -> impl Iterator<Item = (ApiKey, messages::ApiKey, i16)> {
    ApiKey::all().filter_map(|api| Some((api, messages::ApiKey::try_from(api.0).ok()?))).flat_map(
        |(api, other)| {
            let range = other.valid_versions();
            (range.min..=range.max).map(move |version| (api, other, version))
        },
    )
}

#[test]
fn header_versions_are_the_other_implementations() {
    assert!(versions().count() > 200);
    for (api, other, version) in versions() {
        let request = if is_flexible(api, version) { 2 } else { 1 };
        assert_eq!(request, other.request_header_version(version), "{api} {version}");
        let response = i16::from(response_encoding(api, version) == Encoding::Flexible);
        assert_eq!(response, other.response_header_version(version), "{api} {version}");
    }
}

#[test]
fn responses_are_split_and_built() {
    for (api, other, version) in versions() {
        let mut w = Writer::default();
        encode_response_header(api, version, 77, &mut w);
        assert_eq!(w.encoding(), api.encoding(version));
        w.raw(b"body");
        let frame = w.into_bytes();
        let mut theirs = Vec::new();
        let header = messages::ResponseHeader::default().with_correlation_id(77);
        header.encode(&mut theirs, other.response_header_version(version)).unwrap();
        assert_eq!(&frame[..frame.len() - 4], theirs, "{api} {version}");
        assert_eq!(correlation_id(&frame), Ok(77));
        assert_eq!(response_body(&frame, api, version).unwrap(), "body");
    }
}

#[test]
fn truncated_headers_are_refused() {
    let mut w = Writer::default();
    let header = RequestHeader {
        api: ApiKey::PRODUCE,
        version: 9,
        correlation_id: 1,
        client_id: Some("client"),
    };
    header.encode(&mut w);
    let frame = w.into_bytes();
    assert_eq!(split_request(&frame), Ok((header, Bytes::new())));
    for end in 0..frame.len() {
        let cut = frame.slice(..end);
        assert!(split_request(&cut).is_err(), "cut at {end} of {}", frame.len());
    }
    assert!(correlation_id(&Bytes::from_static(&[0, 0, 0])).is_err());
}

#[test]
fn unknown_requests_are_read_as_far_as_they_are_known() {
    let mut w = Writer::default();
    let header = RequestHeader { api: ApiKey(999), version: 3, correlation_id: 5, client_id: None };
    header.encode(&mut w);
    assert_eq!(split_request(&w.into_bytes()).unwrap().0, header);
}

proptest! {
    #[test]
    fn request_headers_read_back(
        at: prop::sample::Index, correlation_id: i32, client in crate::test_support::nullable_name(),
    ) {
        let all: Vec<_> = versions().collect();
        let (api, other, version) = all[at.index(all.len())];
        let header = RequestHeader { api, version, correlation_id, client_id: client.as_deref() };
        let mut w = Writer::default();
        header.encode(&mut w);
        let theirs = messages::RequestHeader::default()
            .with_request_api_key(api.0)
            .with_request_api_version(version)
            .with_correlation_id(correlation_id)
            .with_client_id(nullable_text(client.as_ref()) as Option<StrBytes>);
        let mut bytes = Vec::new();
        theirs.encode(&mut bytes, other.request_header_version(version)).unwrap();
        prop_assert_eq!(w.as_slice(), bytes);
        w.raw(b"body");
        let frame = w.into_bytes();
        let (read, body) = split_request(&frame).unwrap();
        prop_assert_eq!(read, header);
        prop_assert_eq!(body.as_ref(), b"body");
    }
}
