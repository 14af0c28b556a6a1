//! AWS Signature Version 4: presigned requests, and requests with an Authorization header.
//!
//! The rules are those of "Signature Version 4 signing" in the AWS documentation.

#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::{calendar, uri_encoded};
use crate::security::{AwsCredentials, Secret};

pub(super) const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// What a signature is for, and when it is made.
#[derive(Clone, Copy)]
pub(super) struct Scope<'a> {
    pub(super) region: &'a str,
    pub(super) service: &'a str,
    pub(super) now_ms: i64,
}

impl Scope<'_> {
    /// `20150830T123600Z`
    pub(super) fn time(&self) -> String {
        calendar::basic(self.now_ms)
    }

    /// `20150830/us-east-1/iam/aws4_request`
    fn path(&self) -> String {
        let time = self.time();
        let date = time.split('T').next().unwrap_or_default();
        format!("{date}/{}/{}/aws4_request", self.region, self.service)
    }

    /// The value of `X-Amz-Credential`.
    fn credential(&self, credentials: &AwsCredentials) -> String {
        format!("{}/{}", credentials.access_key_id, self.path())
    }
}

/// A request to sign.
pub(super) struct Request<'a> {
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    /// Names and values, neither encoded.
    pub(super) query: Vec<(&'a str, String)>,
    /// Names in lower case, and values.
    pub(super) headers: Vec<(&'a str, String)>,
    pub(super) body: &'a [u8],
}

impl Request<'_> {
    fn signed_headers(&self) -> String {
        let mut names: Vec<&str> = self.headers.iter().map(|(name, _)| *name).collect();
        names.sort_unstable();
        names.join(";")
    }

    /// The query as it is signed and sent: encoded and sorted.
    pub(super) fn canonical_query(&self) -> String {
        let encode = |(name, value): &(&str, String)| (uri_encoded(name), uri_encoded(value));
        let mut pairs: Vec<_> = self.query.iter().map(encode).collect();
        pairs.sort_unstable();
        let pairs: Vec<String> = pairs.iter().map(|(n, value)| format!("{n}={value}")).collect();
        pairs.join("&")
    }

    fn canonical(&self) -> String {
        let mut headers: Vec<_> = self.headers.iter().collect();
        headers.sort_unstable();
        let mut text = format!("{}\n{}\n{}\n", self.method, self.path, self.canonical_query());
        for (name, value) in headers {
            let words: Vec<&str> = value.split(' ').filter(|word| !word.is_empty()).collect();
            let _ = writeln!(text, "{name}:{}", words.join(" "));
        }
        let _ = write!(text, "\n{}\n{}", self.signed_headers(), hex(&Sha256::digest(self.body)));
        text
    }

    fn signature(&self, scope: Scope<'_>, secret: &Secret) -> String {
        let digest = hex(&Sha256::digest(self.canonical()));
        let text = format!("{ALGORITHM}\n{}\n{}\n{digest}", scope.time(), scope.path());
        let first = Zeroizing::new(format!("AWS4{}", secret.reveal()));
        let path = scope.path();
        let key = path
            .split('/')
            .fold(Zeroizing::new(first.as_bytes().to_vec()), |key, part| hmac(&key, part));
        hex(&hmac(&key, &text))
    }

    /// Adds the fields of a presigned request that is valid for `seconds`, its signature last.
    pub(super) fn presign(
        mut self,
        scope: Scope<'_>,
        credentials: &AwsCredentials,
        seconds: u32,
    ) -> Self {
        self.query.extend([
            ("X-Amz-Algorithm", ALGORITHM.to_owned()),
            ("X-Amz-Credential", scope.credential(credentials)),
            ("X-Amz-Date", scope.time()),
            ("X-Amz-Expires", seconds.to_string()),
            ("X-Amz-SignedHeaders", self.signed_headers()),
        ]);
        let token = credentials.session_token.as_ref();
        self.query.extend(token.map(|t| ("X-Amz-Security-Token", t.reveal().to_owned())));
        let signature = self.signature(scope, &credentials.secret_access_key);
        self.query.push(("X-Amz-Signature", signature));
        self
    }

    /// Adds the headers of a signed request.
    pub(super) fn sign(mut self, scope: Scope<'_>, credentials: &AwsCredentials) -> Self {
        self.headers.push(("x-amz-date", scope.time()));
        let token = credentials.session_token.as_ref();
        self.headers.extend(token.map(|t| ("x-amz-security-token", t.reveal().to_owned())));
        let authorization = format!(
            "{ALGORITHM} Credential={}, SignedHeaders={}, Signature={}",
            scope.credential(credentials),
            self.signed_headers(),
            self.signature(scope, &credentials.secret_access_key),
        );
        self.headers.push(("authorization", authorization));
        self
    }
}

fn hmac(key: &[u8], message: &str) -> Zeroizing<Vec<u8>> {
    // HMAC takes keys of every length.
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap_or_else(|_| unreachable!());
    mac.update(message.as_bytes());
    Zeroizing::new(mac.finalize().into_bytes().to_vec())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
