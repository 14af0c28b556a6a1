//! Tokens for OAUTHBEARER from an OAuth 2.0 or OpenID Connect provider: one login for all connections of a client, renewed
//! ahead of its end (KIP-768, decision 0027).
//!
//! A task of its own asks the token endpoint. Connections take what is there: one that is open never waits for a token, one
//! that is being opened waits for the attempt under way, before it is dialled.

mod answer;
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

pub(crate) use self::answer::check_response;
use self::{answer::Granted, exchange::Limits};
use super::Cache;
use crate::{
    CommonConfig, Error, OAuthBearerToken, OidcConfig,
    config::ClientCredentials,
    conn::{authentication_error, connection_error},
};

/// The wall clock is looked at again after this much: it may have been set, or the machine have slept.
const GLANCE: Duration = Duration::from_secs(60);

/// No pause between attempts is shorter, whatever the settings.
const LEAST_PAUSE: Duration = Duration::from_millis(10);

/// What whoever waits for an attempt grants it beyond its own limits.
const GRACE: Duration = Duration::from_secs(1);

/// Why there is no token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The settings do not fit the endpoint: another attempt with the same ones fails as well.
    Refused(Arc<str>),
    /// It may pass.
    Unreachable(Arc<str>),
}

impl Trouble {
    fn map(self, change: impl FnOnce(&str) -> String) -> Self {
        match self {
            Self::Refused(reason) => Self::Refused(change(&reason).into()),
            Self::Unreachable(reason) => Self::Unreachable(change(&reason).into()),
        }
    }

    /// The error of a connection to `peer` that it stands in the way of.
    pub(crate) fn error(&self, peer: &Arc<str>) -> Error {
        match self {
            Self::Refused(reason) => authentication_error(peer, reason),
            Self::Unreachable(reason) => connection_error(peer, reason),
        }
    }
}

type Ask = Box<dyn Fn() -> BoxFuture<'static, Result<Granted, Trouble>> + Send + Sync>;

/// A connection's part in the login of its client. While there is one, the token is renewed.
pub(crate) struct User {
    login: Arc<Login>,
    state: watch::Receiver<State>,
}

/// One login, and the task that keeps it.
struct Login {
    ask: Ask,
    /// As long as one attempt may take.
    limit: Duration,
    settings: OidcConfig,
    extensions: Vec<(String, String)>,
    wall: Arc<dyn WallClock>,
    entropy: Entropy,
    state: watch::Sender<State>,
    /// There is one while somebody uses the login.
    keeper: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct State {
    /// The last one that came.
    token: Option<Held>,
    /// Of attempts since then.
    failure: Option<Failure>,
}

struct Held {
    token: OAuthBearerToken,
    expires_ms: i64,
    renew_ms: i64,
}

struct Failure {
    trouble: Trouble,
    /// In a row.
    count: u32,
    retry_at: Instant,
}

/// What is kept for all connections of the clients made with one configuration.
pub(super) struct Kept {
    credentials: ClientCredentials,
    login: Arc<Login>,
}

/// The login of a client. The first one to ask sets what network and clock it goes by.
pub(super) fn user(
    cache: &Cache,
    env: &Env,
    common: &CommonConfig,
    credentials: ClientCredentials,
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

impl User {
    fn of(login: &Arc<Login>) -> Self {
        Self { login: login.clone(), state: login.state.subscribe() }
    }

    /// A token that has not ended; waits for the attempt under way if there is none.
    ///
    /// # Cancel safety
    /// Cancel safe: the attempt goes on.
    pub(crate) async fn token(&self) -> Result<OAuthBearerToken, Trouble> {
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
            let reason = format!("no OAUTHBEARER token within {} ms", limit.as_millis());
            Err(Trouble::Unreachable(reason.into()))
        })
    }

    /// The token that is there. Never waits.
    pub(crate) fn current(&self) -> Result<OAuthBearerToken, Trouble> {
        self.login.keep();
        self.login.settled(&self.state.borrow()).unwrap_or_else(|| {
            let reason = "the OAUTHBEARER token has ended, and a new one has not come yet";
            Err(Trouble::Unreachable(reason.into()))
        })
    }
}

impl std::fmt::Debug for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("User")
    }
}

impl Login {
    fn at_endpoint(env: &Env, common: &CommonConfig, credentials: ClientCredentials) -> Self {
        let limits = Limits::of(common, &credentials);
        let (settings, extensions) = (credentials.settings.clone(), credentials.extensions.clone());
        let (credentials, asking) = (Arc::new(credentials), env.clone());
        let ask: Ask = Box::new(move || {
            let (env, credentials) = (asking.clone(), credentials.clone());
            Box::pin(async move {
                let asked = exchange::ask(&env, &credentials, limits).await;
                let endpoint = &credentials.endpoint;
                asked.map_err(|trouble| {
                    trouble.map(|reason| format!("no token from {endpoint}: {reason}"))
                })
            })
        });
        Self::new(ask, limits.connect.saturating_add(limits.read), settings, extensions, env)
    }

    fn new(
        ask: Ask,
        limit: Duration,
        settings: OidcConfig,
        extensions: Vec<(String, String)>,
        env: &Env,
    ) -> Self {
        let (wall, entropy) = (env.wall.clone(), env.entropy.clone());
        let (state, keeper) = (watch::Sender::default(), Mutex::default());
        Self { ask, limit, settings, extensions, wall, entropy, state, keeper }
    }

    /// Starts the task unless it runs. It ends when the last user goes, or with its runtime.
    fn keep(self: &Arc<Self>) {
        let mut keeper = self.keeper.lock();
        if keeper.as_ref().is_none_or(JoinHandle::is_finished) {
            *keeper = Some(tokio::spawn(keep(self.clone())));
        }
    }

    /// What users are told; `None` while an attempt is under way or due.
    fn settled(&self, state: &State) -> Option<Result<OAuthBearerToken, Trouble>> {
        let now = self.wall.now_ms();
        if let Some(held) = state.token.as_ref().filter(|held| now < held.expires_ms) {
            return Some(Ok(held.token.clone()));
        }
        let failure = state.failure.as_ref().filter(|failure| Instant::now() < failure.retry_at);
        failure.map(|failure| Err(failure.trouble.clone()))
    }

    /// How long until the next attempt, as far as can be foreseen.
    fn pause(&self) -> Duration {
        let state = self.state.borrow();
        let pause = match (&state.failure, &state.token) {
            (Some(failure), _) => failure.retry_at.saturating_duration_since(Instant::now()),
            (None, Some(held)) => {
                let left = held.renew_ms.saturating_sub(self.wall.now_ms());
                Duration::from_millis(u64::try_from(left).unwrap_or(0))
            }
            (None, None) => Duration::ZERO,
        };
        pause.min(GLANCE)
    }

    fn note(&self, asked: Result<Granted, Trouble>) {
        match asked {
            Ok(granted) => {
                let token = Some(self.held(granted));
                self.state.send_replace(State { token, failure: None });
            }
            Err(trouble) => {
                let (Trouble::Refused(reason) | Trouble::Unreachable(reason)) = &trouble;
                tracing::warn!(%reason, "cannot log in");
                self.state.send_modify(|state| {
                    let count = state.failure.as_ref().map_or(0, |failure| failure.count) + 1;
                    let retry_at = Instant::now().later(self.back_off(&trouble, count));
                    state.failure = Some(Failure { trouble, count, retry_at });
                });
            }
        }
    }

    fn held(&self, granted: Granted) -> Held {
        let Granted { token, issued_ms, expires_ms } = granted;
        let (now, random) = (self.wall.now_ms(), self.entropy.unit());
        let renew_ms = schedule::renew_at(&self.settings, now, issued_ms, expires_ms, random);
        let with = |token: OAuthBearerToken, (name, value): &(String, String)| {
            token.extension(name, value)
        };
        let token = self.extensions.iter().fold(OAuthBearerToken::new(token), with);
        Held { token, expires_ms, renew_ms }
    }

    fn back_off(&self, trouble: &Trouble, failures: u32) -> Duration {
        let (initial, max) = (self.settings.retry_backoff, self.settings.retry_backoff_max);
        let pause = match trouble {
            Trouble::Refused(_) => max,
            Trouble::Unreachable(_) => {
                Backoff { initial, max }.after(failures, self.entropy.unit())
            }
        };
        pause.max(LEAST_PAUSE)
    }
}

/// Logs in when it is time, as long as somebody uses the login.
async fn keep(login: Arc<Login>) {
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
                // Who has come meanwhile has found a task that runs.
                if login.state.receiver_count() == 0 {
                    *keeper = None;
                    return;
                }
            }
            () = sleep(pause) => {}
        }
    }
}
