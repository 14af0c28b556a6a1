//! Tokens of SASL/OAUTHBEARER from a function of the program.
//!
//! The client asks for a token on a thread of the runtime. This one posts a request to a port: that of the client's event
//! loop for an asynchronous function, and that of threads for others. `curtail_kafka._tokens` calls the function, on a
//! separate thread if it is not asynchronous, and answers the request.
//!
//! # Invariants
//! - A client has one call of its function in progress, and all connections wait for it.
//! - A request that is dropped is answered. An exception, a closed event loop and the interpreter's exit drop it.

use std::{mem, sync::Arc, time::Duration};

use curtail::security::{OAuthBearerToken, TokenSource};
use parking_lot::Mutex;
use pyo3::{exceptions::PyValueError, intern, prelude::*, types::PyModule};
use tokio::{sync::watch, time::timeout};

use crate::{
    config::Settings,
    error,
    port::{Core, Home, NO_FUTURE, Port, Reply},
    runtime::Owned,
    sent::now,
};

const MODULE: &str = "curtail_kafka._tokens";

/// Part of `socket.connection.setup.timeout.ms` for a token. The login of a connection needs the rest, and its own error
/// would blame the broker.
const SHARE: f64 = 0.8;

/// A function of the program, from Python: its key in `curtail_kafka._tokens`, and whether an event loop calls it.
pub(crate) type Function = (u64, bool);

/// The tokens of one client.
pub(crate) struct Tokens {
    key: u64,
    has_loop: bool,
    /// The port that calls the function. For an event loop, `None` before the client's first call.
    core: Mutex<Option<Arc<Core>>>,
    /// Longest wait for a token.
    limit: Duration,
    /// Part of a token's lifetime after which it is replaced.
    renew_after: f64,
    state: watch::Sender<State>,
}

#[derive(Default)]
struct State {
    /// The last token with a known expiry.
    held: Option<Held>,
    is_asking: bool,
    /// Number of calls that have ended, and the outcome of the last one.
    ended: u64,
    last: Option<Result<OAuthBearerToken, Arc<str>>>,
}

struct Held {
    token: OAuthBearerToken,
    renew_ms: i64,
    expires_ms: i64,
}

impl State {
    /// The token, while it is not due for renewal.
    fn fresh(&self, now: i64) -> Option<OAuthBearerToken> {
        self.held.as_ref().filter(|held| now < held.renew_ms).map(|held| held.token.clone())
    }

    /// The token, until it expires.
    fn valid(&self, now: i64) -> Option<OAuthBearerToken> {
        self.held.as_ref().filter(|held| now < held.expires_ms).map(|held| held.token.clone())
    }
}

impl Tokens {
    pub(crate) fn new(
        py: Python<'_>,
        function: Function,
        config: &impl Settings,
    ) -> PyResult<Self> {
        let (key, has_loop) = function;
        let core = match has_loop {
            true => None,
            false => Some(Port::current(py, Home::Threads)?.get().core(py)?.clone()),
        };
        Ok(Self {
            key,
            has_loop,
            core: Mutex::new(core),
            limit: config.connection_setup_timeout().mul_f64(SHARE),
            renew_after: config.get_security().sasl.oidc.refresh_window_factor,
            state: watch::Sender::default(),
        })
    }

    pub(crate) fn source(self: &Arc<Self>) -> TokenSource {
        let tokens = self.clone();
        TokenSource::new(move || {
            let tokens = tokens.clone();
            async move { tokens.fetch().await }
        })
    }

    /// Records the event loop of the client's first call; after its end, that of the next one.
    pub(crate) fn enter(&self, py: Python<'_>, home: Home) -> PyResult<()> {
        if !self.has_loop {
            return Ok(());
        }
        let port = Port::current(py, home)?;
        let mut core = self.core.lock();
        if core.as_ref().is_none_or(|core| core.is_closed()) {
            *core = Some(port.get().core(py)?.clone());
        }
        Ok(())
    }

    /// Returns the token, and asks for another one if it is due for renewal. Without a new one, the token remains in use
    /// until it expires.
    async fn fetch(self: Arc<Self>) -> Result<OAuthBearerToken, String> {
        let mut states = self.state.subscribe();
        let (mut fresh, mut ended, mut must_ask) = (None, 0, false);
        self.state.send_if_modified(|state| {
            fresh = state.fresh(now());
            ended = state.ended;
            must_ask = fresh.is_none() && !state.is_asking;
            state.is_asking |= must_ask;
            false
        });
        if let Some(token) = fresh {
            return Ok(token);
        }
        if must_ask {
            self.ask();
        }
        let answered = timeout(self.limit, states.wait_for(|state| state.ended > ended)).await;
        let last = match answered {
            Ok(Ok(state)) => state.last.clone(),
            _ => None,
        };
        match last {
            Some(Ok(token)) => Ok(token),
            other => self.state.borrow().valid(now()).ok_or_else(|| match other {
                Some(Err(reason)) => reason.to_string(),
                _ => format!(
                    "oauth_token has not returned within {:?}: it, or its event loop, is blocked",
                    self.limit
                ),
            }),
        }
    }

    /// Posts a request.
    fn ask(self: &Arc<Self>) {
        let request = Obligation(Some(self.clone()));
        let core = self.core.lock().clone();
        let Some(core) = core else {
            return request.end(Err("no event loop has used the client yet".into()));
        };
        let (key, limit) = (self.key, self.limit.as_secs_f64());
        let begin = move |py: Python<'_>| {
            let request = TokenRequest(Owned::new(Mutex::new(Some(request))));
            let module = PyModule::import(py, MODULE)?;
            module.call_method1(intern!(py, "begin"), (key, request, limit)).map(Bound::unbind)
        };
        core.reply(NO_FUTURE, Reply::Short(Box::new(begin)));
    }

    fn end(&self, answer: Result<(OAuthBearerToken, Option<i64>), Arc<str>>) {
        self.state.send_modify(|state| {
            state.is_asking = false;
            state.ended += 1;
            state.last = Some(answer.map(|(token, expires_ms)| {
                state.held = expires_ms.map(|expires_ms| {
                    let now = now();
                    let lifetime = expires_ms.saturating_sub(now) as f64;
                    let renew_ms = now.saturating_add((lifetime * self.renew_after) as i64);
                    Held { token: token.clone(), renew_ms, expires_ms }
                });
                token
            }));
        });
    }
}

/// A request that must be answered. Its drop is an answer too.
struct Obligation(Option<Arc<Tokens>>);

impl Obligation {
    fn end(mut self, answer: Result<(OAuthBearerToken, Option<i64>), Arc<str>>) {
        if let Some(tokens) = self.0.take() {
            tokens.end(answer);
        }
    }
}

impl Drop for Obligation {
    fn drop(&mut self) {
        if let Some(tokens) = self.0.take() {
            tokens.end(Err("oauth_token was not called: its event loop has ended".into()));
        }
    }
}

/// A call of the program's function.
#[pyclass(frozen, module = "curtail_kafka._native")]
pub(crate) struct TokenRequest(Owned<Mutex<Option<Obligation>>>);

impl TokenRequest {
    /// `None` in a forked child, and after an answer.
    fn take(&self) -> Option<Obligation> {
        self.0.local().and_then(|request| mem::take(&mut *request.lock()))
    }
}

#[pymethods]
impl TokenRequest {
    /// Answers with a token. `expires_at` is in seconds since the epoch.
    fn answer(
        &self,
        value: String,
        expires_at: Option<f64>,
        extensions: Vec<(String, String)>,
    ) -> PyResult<()> {
        let expires_ms = expires_at.map(|seconds| (seconds * 1000.0) as i64);
        if let (Some(seconds), Some(_)) = (expires_at, expires_ms.filter(|ms| *ms <= now())) {
            let text = format!(
                "the token has expired: expires_at={seconds}, which is in seconds since the epoch"
            );
            return Err(PyValueError::new_err(text));
        }
        let token = OAuthBearerToken::new(value);
        let token =
            extensions.into_iter().fold(token, |token, (name, value)| token.extension(name, value));
        if let Some(request) = self.take() {
            request.end(Ok((token, expires_ms)));
        }
        Ok(())
    }

    /// Answers that there is no token.
    fn fail(&self, reason: String) {
        if let Some(request) = self.take() {
            request.end(Err(reason.into()));
        }
    }
}

/// Keeps a function although the program may have dropped its client.
pub(crate) struct Kept {
    key: u64,
    core: Arc<Core>,
}

impl Kept {
    pub(crate) fn new(py: Python<'_>, (key, _): Function) -> PyResult<Self> {
        let core = Port::current(py, Home::Threads)?.get().core(py)?.clone();
        PyModule::import(py, MODULE)?.call_method1(intern!(py, "keep"), (key,))?;
        Ok(Self { key, core })
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let key = self.key;
        let release = move |py: Python<'_>| {
            PyModule::import(py, MODULE)?
                .call_method1(intern!(py, "release"), (key,))
                .map(Bound::unbind)
        };
        self.core.reply(NO_FUTURE, Reply::Short(Box::new(release)));
    }
}

/// Returns the exception of a function that had no token, by the reason that it gave.
pub(crate) fn cause<'py>(py: Python<'py>, reason: &str) -> PyResult<Bound<'py, PyAny>> {
    PyModule::import(py, MODULE)?.call_method1(intern!(py, "cause_of"), (reason,))
}

/// Makes a client with these settings use the function, and checks those that contradict it.
pub(crate) fn configure<C: Settings>(
    py: Python<'_>,
    config: C,
    tokens: &Arc<Tokens>,
) -> PyResult<C> {
    use curtail::security::{Mechanism, SecurityProtocol};

    let refused = |text: &str| Err(error::config(py, text));
    let mut security = config.get_security().clone();
    if !config.is_given("security.protocol") {
        security.protocol = SecurityProtocol::SaslSsl;
    }
    if matches!(security.protocol, SecurityProtocol::Plaintext | SecurityProtocol::Ssl) {
        return refused("oauth_token needs security.protocol=SASL_SSL or SASL_PLAINTEXT");
    }
    if security.sasl.mechanism.is_some_and(|mechanism| mechanism != Mechanism::OAuthBearer) {
        return refused("oauth_token needs sasl.mechanism=OAUTHBEARER");
    }
    if security.sasl.oidc.token_endpoint_url.is_some() {
        return refused(
            "oauth_token and sasl.oauthbearer.token.endpoint.url cannot be set together",
        );
    }
    security.sasl.mechanism = Some(Mechanism::OAuthBearer);
    security.sasl.token = Some(tokens.source());
    Ok(config.security(security))
}
