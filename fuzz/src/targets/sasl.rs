//! SASL from the client's side: hostile challenges, and credentials that must not break their message.

use curtail_proto::sasl::{
    Credentials, Exchange, Hash, MAX_ITERATIONS, MIN_ITERATIONS, SaslError, Step,
};

use crate::{Input, Target, memory};

pub(super) const TARGET: Target = Target { name: "sasl", run, seeds, cases: 4_000 };

const PASSWORD: &str = "pencil";
const NONCE: &str = "fyko+d2lbbFgONRv9qkxdawL";

fn run(input: &[u8]) {
    let mut input = Input::new(input);
    match input.below(4) {
        0 => scram(Hash::Sha256, &mut input),
        1 => scram(Hash::Sha512, &mut input),
        2 => bearer(&mut input),
        _ => plain(&mut input),
    }
}

/// A broker that does not know the password: it never completes an exchange.
fn scram(hash: Hash, input: &mut Input<'_>) {
    let username = String::from_utf8_lossy(input.section()).into_owned();
    let credentials = Credentials::Scram {
        hash,
        username: username.clone(),
        password: PASSWORD.into(),
        is_token: input.flag(),
    };
    let begun = Exchange::begin(&credentials, NONCE);
    let Ok((mut exchange, first)) = begun else {
        assert!(username.is_empty(), "only an empty user name is refused");
        return;
    };
    let first = String::from_utf8(first.to_vec()).expect("text");
    let bare = first.strip_prefix("n,,n=").expect("the header and the name");
    let (name, _) = bare.split_once(",r=").expect("the name and the nonce");
    assert_eq!(name.replace("=2C", ",").replace("=3D", "="), username, "the name is escaped");
    // Errors quote the broker, which may guess the password.
    let mut is_guessed = false;
    while !input.is_empty() {
        let message = input.section();
        is_guessed |= message.windows(PASSWORD.len()).any(|part| part == PASSWORD.as_bytes());
        let cap = memory::SLACK + 32 * message.len();
        let mut step = memory::within("a SCRAM message", cap, || exchange.answered(message));
        if let Ok(Step::Derive(work)) = &step {
            let shown = format!("{work:?}");
            let iterations: u32 = shown
                .chars()
                .filter(char::is_ascii_digit)
                .collect::<String>()
                .parse()
                .expect("a number");
            assert!((MIN_ITERATIONS..=MAX_ITERATIONS).contains(&iterations), "{shown}");
            assert!(!shown.contains(PASSWORD), "the password is shown");
            // More work would only make the run slow.
            if iterations > MIN_ITERATIONS {
                return;
            }
            step = exchange.derived(&work.run());
        }
        match step {
            Ok(Step::Send(last)) => {
                let last = String::from_utf8(last.to_vec()).expect("text");
                assert!(last.starts_with("c=biws,r=") && last.contains(",p="), "{last}");
            }
            Ok(Step::Done) => panic!("a broker without the password was believed"),
            Ok(Step::Derive(_)) => panic!("a key is derived once"),
            Err(error) => {
                let is_shown = error.to_string().contains(PASSWORD);
                assert!(is_guessed || !is_shown, "the password is shown");
                let again = exchange.answered(message);
                assert!(!matches!(again, Ok(Step::Done)), "a failed exchange was completed");
            }
        }
    }
}

fn bearer(input: &mut Input<'_>) {
    let text = |input: &mut Input<'_>| String::from_utf8_lossy(input.section()).into_owned();
    let token = text(input);
    let extensions: Vec<_> = (0..input.below(4)).map(|_| (text(input), text(input))).collect();
    let credentials =
        Credentials::OAuthBearer { token: token.as_str().into(), extensions: extensions.clone() };
    let Ok((mut exchange, first)) = Exchange::begin(&credentials, NONCE) else { return };
    let first = String::from_utf8(first.to_vec()).expect("text");
    let parts: Vec<&str> = first.split('\x01').collect();
    let mut expected = vec!["n,,".to_owned(), format!("auth=Bearer {token}")];
    expected.extend(extensions.iter().map(|(name, value)| format!("{name}={value}")));
    expected.extend([String::new(), String::new()]);
    assert_eq!(parts, expected, "nothing is smuggled into the message");
    let message = input.rest();
    match exchange.answered(message) {
        Ok(Step::Done) => assert!(message.is_empty(), "only an empty message accepts a token"),
        Err(SaslError::Refused(words)) => {
            assert!(words.chars().count() <= 300 && !words.contains(char::is_control), "{words:?}");
        }
        other => panic!("unexpected: {other:?}"),
    }
}

fn plain(input: &mut Input<'_>) {
    let text = |input: &mut Input<'_>| String::from_utf8_lossy(input.section()).into_owned();
    let (username, password) = (text(input), text(input));
    let credentials =
        Credentials::Plain { username: username.clone(), password: password.as_str().into() };
    let Ok((mut exchange, first)) = Exchange::begin(&credentials, NONCE) else { return };
    let parts: Vec<&[u8]> = first.split(|byte| *byte == 0).collect();
    assert_eq!(parts, [b"", username.as_bytes(), password.as_bytes()]);
    let message = input.rest();
    let done = matches!(exchange.answered(message), Ok(Step::Done));
    assert_eq!(done, message.is_empty());
}

fn seeds() -> Vec<Vec<u8>> {
    let section = |text: &str| [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat();
    let first = format!("r={NONCE}3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096");
    let last = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";
    let token = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.";
    let mut seeds = Vec::new();
    for hash in 0..2 {
        let head = [&[hash][..], &section("us=er,"), &[0]].concat();
        seeds.push([&head[..], &section(&first), &section(last)].concat());
        seeds.push([&head[..], &section("e=invalid-proof")].concat());
    }
    seeds.push([&[2][..], &section(token), &[1], &section("tenant"), &section("a b")].concat());
    seeds.push([&[2][..], &section(token), &[0], b"{\"status\":\"invalid_token\"}"].concat());
    seeds.push([&[3][..], &section("user"), &section("secret")].concat());
    seeds
}
