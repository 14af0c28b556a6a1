//! The vectors of RFC 5802's family, refusals, and hostile bytes.

use proptest::prelude::*;

use super::*;

fn scram(username: &str, password: &str) -> Credentials {
    let (username, password) = (username.to_owned(), password.into());
    Credentials::Scram { hash: Hash::Sha256, username, password, is_token: false }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

const NONCE: &str = "rOprNGfwEbeRWgbNEkqO";
const SERVER_FIRST: &str =
    "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
const CLIENT_LAST: &str = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
const SERVER_LAST: &str = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

fn after_first(server_first: &str) -> Result<(Exchange, Step), SaslError> {
    let (mut exchange, _) = Exchange::begin(&scram("user", "pencil"), NONCE).expect("usable");
    let step = exchange.answered(server_first.as_bytes())?;
    Ok((exchange, step))
}

fn after_proof(server_first: &str) -> (Exchange, Zeroizing<Vec<u8>>) {
    let (mut exchange, step) = after_first(server_first).expect("accepted");
    let Step::Derive(derivation) = step else { panic!("{step:?}") };
    match exchange.derived(&derivation.run()) {
        Ok(Step::Send(proof)) => (exchange, proof),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_vector_of_rfc_7677() {
    let (_, first) = Exchange::begin(&scram("user", "pencil"), NONCE).expect("usable");
    assert_eq!(text(&first), "n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
    let (mut exchange, proof) = after_proof(SERVER_FIRST);
    assert_eq!(text(&proof), CLIENT_LAST);
    assert_eq!(exchange.answered(SERVER_LAST.as_bytes()), Ok(Step::Done));
}

const SHA512_LAST: &str = "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=VdS8LkrURiej1tG6iX+fqCXQfUnBb//d9llXYaH+ylUbDwBUz9geyR9fC4TewskRUM2tlYSalhAT4Aay1Q5dTA==";
const SHA512_SIGNATURE: &str =
    "v=14PAAuavk9hxBEkgB0brDxUhvWu+N16meYk+qxVNFqchR8QPohM09Y4Z6WaTCuX4C6nqMB9KIJTDm6RpSM990g==";

/// RFC 5802 has a vector for SHA-1 only, which Kafka does not speak. These are its inputs under SHA-512, with the proof
/// and the signature computed from the RFC's formulas by Python's hashlib.
#[test]
fn the_exchange_of_rfc_5802_with_sha_512() {
    let credentials = Credentials::Scram {
        hash: Hash::Sha512,
        username: "user".into(),
        password: "pencil".into(),
        is_token: false,
    };
    let (mut exchange, first) =
        Exchange::begin(&credentials, "fyko+d2lbbFgONRv9qkxdawL").expect("usable");
    assert_eq!(text(&first), "n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL");
    let server_first = "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096";
    let Ok(Step::Derive(derivation)) = exchange.answered(server_first.as_bytes()) else {
        panic!("nothing to derive")
    };
    let Ok(Step::Send(last)) = exchange.derived(&derivation.run()) else { panic!("no proof") };
    assert_eq!(text(&last), SHA512_LAST);
    assert_eq!(exchange.answered(SHA512_SIGNATURE.as_bytes()), Ok(Step::Done));
}

#[test]
fn names_are_escaped_and_tokens_marked() {
    let (_, first) = Exchange::begin(&scram("a=b,c", "x"), "n").expect("usable");
    assert_eq!(text(&first), "n,,n=a=3Db=2Cc,r=n");
    let Credentials::Scram { hash, username, password, .. } = scram("id", "hmac") else {
        unreachable!()
    };
    let token = Credentials::Scram { hash, username, password, is_token: true };
    let (_, first) = Exchange::begin(&token, "n").expect("usable");
    assert_eq!(text(&first), "n,,n=id,r=n,tokenauth=true");
}

#[test]
fn a_broker_that_does_not_know_the_password_is_an_impostor() {
    let wrong = SERVER_LAST.replace("6rri", "6rrj");
    for last in ["v=", "v=AAAA", &wrong] {
        let (mut exchange, _) = after_proof(SERVER_FIRST);
        assert_eq!(exchange.answered(last.as_bytes()), Err(SaslError::Impostor), "{last}");
    }
    for last in ["", "v", "x=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", "v=?"] {
        let (mut exchange, _) = after_proof(SERVER_FIRST);
        let answer = exchange.answered(last.as_bytes());
        assert!(matches!(answer, Err(SaslError::Malformed { .. })), "{last}: {answer:?}");
    }
    let (mut exchange, _) = after_proof(SERVER_FIRST);
    let refused = exchange.answered(b"e=invalid-proof");
    assert_eq!(refused, Err(SaslError::Refused("invalid-proof".into())));
}

#[test]
fn a_first_response_has_our_nonce_a_salt_and_an_accepted_number_of_iterations() {
    let malformed = [
        "",
        "r=other,s=AAAA,i=4096",
        "r=rOprNGfwEbeRWgbNEkqO,s=AAAA,i=4096",
        "r=rOprNGfwEbeRWgbNEkqOx,i=4096,s=AAAA",
        "r=rOprNGfwEbeRWgbNEkqOx,s=?,i=4096",
        "r=rOprNGfwEbeRWgbNEkqOx,s=AAAA,i=-1",
        "r=rOprNGfwEbeRWgbNEkqOx,s=AAAA",
        "m=ext,r=rOprNGfwEbeRWgbNEkqOx,s=AAAA,i=4096",
    ];
    for first in malformed {
        let answer = after_first(first);
        assert!(matches!(answer, Err(SaslError::Malformed { .. })), "{first}: {answer:?}");
    }
    for (iterations, fits) in [
        (0, false),
        (4_095, false),
        (4_096, true),
        (1_000_000, true),
        (1_000_001, false),
        (u64::from(u32::MAX) + 4_097, false),
    ] {
        let answer = after_first(&format!("r={NONCE}x,s=AAAA,i={iterations}"));
        match fits {
            true => assert!(answer.is_ok(), "{iterations}"),
            false => assert_eq!(answer.err(), Some(SaslError::Iterations(iterations))),
        }
    }
}

#[test]
fn plain_and_bearer_have_a_single_message() {
    let plain = |username: &str, password: &str| Credentials::Plain {
        username: username.into(),
        password: password.into(),
    };
    let (mut exchange, first) = Exchange::begin(&plain("alice", "s3cret"), "").expect("usable");
    assert_eq!(text(&first), "\0alice\0s3cret");
    assert_eq!(exchange.answered(b""), Ok(Step::Done));
    assert!(matches!(exchange.answered(b"more"), Err(SaslError::Malformed { .. })));
    for (username, password) in [("", "x"), ("x", ""), ("a\0b", "x"), ("x", "a\0b")] {
        let refused = Exchange::begin(&plain(username, password), "");
        assert!(matches!(refused, Err(SaslError::Unusable(_))));
    }

    let bearer = |token: &str, extensions: &[(&str, &str)]| Credentials::OAuthBearer {
        token: token.into(),
        extensions: extensions.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect(),
    };
    let (mut exchange, first) =
        Exchange::begin(&bearer("a.b.c", &[("cluster", "lkc-1")]), "").expect("usable");
    assert_eq!(text(&first), "n,,\x01auth=Bearer a.b.c\x01cluster=lkc-1\x01\x01");
    assert_eq!(exchange.answered(b""), Ok(Step::Done));
    let refused = exchange.answered(b"{\"status\":\"invalid_token\"}\n");
    assert_eq!(refused, Err(SaslError::Refused("{\"status\":\"invalid_token\"} ".into())));
    for unusable in [bearer("", &[]), bearer("a b", &[]), bearer("a", &[("auth", "x")])] {
        assert!(matches!(Exchange::begin(&unusable, ""), Err(SaslError::Unusable(_))));
    }
}

#[test]
fn debug_output_shows_no_secret() {
    let credentials = scram("user", "pencil");
    let (mut exchange, _) = Exchange::begin(&credentials, NONCE).expect("usable");
    let step = exchange.answered(SERVER_FIRST.as_bytes()).expect("accepted");
    let Step::Derive(derivation) = &step else { panic!("{step:?}") };
    let shown = format!("{credentials:?} {exchange:?} {step:?} {:?}", derivation.run());
    assert!(!shown.contains("pencil"), "{shown}");
}

proptest! {
    #[test]
    fn no_response_causes_a_panic_or_false_success(
        first in "(r=rOprNGfwEbeRWgbNEkqO)?[ -~]{0,40}(,s=[A-Za-z0-9+/=]{0,12})?(,i=[0-9]{0,5})?",
        last in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        if let Ok((mut exchange, Step::Derive(derivation))) = after_first(&first) {
            prop_assert!(exchange.answered(&last).is_err());
            drop(derivation);
        }
        let (mut exchange, _) = after_proof(SERVER_FIRST);
        prop_assert!(exchange.answered(&last).is_err());
    }
}
