use std::sync::Arc;

use curtail::{Error, error::ConnectionProblem};

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
    let failures = vec![Failure::new("a: "), Failure::new("b;"), Failure::new("c?")];
    assert_eq!(message(Failure::all(failures).unwrap_err()), "a; b; c?");
}

/// Some brokers send an empty message.
#[test]
fn advice_follows_a_broker_error_without_a_second_mark() {
    let code = curtail::ErrorCode::KAFKA_STORAGE_ERROR;
    let advice = "is a broker's disk full? see its output";
    for (text, shown) in [("", ""), ("It is full.", ": It is full")] {
        let error = Error::Broker { what: "t-0".into(), code, message: Some(text.into()) };
        assert_eq!(message(error.into()), format!("t-0: {code}{shown}; {advice}"));
    }
}

/// A failure to reach a cluster after this one at the last broker.
fn unreachable_after(last: Option<Error>) -> String {
    let last = last.map(Arc::new);
    message(Error::Unreachable { bootstrap: "protocol:9092".into(), last }.into())
}

fn connection(problem: ConnectionProblem, reason: &str) -> Error {
    Error::Connection {
        broker: "protocol:9092".into(),
        reason: reason.into(),
        problem,
        source: None,
    }
}

fn protocol(foreign: bool, reason: &str) -> Error {
    Error::Protocol { broker: "h:1".into(), reason: reason.into(), foreign }
}

/// Names and reasons are arbitrary texts: they may contain words of an advice.
#[test]
fn advice_follows_the_kind_of_an_error_and_not_its_text() {
    use ConnectionProblem::{NoToken, Other, Refused, Unserved};
    let start = "check --bootstrap-server and that the brokers are running";
    let port = "is this the port of a Kafka broker, without TLS?";
    for (last, advice) in [
        (None, start),
        (Some(connection(Other, "no route to the protocol; check the cable; lost?")), start),
        (Some(protocol(false, "a length of 9; check it?")), port),
    ] {
        let text = unreachable_after(last);
        assert!(text.contains(&format!("; {advice}")), "{text}");
    }
    for last in [
        connection(Refused, "r"),
        connection(Unserved, "u"),
        connection(NoToken, "t"),
        protocol(true, "f"),
    ] {
        let text = unreachable_after(Some(last.clone()));
        assert_eq!(text, format!("cannot reach the cluster at protocol:9092: {last}"));
    }
    let text = message(protocol(true, "it is an SSH server").into());
    assert_eq!(text, "h:1 broke the Kafka protocol: it is an SSH server");
    assert!(message(protocol(false, "a length of 9?").into()).ends_with(port));
    let timeout = |last| {
        let limit = std::time::Duration::from_secs(1);
        message(Error::Timeout { what: "w", limit, last: Some(Arc::new(last)) }.into())
    };
    assert!(timeout(protocol(false, "x")).ends_with(port));
    assert!(
        timeout(connection(Unserved, "closed by the broker")).ends_with(": closed by the broker")
    );
}

#[test]
fn errors_say_what_to_do() {
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
fn a_failure_has_the_text_of_every_cause() {
    let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
    let last = Error::Connection {
        broker: "h:1".into(),
        reason: "the socket failed".into(),
        problem: ConnectionProblem::Other,
        source: Some(Arc::new(reset)),
    };
    let text = unreachable_after(Some(last));
    let chain = "cannot reach the cluster at protocol:9092: connection to h:1: the socket failed: \
                 connection reset; check --bootstrap-server";
    assert!(text.starts_with(chain), "{text}");

    let addr = "127.0.0.1:9092".to_owned();
    let source = std::io::ErrorKind::AddrInUse.into();
    let text = message(curtail_cluster::ClusterError::Listen { addr, source }.into());
    let chain = "cannot listen on 127.0.0.1:9092 (choose another port or stop the process that uses \
                 it): address in use";
    assert_eq!(text, chain);
}

#[test]
fn a_closed_output_is_no_error() {
    let closed = std::io::Error::from(std::io::ErrorKind::BrokenPipe);
    assert!(matches!(Failure::from(closed), Failure::OutputClosed));
}
