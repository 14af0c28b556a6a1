//! Responses of a token endpoint (RFC 6749, 5), and claims of a token.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Deserialize;
use serde_json::Value;
use zeroize::Zeroizing;

use super::Trouble;
use crate::{error::one_line, security::Secret};

/// A token and its validity, in milliseconds since the epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Granted {
    pub(super) token: Secret,
    pub(super) issued_ms: Option<i64>,
    pub(super) expires_ms: i64,
}

#[derive(Deserialize)]
struct Answer {
    access_token: Option<String>,
    /// Some providers send JWTs under this name; Java accepts it too.
    id_token: Option<String>,
    /// Seconds, as a number. Some providers send a string, which is ignored.
    #[serde(default)]
    expires_in: Value,
}

#[derive(Deserialize)]
struct Claims {
    /// Seconds since the epoch, possibly with a fraction (RFC 7519, 2).
    #[serde(default)]
    exp: Value,
    #[serde(default)]
    iat: Value,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Refusal {
    error: Option<String>,
    error_description: Option<String>,
    #[serde(rename = "errorCode")]
    error_code: Option<String>,
    #[serde(rename = "errorSummary")]
    error_summary: Option<String>,
}

/// Statuses after which a retry cannot help, as in Java.
const FINAL: [u16; 17] =
    [400, 401, 402, 403, 404, 405, 406, 407, 409, 410, 411, 412, 413, 414, 415, 501, 505];

/// The part of a request that proves who the client is.
pub(super) struct Proof {
    pub(super) secret: Secret,
    /// What to check if the endpoint refuses it.
    pub(super) check: &'static str,
}

/// Reads a response that arrived at `now_ms`. Failure reasons never quote a successful response.
pub(super) fn read(
    status: u16,
    body: &[u8],
    proof: &Proof,
    now_ms: i64,
) -> Result<Granted, Trouble> {
    match status {
        200 | 201 => granted(body, now_ms).map_err(|reason| Trouble::Refused(reason.into())),
        300..=399 => Err(Trouble::Refused(
            format!("it responds with a redirect (status {status}), which is not followed; set the address it redirects to").into(),
        )),
        _ => {
            let said = refusal(body, &proof.secret);
            let reason = match status {
                400 | 401 | 403 => format!(
                    "it refuses the login (status {status}{said}); check {}", proof.check
                ),
                _ => format!("it responds with status {status}{said}"),
            };
            Err(match FINAL.contains(&status) {
                true => Trouble::Refused(reason.into()),
                false => Trouble::Unreachable(reason.into()),
            })
        }
    }
}

fn granted(body: &[u8], now_ms: i64) -> Result<Granted, String> {
    // The parser's error message would quote the text.
    let answer: Answer = serde_json::from_slice(body)
        .map_err(|_| "its response is not a token in JSON".to_owned())?;
    let token = answer.access_token.or(answer.id_token).map(Secret::new);
    let token = token.filter(|token| !token.reveal().trim().is_empty());
    let token = token.ok_or("its response has no access_token")?;
    let lifetime_ms = to_ms(&answer.expires_in);
    let granted = of_token(&token, lifetime_ms, now_ms).ok_or(
        "the token has no expiry: no claim 'exp' in it, and no expires_in in the response",
    )?;
    if granted.expires_ms <= now_ms {
        return Err("the token it returns has expired; check the clocks".into());
    }
    Ok(granted)
}

/// Reads a token with its expiry: its own, or else the end of its lifetime. `None` without either.
fn of_token(token: &Secret, lifetime_ms: Option<i64>, now_ms: i64) -> Option<Granted> {
    let token = Secret::new(token.reveal().trim());
    let claims = claims(&token);
    let issued_ms = claims.as_ref().and_then(|claims| to_ms(&claims.iat));
    let stated = claims.and_then(|claims| to_ms(&claims.exp));
    let granted = lifetime_ms.map(|lifetime| now_ms.saturating_add(lifetime));
    Some(Granted { token, issued_ms, expires_ms: stated.or(granted)? })
}

/// Reads the text of a file with a token.
pub(super) fn read_file(text: &Secret, now_ms: i64) -> Result<Granted, Trouble> {
    let no_token = || Trouble::Refused("it has no JWT with an expiry (the claim 'exp')".into());
    let granted = of_token(text, None, now_ms).ok_or_else(no_token)?;
    // Another program renews the file, and may be late.
    match granted.expires_ms <= now_ms {
        true => Err(Trouble::Unreachable("the token in it has expired".into())),
        false => Ok(granted),
    }
}

/// Returns a JWT's claims; `None` if the token is not a JWT.
fn claims(token: &Secret) -> Option<Claims> {
    let mut parts = token.reveal().split('.');
    let (_, payload, _) = (parts.next()?, parts.next()?, parts.next()?);
    let payload = payload.trim_end_matches('=');
    let payload = Zeroizing::new(URL_SAFE_NO_PAD.decode(payload).ok()?);
    serde_json::from_slice(&payload).ok()
}

/// Converts seconds to milliseconds. Values out of range saturate.
fn to_ms(seconds: &Value) -> Option<i64> {
    seconds.as_f64().map(|seconds| (seconds * 1000.0) as i64)
}

/// `: error, description`, if the endpoint reports them in JSON.
fn refusal(body: &[u8], secret: &Secret) -> String {
    let said: Refusal = serde_json::from_slice(body).unwrap_or_default();
    let parts = [said.error, said.error_description, said.error_code, said.error_summary];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        return String::new();
    }
    // An endpoint that echoes the request must not bring the secret into a log.
    let said = parts.join(", ").replace(secret.reveal(), "[hidden]");
    format!(": {}", one_line(&said))
}

/// Reads a response of a token endpoint, for `crate::fuzzing`.
///
/// # Panics
/// If an expired token is accepted, or an error shows the secret or more than one short line.
pub(crate) fn check_response(status: u16, body: &[u8], secret: &str, now_ms: i64) {
    let proof = Proof { secret: Secret::new(secret), check: "the secret" };
    let reason = match read(status, body, &proof, now_ms) {
        Ok(granted) => {
            assert!(granted.expires_ms > now_ms && !granted.token.reveal().is_empty());
            return;
        }
        Err(trouble) => trouble.reason().clone(),
    };
    assert!(!reason.contains(secret), "the secret is shown: {reason}");
    assert!(!reason.contains(char::is_control), "control characters are shown: {reason:?}");
    assert!(reason.chars().count() < 1000, "a long error: {reason}");
}
