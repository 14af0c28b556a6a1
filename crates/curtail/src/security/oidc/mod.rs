//! OAUTHBEARER tokens from an OAuth 2.0 or OpenID Connect provider, or from a file: one login for all connections of a
//! client, renewed before it expires (KIP-768, decision 0027).
//!
//! A separate task requests tokens from the endpoint. Connections use the current token. An open connection never
//! waits for a token. A new connection waits for the attempt in progress before it connects.

mod answer;
mod assertion;
mod exchange;
mod schedule;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use curtail_net::{BoxFuture, Entropy, Env, WallClock};
use curtail_proto::{backoff::Backoff, later::Later};
use parking_lot::Mutex;
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use self::answer::Granted;
pub(crate) use self::answer::check_response;
use super::{Cache, http::Limits, tls::unusable};
use crate::{
    Error,
    config::{CommonConfig, ProviderLogin},
    conn::{authentication_error, problem_error},
    error::ConnectionProblem,
    security::{OAuthBearerToken, OidcConfig},
};

/// Interval of looks at the wall clock, which may have been set, or the machine may have slept.
const GLANCE: Duration = Duration::from_secs(60);

/// Shortest backoff between attempts, whatever the settings.
const LEAST_PAUSE: Duration = Duration::from_millis(10);

/// Extra time for an attempt beyond its own limits, for its waiters.
const GRACE: Duration = Duration::from_secs(1);

/// The reason for a missing token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The settings do not fit the endpoint: a retry with the same settings fails as well.
    Refused(Arc<str>),
    /// The certificates for the endpoint cannot be used.
    Unusable(Arc<str>),
    /// A retry may succeed.
    Unreachable(Arc<str>),
}

impl Trouble {
    pub(super) fn map(self, change: impl FnOnce(&str) -> String) -> Self {
        match self {
            Self::Refused(reason) => Self::Refused(change(&reason).into()),
            Self::Unusable(reason) => Self::Unusable(change(&reason).into()),
            Self::Unreachable(reason) => Self::Unreachable(change(&reason).into()),
        }
    }

    pub(super) fn reason(&self) -> &Arc<str> {
        match self {
            Self::Refused(reason) | Self::Unusable(reason) | Self::Unreachable(reason) => reason,
        }
    }

    /// The error of a connection to `peer` without a token.
    pub(crate) fn error(&self, peer: &Arc<str>) -> Error {
        match self {
            Self::Refused(reason) => authentication_error(peer, reason),
            Self::Unusable(reason) => unusable(reason.clone()),
            Self::Unreachable(reason) => problem_error(peer, ConnectionProblem::NoToken, reason),
        }
    }
}

/// A value that must be renewed: a token, or credentials. Times are in milliseconds since the epoch.
pub(super) struct Renewed<T> {
    pub(super) value: T,
    pub(super) issued_ms: Option<i64>,
    pub(super) expires_ms: i64,
}

type Ask<T> = Box<dyn Fn() -> BoxFuture<'static, Result<Renewed<T>, Trouble>> + Send + Sync>;

/// A connection's reference to the login of its client. While one exists, the value is renewed.
pub(crate) struct User<T = OAuthBearerToken> {
    login: Arc<Login<T>>,
    state: watch::Receiver<State<T>>,
}

/// One login, and the task that renews it.
pub(super) struct Login<T = OAuthBearerToken> {
    ask: Ask<T>,
    /// Longest duration of one attempt.
    limit: Duration,
    settings: OidcConfig,
    /// The value's name in errors.
    name: &'static str,
    wall: Arc<dyn WallClock>,
    entropy: Entropy,
    state: watch::Sender<State<T>>,
    /// Exists while the login has users.
    keeper: Mutex<Option<JoinHandle<()>>>,
}

struct State<T> {
    /// Last value received.
    held: Option<Held<T>>,
    /// Failure of the attempts since then.
    failure: Option<Failure>,
}

impl<T> Default for State<T> {
    fn default() -> Self {
        Self { held: None, failure: None }
    }
}

struct Held<T> {
    value: T,
    expires_ms: i64,
    renew_ms: i64,
}

struct Failure {
    trouble: Trouble,
    /// Number of consecutive failures.
    count: u32,
    retry_at: Instant,
}

/// The login shared by all connections of clients with one configuration.
pub(super) struct Kept {
    credentials: ProviderLogin,
    login: Arc<Login>,
}

/// Returns the login of a client. The first caller's network and clock are used.
pub(super) fn user(
    cache: &Cache,
    env: &Env,
    common: &CommonConfig,
    credentials: ProviderLogin,
) -> User {
    let mut kept = cache.oidc.lock();
    if let Some(kept) = kept.as_ref().filter(|kept| kept.credentials == credentials) {
        return User::of(&kept.login);
    }
    let login = Arc::new(Login::at_endpoint(env, common, credentials.clone()));
    let user = User::of(&login);
    *kept = Some(Kept { credentials, login });
    user
}

impl<T: Clone + Send + Sync + 'static> User<T> {
    pub(super) fn of(login: &Arc<Login<T>>) -> Self {
        Self { login: login.clone(), state: login.state.subscribe() }
    }

    /// Returns an unexpired value. Without one, waits for the attempt in progress.
    ///
    /// # Cancel safety
    /// Cancel safe: the attempt continues.
    pub(crate) async fn value(&self) -> Result<T, Trouble> {
        let login = &self.login;
        login.keep();
        let mut state = self.state.clone();
        let settled = state.wait_for(|state| login.settled(state).is_some());
        let limit = login.limit.saturating_add(GRACE);
        let settled = match timeout(limit, settled).await {
            Ok(Ok(state)) => login.settled(&state),
            Ok(Err(_)) | Err(_) => None,
        };
        settled.unwrap_or_else(|| {
            let reason = format!("no {} within {} ms", login.name, limit.as_millis());
            Err(Trouble::Unreachable(reason.into()))
        })
    }

    /// Returns the current value. Never waits.
    pub(crate) fn current(&self) -> Result<T, Trouble> {
        self.login.keep();
        self.login.settled(&self.state.borrow()).unwrap_or_else(|| {
            let reason = format!(
                "no valid {}: the last has expired, and no new one has arrived yet",
                self.login.name
            );
            Err(Trouble::Unreachable(reason.into()))
        })
    }
}

impl<T> std::fmt::Debug for User<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("User")
    }
}

impl Login {
    fn at_endpoint(env: &Env, common: &CommonConfig, credentials: ProviderLogin) -> Self {
        let limits = Limits::of(common, &credentials.settings);
        let settings = credentials.settings.clone();
        let (credentials, asking) = (Arc::new(credentials), env.clone());
        let ask: Ask<OAuthBearerToken> = Box::new(move || {
            let (env, credentials) = (asking.clone(), credentials.clone());
            Box::pin(async move {
                let asked = exchange::ask(&env, &credentials, limits).await;
                let origin = &credentials.origin;
                asked
                    .map_err(|trouble| {
                        trouble.map(|reason| format!("no token from {origin}: {reason}"))
                    })
                    .map(|granted| granted.with(&credentials.extensions))
            })
        });
        let limit = limits.connect.saturating_add(limits.read);
        Self::new(ask, limit, settings, "OAUTHBEARER token", env)
    }
}

impl Granted {
    fn with(self, extensions: &[(String, String)]) -> Renewed<OAuthBearerToken> {
        let Self { token, issued_ms, expires_ms } = self;
        let add = |token: OAuthBearerToken, (name, value): &(String, String)| {
            token.extension(name, value)
        };
        let value = extensions.iter().fold(OAuthBearerToken::new(token), add);
        Renewed { value, issued_ms, expires_ms }
    }
}

impl<T: Clone + Send + Sync + 'static> Login<T> {
    pub(super) fn new(
        ask: Ask<T>,
        limit: Duration,
        settings: OidcConfig,
        name: &'static str,
        env: &Env,
    ) -> Self {
        let (wall, entropy) = (env.wall.clone(), env.entropy.clone());
        let (state, keeper) = (watch::Sender::default(), Mutex::default());
        Self { ask, limit, settings, name, wall, entropy, state, keeper }
    }

    /// Starts the task unless it runs. It ends when the last user is dropped, or with its runtime.
    fn keep(self: &Arc<Self>) {
        let mut keeper = self.keeper.lock();
        if keeper.as_ref().is_none_or(JoinHandle::is_finished) {
            *keeper = Some(tokio::spawn(keep(self.clone())));
        }
    }

    /// The result for users; `None` while an attempt is in progress or due.
    fn settled(&self, state: &State<T>) -> Option<Result<T, Trouble>> {
        let now = self.wall.now_ms();
        if let Some(held) = state.held.as_ref().filter(|held| now < held.expires_ms) {
            return Some(Ok(held.value.clone()));
        }
        let failure = state.failure.as_ref().filter(|failure| Instant::now() < failure.retry_at);
        failure.map(|failure| Err(failure.trouble.clone()))
    }

    /// Time until the next attempt, or until the next look at the clock.
    fn pause(&self) -> Duration {
        let state = self.state.borrow();
        let pause = match (&state.failure, &state.held) {
            (Some(failure), _) => failure.retry_at.saturating_duration_since(Instant::now()),
            (None, Some(held)) => {
                let left = held.renew_ms.saturating_sub(self.wall.now_ms());
                Duration::from_millis(u64::try_from(left).unwrap_or(0))
            }
            (None, None) => Duration::ZERO,
        };
        pause.min(GLANCE)
    }

    fn note(&self, asked: Result<Renewed<T>, Trouble>) {
        match asked {
            Ok(renewed) => {
                let held = Some(self.held(renewed));
                self.state.send_replace(State { held, failure: None });
            }
            Err(trouble) => {
                tracing::warn!(reason = %trouble.reason(), "cannot log in");
                self.state.send_modify(|state| {
                    let count = state.failure.as_ref().map_or(0, |failure| failure.count) + 1;
                    let retry_at = Instant::now().later(self.back_off(&trouble, count));
                    state.failure = Some(Failure { trouble, count, retry_at });
                });
            }
        }
    }

    fn held(&self, renewed: Renewed<T>) -> Held<T> {
        let Renewed { value, issued_ms, expires_ms } = renewed;
        let (now, random) = (self.wall.now_ms(), self.entropy.unit());
        let renew_ms = schedule::renew_at(&self.settings, now, issued_ms, expires_ms, random);
        Held { value, expires_ms, renew_ms }
    }

    fn back_off(&self, trouble: &Trouble, failures: u32) -> Duration {
        let (initial, max) = (self.settings.retry_backoff, self.settings.retry_backoff_max);
        let pause = match trouble {
            Trouble::Refused(_) | Trouble::Unusable(_) => max,
            Trouble::Unreachable(_) => {
                Backoff { initial, max }.after(failures, self.entropy.unit())
            }
        };
        pause.max(LEAST_PAUSE)
    }
}

/// Renews the value when due, while the login has users.
async fn keep<T: Clone + Send + Sync + 'static>(login: Arc<Login<T>>) {
    loop {
        let pause = login.pause();
        if pause.is_zero() {
            let asked = (login.ask)().await;
            login.note(asked);
            continue;
        }
        tokio::select! {
            biased;
            () = login.state.closed() => {
                let mut keeper = login.keeper.lock();
                // A user that came in between has found a running task, so the task must continue.
                if login.state.receiver_count() == 0 {
                    *keeper = None;
                    return;
                }
            }
            () = sleep(pause) => {}
        }
    }
}
