//! One request to a token endpoint.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use curtail_net::Env;
use hyper::{
    Request,
    header::{self, HeaderValue},
};
use zeroize::Zeroizing;

use super::{
    Trouble,
    answer::{self, Granted, Proof},
    assertion,
};
use crate::{
    config::{Grant, Origin, ProviderLogin, TokenEndpoint},
    security::{
        Secret,
        http::{self, Limits, Target},
        tls::Peer,
    },
};

/// `client_assertion_type` of RFC 7523, 2.2.
const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
/// `grant_type` of RFC 7523, 2.1.
const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
/// Reads or requests a token.
pub(super) async fn ask(
    env: &Env,
    login: &Arc<ProviderLogin>,
    limits: Limits,
) -> Result<Granted, Trouble> {
    match &login.origin {
        Origin::File(file) => {
            let file = file.clone();
            let text = http::blocking(move || assertion::read_text(&file)).await?;
            answer::read_file(&text, env.wall.now_ms())
        }
        Origin::Endpoint(endpoint, grant) => {
            let now_ms = env.wall.now_ms();
            let (request, proof) = request(login, endpoint, grant, now_ms).await?;
            let target = Target {
                host: &endpoint.host,
                port: endpoint.port,
                tls: Some((&login.ssl, Peer::TokenEndpoint)),
            };
            let (status, body) = http::exchange(env, &target, request, limits).await?;
            answer::read(status, &body, &proof, env.wall.now_ms())
        }
    }
}

/// Makes the request, with an assertion of this time if the grant has one.
async fn request(
    login: &Arc<ProviderLogin>,
    endpoint: &TokenEndpoint,
    grant: &Grant,
    now_ms: i64,
) -> Result<(Request<String>, Proof), Trouble> {
    let mut authorization = None;
    let (form, secret, check) = match grant {
        Grant::ClientSecret { id, secret } => {
            authorization = Some(basic(id, secret, login.settings.header_urlencode)?);
            let form = "grant_type=client_credentials".to_owned();
            (form, secret.clone(), "the client id, the client secret and the scope")
        }
        Grant::ClientAssertion { id } => {
            let assertion = assertion_of(login, now_ms).await?;
            let mut form = format!(
                "client_assertion_type={}&client_assertion={}&grant_type=client_credentials",
                form_encoded(ASSERTION_TYPE),
                form_encoded(assertion.reveal()),
            );
            if let Some(id) = id {
                form.push_str("&client_id=");
                form.push_str(&form_encoded(id));
            }
            (form, assertion, "sasl.oauthbearer.assertion.*, the client id and the scope")
        }
        Grant::JwtBearer => {
            let assertion = assertion_of(login, now_ms).await?;
            let grant = form_encoded(JWT_BEARER);
            let form = format!("grant_type={grant}&assertion={}", form_encoded(assertion.reveal()));
            (form, assertion, "sasl.oauthbearer.assertion.* and the scope")
        }
    };
    let form = match login.scope.as_deref().map(str::trim).filter(|scope| !scope.is_empty()) {
        Some(scope) => format!("{form}&scope={}", form_encoded(scope)),
        None => form,
    };
    let mut request = Request::post(&endpoint.path_and_query)
        .header(header::HOST, &endpoint.authority)
        .header(header::ACCEPT, "application/json")
        .header(header::CACHE_CONTROL, "no-cache")
        .header(header::CONNECTION, "close")
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
    if let Some(authorization) = authorization {
        request = request.header(header::AUTHORIZATION, authorization);
    }
    let request = request.body(form).map_err(|error| unusable(&error))?;
    Ok((request, Proof { secret, check }))
}

async fn assertion_of(login: &Arc<ProviderLogin>, now_ms: i64) -> Result<Secret, Trouble> {
    let login = login.clone();
    http::blocking(move || assertion::create(&login.settings.assertion, now_ms)).await
}

/// The Authorization header of a client id and a secret (RFC 6749, 2.3.1).
fn basic(id: &str, secret: &Secret, urlencode: bool) -> Result<HeaderValue, Trouble> {
    let encode = |text: &str| match urlencode {
        true => Zeroizing::new(form_encoded(text)),
        false => Zeroizing::new(text.to_owned()),
    };
    let (id, secret) = (encode(id), encode(secret.reveal()));
    let pair = Zeroizing::new(format!("{}:{}", *id, *secret));
    let basic = Zeroizing::new(format!("Basic {}", STANDARD.encode(pair.as_bytes())));
    let mut authorization = HeaderValue::from_str(&basic).map_err(|error| unusable(&error))?;
    authorization.set_sensitive(true);
    Ok(authorization)
}

fn unusable(error: &impl std::fmt::Display) -> Trouble {
    Trouble::Refused(format!("the settings make no valid request: {error}").into())
}

/// `application/x-www-form-urlencoded`, as Java's `URLEncoder` writes it.
pub(super) fn form_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'*' | b'_' => {
                encoded.push(byte.into());
            }
            b' ' => encoded.push('+'),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}
