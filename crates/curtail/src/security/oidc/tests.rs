//! Times of token requests, on virtual time, and responses.

use std::{collections::VecDeque, future};

use curtail_net::RealNet;
use serde_json::json;

use super::*;
use crate::security::Secret;

const NOW: i64 = 1_700_000_000_000;
const HOUR: i64 = 3_600_000;

/// A wall clock that follows tokio's.
struct Wall(Instant);

impl WallClock for Wall {
    fn now_ms(&self) -> i64 {
        NOW + self.0.elapsed().as_millis() as i64
    }
}

fn env() -> Env {
    let wall = Arc::new(Wall(Instant::now()));
    Env { net: Arc::new(RealNet), wall, entropy: Entropy::from_seed(1) }
}

/// Outcome of one attempt.
type Outcome = Result<(&'static str, Duration), Trouble>;

/// An endpoint that takes a second for each response, and records the request times.
#[derive(Clone)]
struct Endpoint {
    answers: Arc<Mutex<VecDeque<Outcome>>>,
    asked: Arc<Mutex<Vec<Duration>>>,
    started: Instant,
}

const TAKES: Duration = Duration::from_secs(1);

impl Endpoint {
    fn new(answers: impl IntoIterator<Item = Outcome>) -> Self {
        let answers = Arc::new(Mutex::new(answers.into_iter().collect()));
        Self { answers, asked: Arc::default(), started: Instant::now() }
    }

    fn login(&self, env: &Env) -> Arc<Login> {
        let (endpoint, wall) = (self.clone(), env.wall.clone());
        let ask: Ask<OAuthBearerToken> = Box::new(move || {
            let (endpoint, wall) = (endpoint.clone(), wall.clone());
            Box::pin(async move {
                endpoint.asked.lock().push(endpoint.started.elapsed());
                let next = endpoint.answers.lock().pop_front();
                let Some(next) = next else { return future::pending().await };
                sleep(TAKES).await;
                let (token, lifetime) = next?;
                let expires_ms = wall.now_ms() + lifetime.as_millis() as i64;
                let value = OAuthBearerToken::new(token);
                Ok(Renewed { value, issued_ms: None, expires_ms })
            })
        });
        let limit = Duration::from_secs(20);
        Arc::new(Login::new(ask, limit, OidcConfig::default(), "OAUTHBEARER token", env))
    }

    fn asked(&self) -> Vec<f64> {
        self.asked.lock().iter().map(Duration::as_secs_f64).collect()
    }
}

fn good(token: &'static str, lifetime: i64) -> Outcome {
    Ok((token, Duration::from_millis(lifetime.unsigned_abs())))
}

fn unreachable() -> Outcome {
    Err(Trouble::Unreachable("away".into()))
}

fn text(token: Result<OAuthBearerToken, Trouble>) -> String {
    token.expect("a token").token.reveal().to_owned()
}

#[tokio::test(start_paused = true)]
async fn all_connections_share_one_attempt_and_one_token() {
    let endpoint = Endpoint::new([good("a", HOUR)]);
    let login = endpoint.login(&env());
    let users: Vec<_> = (0..20).map(|_| User::of(&login)).collect();
    let waiting: Vec<_> = users
        .into_iter()
        .map(|user| {
            tokio::spawn(async move {
                let token = user.value().await;
                (text(token), text(user.current()))
            })
        })
        .collect();
    for task in waiting {
        assert_eq!(task.await.unwrap(), ("a".into(), "a".into()));
    }
    assert_eq!(endpoint.asked(), [0.0]);
}

#[tokio::test(start_paused = true)]
async fn current_token_stays_in_use_until_its_renewal_succeeds() {
    let answers = [good("a", HOUR), unreachable(), good("b", HOUR)];
    let endpoint = Endpoint::new(answers);
    let user = User::of(&endpoint.login(&env()));
    assert_eq!(text(user.value().await), "a");
    let mut state = user.state.clone();
    state.mark_unchanged();
    // The failure, then the next token.
    state.changed().await.unwrap();
    assert_eq!(text(user.current()), "a", "it has not ended");
    state.changed().await.unwrap();
    assert_eq!(text(user.current()), "b");
    let asked = endpoint.asked();
    assert_eq!(asked.len(), 3);
    // 80 to 85 percent of an hour.
    assert!((2880.0..3065.0).contains(&asked[1]), "{asked:?}");
    assert!((1.0..1.2).contains(&(asked[2] - asked[1])), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn failed_login_is_reported_at_once_and_retried_with_growing_backoff() {
    let endpoint = Endpoint::new((0..40).map(|_| unreachable()));
    let user = User::of(&endpoint.login(&env()));
    let mut told = 0;
    while endpoint.started.elapsed() < Duration::from_secs(60) {
        assert_eq!(user.value().await.unwrap_err(), Trouble::Unreachable("away".into()));
        told += 1;
        sleep(Duration::from_millis(50)).await;
    }
    let asked = endpoint.asked();
    assert!(told > 200, "{told}");
    // Backoffs of 0.1, 0.2, ... 6.4 and then 10 seconds, each 20% more or less, plus a second per response.
    assert!((8..14).contains(&asked.len()), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn refused_login_backs_off_for_the_longest_time_at_once() {
    let refused = || Err(Trouble::Refused("no".into()));
    let endpoint = Endpoint::new([refused(), refused(), good("a", HOUR)]);
    let user = User::of(&endpoint.login(&env()));
    assert_eq!(user.value().await.unwrap_err(), Trouble::Refused("no".into()));
    let mut state = user.state.clone();
    state.wait_for(|state| state.held.is_some()).await.unwrap();
    let asked: Vec<f64> = endpoint.asked().iter().map(|at| at.round()).collect();
    assert_eq!(asked, [0.0, 11.0, 22.0]);
    assert_eq!(text(user.value().await), "a");
}

#[tokio::test(start_paused = true)]
async fn expired_token_is_never_returned() {
    let endpoint = Endpoint::new([good("a", 10_000)]);
    let user = User::of(&endpoint.login(&env()));
    assert_eq!(text(user.value().await), "a");
    // The attempt to renew it hangs.
    sleep(Duration::from_secs(10)).await;
    assert!(matches!(user.current(), Err(Trouble::Unreachable(_))));
    let waited = Instant::now();
    let late = user.value().await.unwrap_err();
    assert!(
        matches!(&late, Trouble::Unreachable(reason) if reason.contains("21000 ms")),
        "{late:?}"
    );
    assert_eq!(waited.elapsed().as_secs(), 21);
    assert_eq!(endpoint.asked().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn token_renewal_stops_with_the_last_user() {
    let endpoint = Endpoint::new([good("a", HOUR), good("b", HOUR)]);
    let login = endpoint.login(&env());
    let user = User::of(&login);
    assert_eq!(text(user.value().await), "a");
    drop(user);
    sleep(Duration::from_secs(2 * 3600)).await;
    assert!(login.keeper.lock().is_none());
    assert_eq!(endpoint.asked().len(), 1);
    // The next user logs in again.
    assert_eq!(text(User::of(&login).value().await), "b");
}

#[test]
fn token_renewal_times_match_java() {
    let settings = OidcConfig::default();
    let at = |lifetime: i64, issued: Option<i64>, random: f64| {
        schedule::renew_at(&settings, NOW, issued.map(|ago| NOW - ago), NOW + lifetime, random)
            - NOW
    };
    assert_eq!(at(HOUR, None, 0.0), 2_880_000);
    assert_eq!(at(HOUR, Some(0), 1.0), 3_060_000);
    assert_eq!(at(HOUR, Some(HOUR), 0.0), 2_160_000, "counted from when it was issued");
    assert_eq!(at(1_000_000, None, 0.0), 700_000, "the buffer before its end");
    assert_eq!(at(400_000, None, 1.0), 100_000, "the same, sooner");
    assert_eq!(at(HOUR, Some(100 * HOUR), 0.0), 60_000, "not too soon after the last");
    assert_eq!(at(359_000, None, 0.0), 287_200, "no room for both");
    assert_eq!(at(100, None, 0.0), 80);
    assert!(at(i64::MAX - NOW, Some(i64::MAX), 1.0) >= 60_000);
}

fn jwt(claims: &serde_json::Value) -> String {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
    format!("e30.{}.x", URL_SAFE_NO_PAD.encode(claims.to_string()))
}

fn read(status: u16, body: &str) -> Result<Granted, Trouble> {
    let proof = answer::Proof { secret: Secret::new("hush"), check: "the client secret" };
    answer::read(status, body.as_bytes(), &proof, NOW)
}

#[test]
fn token_and_expiry_are_read_from_a_response() {
    let seconds = NOW / 1000;
    let stated = jwt(&json!({ "exp": seconds + 60, "iat": seconds - 5 }));
    let fraction = jwt(&json!({ "exp": seconds as f64 + 0.5 }));
    for (body, token, issued_ms, expires_ms) in [
        (json!({ "access_token": stated }), &stated, Some(NOW - 5_000), NOW + 60_000),
        (json!({ "id_token": stated, "expires_in": 7 }), &stated, Some(NOW - 5_000), NOW + 60_000),
        (json!({ "access_token": fraction, "expires_in": "7" }), &fraction, None, NOW + 500),
        (
            json!({ "access_token": " opaque\n", "expires_in": 7 }),
            &"opaque".into(),
            None,
            NOW + 7_000,
        ),
    ] {
        let granted = read(200, &body.to_string()).unwrap();
        let expected = Granted { token: token.as_str().into(), issued_ms, expires_ms };
        assert_eq!(granted, expected, "{body}");
    }
}

#[test]
fn error_responses_are_reported_in_one_line_without_secrets() {
    let token = |claims| json!({ "access_token": jwt(&claims) }).to_string();
    let refusal = json!({ "error": "invalid_client", "error_description": "not\n\"hush\"" });
    let summary = json!({ "errorCode": "E1", "errorSummary": "later" });
    for (status, body, last, part) in [
        (200, "<html>hush</html>".to_owned(), true, "not a token in JSON"),
        (200, String::new(), true, "not a token in JSON"),
        (200, "{\"access_token\":5}".into(), true, "not a token in JSON"),
        (200, "[".repeat(100_000), true, "not a token in JSON"),
        (200, "{}".into(), true, "no access_token"),
        (200, "{\"access_token\":\" \"}".into(), true, "no access_token"),
        (200, token(json!({ "exp": NOW / 1000 - 1 })), true, "expired"),
        (200, token(json!({ "exp": -1e300 })), true, "expired"),
        (200, token(json!({})), true, "the token has no expiry"),
        (200, "{\"access_token\":\"a.b.c\"}".into(), true, "the token has no expiry"),
        (302, String::new(), true, "redirect"),
        (401, refusal.to_string(), true, "status 401: invalid_client, not \"[hidden]\""),
        (400, "hush".into(), true, "client secret"),
        (404, String::new(), true, "status 404"),
        (429, String::new(), false, "status 429"),
        (503, summary.to_string(), false, "status 503: E1, later"),
    ] {
        let trouble = read(status, &body).unwrap_err();
        let (reason, is_last) = match &trouble {
            Trouble::Refused(reason) => (reason, true),
            Trouble::Unreachable(reason) => (reason, false),
            Trouble::Unusable(_) => panic!("no certificates are read: {trouble:?}"),
        };
        assert!(reason.contains(part) && is_last == last, "{status}: {trouble:?}");
        assert!(!reason.contains(['\n', '\r']) && !reason.contains("hush"), "{reason}");
    }
}

#[test]
fn a_token_file_needs_a_token_that_has_not_expired() {
    let read = |text: &str| answer::read_file(&Secret::new(text), NOW);
    let seconds = NOW / 1000;
    let token = jwt(&json!({ "exp": seconds + 60, "iat": seconds }));
    let granted = read(&format!("{token}\n")).unwrap();
    assert_eq!((granted.token.reveal(), granted.expires_ms), (token.as_str(), NOW + 60_000));
    let late = read(&jwt(&json!({ "exp": seconds }))).unwrap_err();
    assert_eq!(late, Trouble::Unreachable("the token in it has expired".into()));
    for text in ["", "hush", &jwt(&json!({ "sub": "x" }))] {
        let refused = read(text).unwrap_err();
        assert!(matches!(&refused, Trouble::Refused(r) if r.contains("'exp'")), "{refused:?}");
    }
}

#[test]
fn form_encoding_matches_java() {
    assert_eq!(exchange::form_encoded("a b&c=d/é~*-._"), "a+b%26c%3Dd%2F%C3%A9%7E*-._");
}
