//! OAUTHBEARER (RFC 7628) with unsecured tokens (RFC 7515, appendix A.5), as in Kafka's validator
//! for development. A client may write any name into a token and is authenticated under it until
//! the token expires.
//!
//! The claim `sub` contains the principal; `exp` is required, `iat` is optional; both are in
//! seconds. Times are compared exactly.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD as BASE64};
use serde_json::{Map, Value};

use super::{Refused, Step};

/// The challenge after an invalid token; the client responds with [`SEEN`].
const INVALID: &str = r#"{"status":"invalid_token"}"#;
const SEEN: &[u8] = b"\x01";

/// The server's side of one exchange.
#[derive(Default)]
pub(crate) struct Server {
    /// Whether the client was informed that its token is invalid.
    told: bool,
}

impl Server {
    pub(super) fn step(&mut self, message: &[u8], wall_ms: i64) -> Result<Step, Refused> {
        if self.told {
            return Err(if message == SEEN { Refused::Because(INVALID) } else { Refused::Invalid });
        }
        let first = First::parse(message).ok_or(Refused::Invalid)?;
        let Some((user, expires_ms)) = holder(first.token, wall_ms) else {
            self.told = true;
            return Ok(Step::Challenge(INVALID.into()));
        };
        if first.on_behalf_of.is_some_and(|name| name != user) {
            return Err(Refused::Because(
                "Authentication failed: Client requested an authorization id that is different from the token's \
                 principal name",
            ));
        }
        Ok(Step::Proved { last: Vec::new(), user, expires_ms: Some(expires_ms) })
    }
}

/// `n,[a=NAME],^Aauth=Bearer TOKEN^A[KEY=VALUE^A...]^A`, where `^A` is the byte 1.
struct First<'a> {
    on_behalf_of: Option<&'a str>,
    token: &'a str,
}

impl<'a> First<'a> {
    fn parse(message: &'a [u8]) -> Option<Self> {
        let message = std::str::from_utf8(message).ok()?;
        let (header, pairs) = message.split_once('\x01')?;
        let on_behalf_of = match header.strip_prefix("n,")?.strip_suffix(',')? {
            "" => None,
            name => Some(name.strip_prefix("a=")?),
        };
        let mut pairs = pairs.strip_suffix('\x01')?.split_terminator('\x01');
        let auth = pairs.find_map(|pair| pair.strip_prefix("auth="))?;
        let (scheme, token) = auth.split_once(' ')?;
        scheme
            .eq_ignore_ascii_case("bearer")
            .then_some(Self { on_behalf_of, token: token.trim_start_matches(' ') })
    }
}

/// Returns a token's name and expiry in milliseconds since the Unix epoch; `None` if it is invalid.
fn holder(token: &str, wall_ms: i64) -> Option<(String, i64)> {
    let mut parts = token.split('.');
    let (head, claims, "", None) = (parts.next()?, parts.next()?, parts.next()?, parts.next())
    else {
        return None;
    };
    if json(head)?.get("alg")?.as_str()? != "none" {
        return None;
    }
    let claims = json(claims)?;
    let name = claims.get("sub")?.as_str().filter(|name| !name.trim().is_empty())?;
    let millis = |seconds: &Value| {
        let millis = (seconds.as_f64()? * 1000.0).round();
        (0.0..=i64::MAX as f64).contains(&millis).then_some(millis as i64)
    };
    let expires = millis(claims.get("exp")?)?;
    let issued = claims.get("iat").map_or(Some(i64::MIN), millis)?;
    let valid = issued <= wall_ms && wall_ms < expires && issued < expires;
    valid.then(|| (name.to_owned(), expires))
}

fn json(part: &str) -> Option<Map<String, Value>> {
    serde_json::from_slice(&BASE64.decode(part).ok()?).ok()
}
