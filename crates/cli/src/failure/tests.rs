use std::sync::Arc;

use curtail::Error;

use super::Failure;

fn message(failure: Failure) -> String {
    match failure {
        Failure::Message(text) => text,
        Failure::OutputClosed | Failure::NotHeld => panic!("no message"),
    }
}

#[test]
fn a_message_is_one_line() {
    assert_eq!(message(Failure::new("a\n  b\r\n\tc")), "a b c");
}

#[test]
fn failures_are_joined_without_full_stops() {
    let failures = vec![Failure::new("a."), Failure::new("b."), Failure::new("c.")];
    assert_eq!(message(Failure::all(failures).unwrap_err()), "a; b; c.");
}

#[test]
fn errors_say_what_to_do() {
    let unreachable =
        Error::Unreachable { bootstrap: "h:1".into(), reason: "connection refused".into() };
    assert!(message(unreachable.into()).contains("--bootstrap-server"));
    let large = Error::RecordTooLarge { size: 2, limit: 1 };
    let wrapped = Error::NotAcknowledged {
        topic: "t".into(),
        partition: 0,
        may_have_been_written: false,
        cause: Arc::new(large),
    };
    assert!(message(wrapped.into()).ends_with("raise max.request.size"));
}

#[test]
fn a_closed_output_is_no_error() {
    let closed = std::io::Error::from(std::io::ErrorKind::BrokenPipe);
    assert!(matches!(Failure::from(closed), Failure::OutputClosed));
}
