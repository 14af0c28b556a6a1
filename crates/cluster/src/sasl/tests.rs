use proptest::prelude::*;

use super::*;

const NOW: i64 = 1_000_000;

fn users() -> Known<'static> {
    static MADE: std::sync::LazyLock<(Users, Credentials)> = std::sync::LazyLock::new(made);
    Known { users: &MADE.0, credentials: &MADE.1 }
}

fn made() -> (Users, Credentials) {
    Users::new(&[
        User::new("alice", "secret"),
        User::new("b,o=b", "x").mechanisms([Mechanism::ScramSha256]),
    ])
    .unwrap()
}

fn proved(step: Result<Step, Refused>) -> Option<String> {
    match step {
        Ok(Step::Proved { user, .. }) => Some(user),
        _ => None,
    }
}

/// A client of SCRAM, which uses the same hashes with a separate implementation of the protocol.
fn scram(
    users: Known<'_>,
    mechanism: Mechanism,
    name: &str,
    password: &str,
) -> Result<Step, Refused> {
    use base64::{Engine, prelude::BASE64_STANDARD as BASE64};
    let hash = match mechanism {
        Mechanism::ScramSha256 => Hash::Sha256,
        _ => Hash::Sha512,
    };
    let mut exchange = Exchange::begin(mechanism);
    let bare = format!("n={name},r=abc");
    let Step::Challenge(challenge) = exchange.step(users, format!("n,,{bare}").as_bytes(), NOW)?
    else {
        panic!("the server has to challenge");
    };
    let challenge = String::from_utf8(challenge).unwrap();
    let fields: Vec<&str> = challenge.split(',').map(|field| &field[2..]).collect();
    let [nonce, salt, iterations] = fields[..] else { panic!("{challenge}") };
    assert!(nonce.starts_with("abc") && nonce.len() > 20);
    assert_eq!(iterations, "4096");
    let salt = BASE64.decode(salt).unwrap();
    let salted = hash.salted(password.as_bytes(), &salt, iterations.parse().unwrap());
    let key = hash.hmac(&salted, b"Client Key");
    let unproved = format!("c=biws,r={nonce}");
    let signed = format!("{bare},{challenge},{unproved}");
    let signature = hash.hmac(&hash.digest(&key), signed.as_bytes());
    let proof: Vec<u8> = key.iter().zip(&signature).map(|(a, b)| a ^ b).collect();
    let answer = format!("{unproved},p={}", BASE64.encode(proof));
    let step = exchange.step(users, answer.as_bytes(), NOW)?;
    let own = hash.hmac(&hash.hmac(&salted, b"Server Key"), signed.as_bytes());
    let Step::Proved { last, .. } = &step else { panic!("the exchange is over") };
    assert_eq!(*last, format!("v={}", BASE64.encode(own)).into_bytes());
    // The exchange has ended, whatever message follows.
    assert_eq!(exchange.step(users, answer.as_bytes(), NOW), Err(Refused::Invalid));
    Ok(step)
}

#[test]
fn plain_accepts_only_the_users_password() {
    let users = users();
    let step = |message: &[u8]| Exchange::begin(Mechanism::Plain).step(users, message, NOW);
    assert_eq!(proved(step(b"\0alice\0secret")), Some("alice".into()));
    assert_eq!(proved(step(b"alice\0alice\0secret")), Some("alice".into()));
    for (message, told) in [
        (&b"\0alice\0Secret"[..], Some("Authentication failed: Invalid username or password")),
        (b"\0nobody\0secret", Some("Authentication failed: Invalid username or password")),
        // A user of another mechanism only.
        (b"\0b,o=b\0x", Some("Authentication failed: Invalid username or password")),
        (b"\0\0secret", Some("Authentication failed: username not specified")),
        (b"\0alice\0", Some("Authentication failed: password not specified")),
        (b"alice\0secret", None),
        (b"\0alice\0secret\0", None),
        (b"\xff\0alice\0secret", None),
        (b"", None),
    ] {
        let refused = step(message).unwrap_err();
        assert_eq!(refused, told.map_or(Refused::Invalid, Refused::Because));
    }
    assert!(matches!(step(b"bob\0alice\0secret"), Err(Refused::Because(_))));
}

#[test]
fn scram_accepts_only_a_valid_proof() {
    let users = users();
    for mechanism in [Mechanism::ScramSha256, Mechanism::ScramSha512] {
        assert_eq!(proved(scram(users, mechanism, "alice", "secret")), Some("alice".into()));
        assert_eq!(scram(users, mechanism, "alice", "Secret"), Err(Refused::Invalid));
        assert_eq!(scram(users, mechanism, "nobody", "secret"), Err(Refused::Invalid));
    }
    let name = "b=2Co=3Db";
    assert_eq!(proved(scram(users, Mechanism::ScramSha256, name, "x")), Some("b,o=b".into()));
    assert_eq!(scram(users, Mechanism::ScramSha512, name, "x"), Err(Refused::Invalid));
}

/// The example of RFC 7677. The real exchange differs only in the client's random nonce.
#[test]
fn scram_keys_equal_the_example_of_rfc_7677() {
    use base64::{Engine, prelude::BASE64_STANDARD as BASE64};
    let salt = BASE64.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
    let salted = Hash::Sha256.salted(b"pencil", &salt, 4096.try_into().unwrap());
    let key = Hash::Sha256.hmac(&salted, b"Client Key");
    let signed = "n=user,r=rOprNGfwEbeRWgbNEkqO,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                  s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    let signature = Hash::Sha256.hmac(&Hash::Sha256.digest(&key), signed.as_bytes());
    let proof: Vec<u8> = key.iter().zip(&signature).map(|(a, b)| a ^ b).collect();
    assert_eq!(BASE64.encode(proof), "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=");
    let own = Hash::Sha256.hmac(&Hash::Sha256.hmac(&salted, b"Server Key"), signed.as_bytes());
    assert_eq!(BASE64.encode(own), "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
}

#[test]
fn scram_refuses_malformed_and_unsupported_messages() {
    let users = users();
    let first = |message: &str| {
        Exchange::begin(Mechanism::ScramSha256).step(users, message.as_bytes(), NOW).is_ok()
    };
    assert!(first("n,,n=alice,r=abc"));
    assert!(first("y,a=alice,n=alice,r=abc,t=what"));
    for message in [
        "",
        "n",
        "n,,",
        "p=tls-unique,,n=alice,r=abc",
        "n,a=bob,n=alice,r=abc",
        "n,b=alice,n=alice,r=abc",
        "n,,m=must,n=alice,r=abc",
        "n,,n=alice,r=",
        "n,,n=alice,r=a b",
        "n,,n=alice=,r=abc",
        "n,,n=alice=2c,r=abc",
        "n,,n=ali=é,r=abc",
        "n,,r=abc,n=alice",
    ] {
        assert!(!first(message), "{message:?}");
    }
}

#[test]
fn passwords_are_not_printed() {
    let user = User::parse("alice:open:sesame").unwrap();
    let (known, credentials) = Users::new(std::slice::from_ref(&user)).unwrap();
    let shown = format!("{user:?} {known:?} {credentials:?}");
    assert!(!shown.contains("sesame") && !shown.contains("key"), "{shown}");
    assert_eq!(user, User::new("alice", "open:sesame"));
    let user = User::parse("alice:secret:SCRAM-SHA-512").unwrap();
    assert_eq!(user, User::new("alice", "secret").mechanisms([Mechanism::ScramSha512]));
    for text in ["", "alice", "alice:", ":secret", "alice:s\0"] {
        assert!(User::parse(text).is_err(), "{text:?}");
    }
}

#[test]
fn a_user_with_a_mistyped_mechanism_is_refused() {
    for (mechanism, nearest) in [
        ("SCRAM-SHA256", Mechanism::ScramSha256),
        ("SCRAM-SHA-265", Mechanism::ScramSha256),
        ("scram-sha-256", Mechanism::ScramSha256),
        ("SCRAM", Mechanism::ScramSha256),
        ("SHA-256", Mechanism::ScramSha256),
        ("SCRAM_SHA_512", Mechanism::ScramSha512),
        ("SCRAM-512", Mechanism::ScramSha512),
        ("SRAM-SHA-512", Mechanism::ScramSha512),
        ("plain", Mechanism::Plain),
        ("PLAIN ", Mechanism::Plain),
        ("PLAINTEXT", Mechanism::Plain),
        ("OAUTHBEARER", Mechanism::OAuthBearer),
    ] {
        let text = format!("alice:topsecret:{mechanism}");
        let refused = User::parse(&text).unwrap_err();
        assert_eq!(refused, UserError::Mechanism(nearest), "{mechanism}");
        let said = refused.to_string();
        assert!(said.contains(nearest.name()) && !said.contains("topsecret"), "{said}");
    }
    // A mechanism after it makes it a part of the password.
    let user = User::parse("alice:a:SCRAM-SHA256:PLAIN").unwrap();
    assert_eq!(user, User::new("alice", "a:SCRAM-SHA256").mechanisms([Mechanism::Plain]));
    for password in ["SCRAM-SHA256", "open:sesame", "a:explain", "a:256", "a:"] {
        assert_eq!(User::parse(&format!("alice:{password}")), Ok(User::new("alice", password)));
    }
}

proptest! {
    #[test]
    fn arbitrary_messages_cause_no_panic(messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..4)) {
        let users = users();
        for mechanism in Mechanism::ALL {
            let mut exchange = Exchange::begin(mechanism);
            for message in &messages {
                let _ = exchange.step(users, message, NOW);
            }
        }
    }

    #[test]
    fn an_arbitrary_final_message_is_refused(text in "[nyc=,a=lice rp=bwsAZ09+/]{0,60}") {
        let users = users();
        let mut exchange = Exchange::begin(Mechanism::ScramSha256);
        let _ = exchange.step(users, b"n,,n=alice,r=abc", NOW);
        let refused = exchange.step(users, text.as_bytes(), NOW).is_err();
        prop_assert!(refused);
    }
}
