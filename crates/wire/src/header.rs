//! Request and response headers.
//!
//! A request has header version 1 if its body is classic and 2 if it is flexible; a response 0 and 1. Responses to
//! ApiVersions always have header version 0, because the client cannot know yet whether the broker supports the
//! version of the request (KIP-511).

use bytes::Bytes;

use crate::api::ApiKey;
use crate::{DecodeError, Encoding, Reader, Writer};

#[cfg(test)]
mod tests;

/// Whether requests and responses of this version are in the flexible encoding. The header of a response also depends
/// on the API, see [`response_encoding`].
#[must_use]
pub fn is_flexible(api: ApiKey, version: i16) -> bool {
    api.encoding(version) == Encoding::Flexible
}

/// The encoding of a response's header.
#[must_use]
pub fn response_encoding(api: ApiKey, version: i16) -> Encoding {
    if api == ApiKey::API_VERSIONS { Encoding::Classic } else { api.encoding(version) }
}

/// The header of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader<'a> {
    /// The API.
    pub api: ApiKey,
    /// Version of the body.
    pub version: i16,
    /// Repeated in the response.
    pub correlation_id: i32,
    /// Name that the client gave itself.
    pub client_id: Option<&'a str>,
}

impl<'a> RequestHeader<'a> {
    /// Appends the header and leaves the writer in the encoding of the body.
    pub fn encode(&self, w: &mut Writer) {
        w.i16(self.api.0);
        w.i16(self.version);
        w.i32(self.correlation_id);
        // The client id stays in the classic encoding even in flexible headers (KIP-482), so that a broker can read
        // it in a version that it does not know.
        w.set_encoding(Encoding::Classic);
        w.nullable_string(self.client_id);
        w.set_encoding(self.api.encoding(self.version));
        w.no_tags();
    }

    /// Reads the header and leaves the reader at the body, in its encoding.
    ///
    /// An unknown API or version is no error here; the caller decides on the response.
    pub fn decode(r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        r.set_encoding(Encoding::Classic);
        let api = ApiKey(r.i16("request api key")?);
        let version = r.i16("request api version")?;
        let correlation_id = r.i32("correlation id")?;
        let client_id = r.nullable_string("client id")?;
        r.set_encoding(api.encoding(version));
        r.skip_tagged("request header")?;
        Ok(Self { api, version, correlation_id, client_id })
    }
}

/// Splits a request frame into its header and its body.
pub fn split_request(frame: &Bytes) -> Result<(RequestHeader<'_>, Bytes), DecodeError> {
    let mut r = Reader::new(frame, Encoding::Classic);
    let header = RequestHeader::decode(&mut r)?;
    Ok((header, r.rest()))
}

/// Appends the header of a response and leaves the writer in the encoding of the body.
pub fn encode_response_header(api: ApiKey, version: i16, correlation_id: i32, w: &mut Writer) {
    w.i32(correlation_id);
    w.set_encoding(response_encoding(api, version));
    w.no_tags();
    w.set_encoding(api.encoding(version));
}

/// The correlation id of a response frame, which identifies its request.
pub fn correlation_id(frame: &Bytes) -> Result<i32, DecodeError> {
    Reader::new(frame, Encoding::Classic).i32("correlation id")
}

/// The body of a response frame to a request of this API and version.
pub fn response_body(frame: &Bytes, api: ApiKey, version: i16) -> Result<Bytes, DecodeError> {
    let mut r = Reader::new(frame, response_encoding(api, version));
    r.i32("correlation id")?;
    r.skip_tagged("response header")?;
    Ok(r.rest())
}
