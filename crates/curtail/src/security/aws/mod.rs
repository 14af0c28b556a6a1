//! Amazon MSK: the mechanism AWS_MSK_IAM, and tokens of OAUTHBEARER, both from credentials of AWS (decision 0129).
//!
//! The credentials belong to the client's login, which renews them before they expire. The message of a connection is
//! signed for its broker when it authenticates.

mod calendar;
mod credentials;
mod profile;
mod sigv4;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use curtail_net::Env;
use curtail_proto::sasl::Credentials;
use serde_json::json;

use self::{credentials::Finder, profile::Profiles, sigv4::Scope};
use super::{
    Cache,
    http::{self, Limits},
    oidc::{Login, Renewed, Trouble, User},
};
use crate::{
    Error,
    config::{AwsLogin, AwsSource, CommonConfig, Role},
    conn::{authentication_error, problem_error},
    error::{ConnectionProblem, one_line},
    security::{AwsCredentials, AwsCredentialsSource},
};

/// Expiry of credentials without one.
const ALWAYS: i64 = i64::MAX;
/// Validity of a signed message in seconds, as in aws-msk-iam-auth.
const VALIDITY: u32 = 900;
const SERVICE: &str = "kafka-cluster";
const ACTION: &str = "kafka-cluster:Connect";
const USER_AGENT: &str = concat!("curtail/", env!("CARGO_PKG_VERSION"));

/// Credentials and their expiry, in milliseconds since the epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Found {
    credentials: AwsCredentials,
    expires_ms: i64,
}

type Lookup = dyn Fn(&str) -> Option<String> + Send + Sync;

/// The environment's variables. Empty ones count as unset.
#[derive(Clone)]
struct Variables(Arc<Lookup>);

impl Variables {
    fn real() -> Self {
        Self(Arc::new(|name| std::env::var(name).ok()))
    }

    #[cfg(test)]
    fn of<const N: usize>(variables: [(&str, &str); N]) -> Self {
        let variables: std::collections::BTreeMap<String, String> =
            variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        Self(Arc::new(move |name| variables.get(name).cloned()))
    }

    fn get(&self, name: &str) -> Option<String> {
        (self.0)(name).filter(|value| !value.is_empty())
    }

    fn region(&self) -> Option<String> {
        self.get("AWS_REGION").or_else(|| self.get("AWS_DEFAULT_REGION"))
    }
}

/// A connection's source of credentials.
pub(crate) struct Aws {
    login: AwsLogin,
    variables: Variables,
    env: Env,
    source: Source,
}

enum Source {
    Callback(AwsCredentialsSource),
    Login(User<AwsCredentials>),
}

/// The login shared by all connections of clients with one configuration.
pub(super) struct Kept {
    key: (Option<String>, Option<Role>),
    login: Arc<Login<AwsCredentials>>,
}

impl fmt::Debug for Aws {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Aws")
    }
}

impl Aws {
    /// Returns the source of a client, after its credentials were found.
    pub(super) async fn prepare(
        cache: &Cache,
        env: &Env,
        common: &CommonConfig,
        login: AwsLogin,
    ) -> Result<Self, Trouble> {
        Self::with(cache, env, common, login, Variables::real()).await
    }

    async fn with(
        cache: &Cache,
        env: &Env,
        common: &CommonConfig,
        login: AwsLogin,
        variables: Variables,
    ) -> Result<Self, Trouble> {
        let source = match &login.source {
            AwsSource::Callback(source) => Source::Callback(source.clone()),
            AwsSource::Found { profile, role } => {
                let key = (profile.clone(), role.clone());
                let user = user(cache, env, common, &login, key, &variables);
                user.value().await?;
                Source::Login(user)
            }
        };
        Ok(Self { login, variables, env: env.clone(), source })
    }

    /// Whether the message is a token of OAUTHBEARER.
    pub(super) fn is_bearer(&self) -> bool {
        self.login.is_bearer
    }

    /// Signs the message for a broker at `peer`. Waits only for the application's callback.
    pub(super) async fn credentials(&self, peer: &Arc<str>) -> Result<Credentials, Error> {
        let credentials = match &self.source {
            Source::Callback(source) => source.fetch().await.map_err(|reason| {
                let reason = format!("no AWS credentials: {}", one_line(&reason));
                problem_error(peer, ConnectionProblem::NoToken, reason)
            })?,
            Source::Login(user) => user.current().map_err(|trouble| trouble.error(peer))?,
        };
        let host = peer.rsplit_once(':').map_or(&**peer, |(host, _)| host);
        let region =
            self.region(host).await.map_err(|reason| authentication_error(peer, reason))?;
        let now_ms = self.env.wall.now_ms();
        Ok(match self.login.is_bearer {
            true => Credentials::OAuthBearer {
                token: token(&credentials, &region, now_ms).into(),
                extensions: Vec::new(),
            },
            false => Credentials::AwsMskIam {
                message: message(&credentials, host, &region, now_ms).into(),
            },
        })
    }

    /// Region of the cluster.
    async fn region(&self, host: &str) -> Result<String, String> {
        let known = self.login.region.clone().or_else(|| region_of_host(host));
        if let Some(region) = known.or_else(|| self.variables.region()) {
            return Ok(region);
        }
        let variables = self.variables.clone();
        let profile = self.login.profile.clone().or_else(|| variables.get("AWS_PROFILE"));
        let read = http::blocking(move || {
            let profiles = Profiles::read(&variables)?;
            Ok(profiles.region(profile.as_deref().unwrap_or("default")))
        });
        read.await.ok().flatten().ok_or_else(|| {
            format!("the name '{}' has no region of AWS; set AWS_REGION", one_line(host))
        })
    }
}

fn user(
    cache: &Cache,
    env: &Env,
    common: &CommonConfig,
    login: &AwsLogin,
    key: (Option<String>, Option<Role>),
    variables: &Variables,
) -> User<AwsCredentials> {
    let mut kept = cache.aws.lock();
    if let Some(kept) = kept.as_ref().filter(|kept| kept.key == key) {
        return User::of(&kept.login);
    }
    let limits = Limits::of(common, &login.settings);
    let ((profile, role), variables, asking) = (key.clone(), variables.clone(), env.clone());
    let ask = Box::new(move || {
        let (env, variables) = (asking.clone(), variables.clone());
        let (profile, role) = (profile.clone(), role.clone());
        let asked: curtail_net::BoxFuture<'static, _> = Box::pin(async move {
            let finder = Finder { env: &env, variables: &variables, limits };
            let found = finder
                .find(profile.as_deref(), role.as_ref())
                .await
                .map_err(|trouble| trouble.map(|reason| format!("no AWS credentials: {reason}")))?;
            if found.expires_ms <= env.wall.now_ms() {
                let reason = "the AWS credentials have expired; check the clocks";
                return Err(Trouble::Unreachable(reason.into()));
            }
            let Found { credentials, expires_ms } = found;
            Ok(Renewed { value: credentials, issued_ms: None, expires_ms })
        });
        asked
    });
    // An attempt makes several requests.
    let limit = limits.connect.saturating_add(limits.read).saturating_mul(3);
    let new = Arc::new(Login::new(ask, limit, login.settings.clone(), "AWS credentials", env));
    let user = User::of(&new);
    *kept = Some(Kept { key, login: new });
    user
}

/// The presigned request that AWS_MSK_IAM consists of.
fn presigned(
    credentials: &AwsCredentials,
    host: &str,
    region: &str,
    now_ms: i64,
) -> sigv4::Request<'static> {
    let request = sigv4::Request {
        method: "GET",
        path: "/",
        query: vec![("Action", ACTION.to_owned())],
        headers: vec![("host", host.to_owned())],
        body: b"",
    };
    request.presign(Scope { region, service: SERVICE, now_ms }, credentials, VALIDITY)
}

/// The message of AWS_MSK_IAM: the fields of the request, in JSON.
fn message(credentials: &AwsCredentials, host: &str, region: &str, now_ms: i64) -> String {
    let mut fields = json!({ "version": "2020_10_22", "host": host, "user-agent": USER_AGENT });
    for (name, value) in presigned(credentials, host, region, now_ms).query {
        fields[name.to_ascii_lowercase()] = value.into();
    }
    fields.to_string()
}

/// A token of OAUTHBEARER: the address of the request to the region's MSK.
fn token(credentials: &AwsCredentials, region: &str, now_ms: i64) -> String {
    let host = format!("kafka.{region}.amazonaws.com");
    let query = presigned(credentials, &host, region, now_ms).canonical_query();
    let agent = uri_encoded(USER_AGENT);
    URL_SAFE_NO_PAD.encode(format!("https://{host}/?{query}&User-Agent={agent}"))
}

/// Encodes all but the unreserved characters of RFC 3986.
fn uri_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(byte.into());
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// The last part of a host's name that is a region, such as `us-east-1`.
fn region_of_host(host: &str) -> Option<String> {
    host.rsplit('.').find(|label| is_region(label)).map(str::to_owned)
}

/// Whether a label is a region's name: letters, words of which the last is a direction, a digit (`us-gov-west-1`).
fn is_region(label: &str) -> bool {
    const DIRECTIONS: [&str; 9] = [
        "north",
        "northeast",
        "east",
        "southeast",
        "south",
        "southwest",
        "west",
        "northwest",
        "central",
    ];
    let parts: Vec<&str> = label.split('-').collect();
    let [country, .., direction, number] = parts.as_slice() else { return false };
    (2..=4).contains(&country.len())
        && country.bytes().all(|b| b.is_ascii_lowercase())
        && DIRECTIONS.contains(direction)
        && number.len() == 1
        && number.bytes().all(|b| b.is_ascii_digit())
}
