//! Assertions: signed JSON Web Tokens with which a client logs in at a token endpoint (RFC 7521, RFC 7523).
//!
//! As in Java, an assertion has three layers: the claims of the settings, the template, and the header and times of
//! this assertion. A later layer replaces names of an earlier one.

#[cfg(test)]
mod tests;

use std::{fs, path::Path};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use curtail_net::{
    secret_bytes,
    tls::{MaterialError, SigningKey},
};
use serde_json::{Map, Value, json};
use uuid::Builder;
use zeroize::Zeroizing;

use crate::{
    config::{ASSERTION_FILE, ASSERTION_KEY_FILE, ASSERTION_TEMPLATE_FILE},
    security::{AssertionConfig, Secret},
};

type Object = Map<String, Value>;

/// Returns the assertion for a login at `now_ms`. Reads files. An error names the setting and its file.
pub(super) fn create(config: &AssertionConfig, now_ms: i64) -> Result<Secret, String> {
    if let Some(file) = &config.file {
        return from_file(file).map_err(|reason| about(ASSERTION_FILE, file, &reason));
    }
    let Some(file) = &config.private_key_file else {
        return Err(format!("{ASSERTION_KEY_FILE} is required"));
    };
    let key = key(config, file).map_err(|reason| about(ASSERTION_KEY_FILE, file, &reason))?;
    let (header, payload) = parts(config, now_ms)?;
    let signed = format!("{}.{}", encoded(&header), encoded(&payload));
    let signature = key
        .sign(signed.as_bytes())
        .map_err(|error| about(ASSERTION_KEY_FILE, file, &error.to_string()))?;
    Ok(Secret::new(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))))
}

fn about(setting: &str, file: &Path, reason: &str) -> String {
    format!("{setting}={}: {reason}", file.display())
}

/// Returns a file's text without the spaces around it.
pub(super) fn read_text(file: &Path) -> Result<Secret, String> {
    let text = fs::read_to_string(file).map(Zeroizing::new).map_err(|error| error.to_string())?;
    Ok(Secret::new(text.trim()))
}

fn from_file(file: &Path) -> Result<Secret, String> {
    let assertion = read_text(file)?;
    match is_jwt(assertion.reveal()) {
        true => Ok(assertion),
        false => Err("it has no JWT: three parts in Base64 with dots between them".into()),
    }
}

fn is_jwt(text: &str) -> bool {
    let parts: Vec<&str> = text.split('.').collect();
    let [header, payload, signature] = parts[..] else { return false };
    let is_object = |part: &str| {
        let json = URL_SAFE_NO_PAD.decode(part.trim_end_matches('=')).map(Zeroizing::new);
        json.is_ok_and(|json| serde_json::from_slice::<Object>(&json).is_ok())
    };
    !signature.is_empty() && is_object(header) && is_object(payload)
}

fn key(config: &AssertionConfig, file: &Path) -> Result<SigningKey, String> {
    let text = fs::read(file).map(Zeroizing::new).map_err(|error| error.to_string())?;
    let password = config.private_key_passphrase.as_ref().map(Secret::reveal);
    SigningKey::from_pem(&text, password, config.algorithm).map_err(|error| match error {
        MaterialError::PasswordNeeded => {
            "the private key is encrypted; set sasl.oauthbearer.assertion.private.key.passphrase"
                .into()
        }
        error => error.to_string(),
    })
}

/// Returns header and payload.
fn parts(config: &AssertionConfig, now_ms: i64) -> Result<(Object, Object), String> {
    let (mut header, mut payload) = (Object::new(), Object::new());
    let claims = [("aud", &config.audience), ("iss", &config.issuer), ("sub", &config.subject)];
    for (name, value) in claims {
        payload.extend(value.as_ref().map(|value| (name.to_owned(), value.trim().into())));
    }
    if let Some(file) = &config.template_file {
        let template =
            template(file).map_err(|reason| about(ASSERTION_TEMPLATE_FILE, file, &reason))?;
        header.extend(template.0);
        payload.extend(template.1);
    }
    header.insert("alg".into(), config.algorithm.name().into());
    header.insert("typ".into(), "JWT".into());
    let now = now_ms / 1000;
    let seconds = |time: std::time::Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    payload.insert("iat".into(), now.into());
    payload.insert("exp".into(), now.saturating_add(seconds(config.lifetime)).into());
    payload.insert("nbf".into(), now.saturating_sub(seconds(config.backdated)).into());
    if config.include_jti {
        let id = Builder::from_random_bytes(secret_bytes()).into_uuid();
        payload.insert("jti".into(), id.to_string().into());
    }
    Ok((header, payload))
}

/// Reads the objects `header` and `payload`, each of which may be absent.
fn template(file: &Path) -> Result<(Object, Object), String> {
    let text = read_text(file)?;
    // The parser's error message would quote the text.
    let mut template: Object = serde_json::from_str(text.reveal())
        .map_err(|error| format!("line {}: not a JSON object", error.line()))?;
    let mut part = |name: &str| match template.remove(name) {
        None => Ok(Object::new()),
        Some(Value::Object(part)) => Ok(part),
        Some(_) => Err(format!("'{name}' is not a JSON object")),
    };
    Ok((part("header")?, part("payload")?))
}

fn encoded(part: &Object) -> String {
    URL_SAFE_NO_PAD.encode(json!(part).to_string())
}
