use std::error::Error as _;

use curtail_wire::compression::Codec;

use super::*;

fn broker(code: ErrorCode) -> Arc<Error> {
    Arc::new(Error::Broker { what: "payments-0".into(), code, message: None })
}

fn unacknowledged(cause: Arc<Error>) -> Error {
    Error::NotAcknowledged {
        topic: "payments".into(),
        partition: 0,
        may_have_been_written: false,
        cause,
    }
}

#[test]
fn code_and_source_reach_through_the_causes() {
    let error = unacknowledged(broker(ErrorCode::NOT_ENOUGH_REPLICAS));
    assert_eq!(error.code(), Some(ErrorCode::NOT_ENOUGH_REPLICAS));
    let source = error.source().expect("a cause").to_string();
    assert!(source.starts_with("payments-0: NOT_ENOUGH_REPLICAS"), "{source}");
    assert!(Error::Closed.source().is_none() && Error::Closed.code().is_none());
}

#[test]
fn a_missing_permission_fits_the_request() {
    let text = |what: &str, code: ErrorCode| {
        Error::Broker { what: what.into(), code, message: Some("denied.".into()) }.to_string()
    };
    let cluster = ErrorCode::CLUSTER_AUTHORIZATION_FAILED;
    let listing = text("ACLs", cluster);
    assert!(listing.contains("DESCRIBE") && !listing.contains("IDEMPOTENT"), "{listing}");
    let producing = text(PRODUCER_ID, cluster);
    assert!(producing.contains("IDEMPOTENT_WRITE") && !producing.contains("ALTER"));
    assert!(producing.contains(": denied; the principal"), "{producing}");
}

#[test]
fn texts_have_no_empty_part_and_no_full_stop_inside() {
    let broker = |message: &str| Error::Broker {
        what: "users".into(),
        code: ErrorCode::UNKNOWN_SERVER_ERROR,
        message: Some(message.into()),
    };
    let code = ErrorCode::UNKNOWN_SERVER_ERROR;
    for empty in ["", " "] {
        assert_eq!(broker(empty).to_string(), format!("users: {code}"));
    }
    let last = Some(Arc::new(broker("It failed.")));
    let timeout = Error::Timeout { what: "the call", limit: Duration::from_secs(1), last };
    assert_eq!(timeout.to_string(), "the call took longer than 1s");
    let expected = format!("the call took longer than 1s: users: {code}: It failed.");
    assert_eq!(timeout.report().to_string(), expected);
}

#[test]
fn retriable_is_what_a_later_call_may_cure() {
    let refused: Arc<Error> = Error::from(ConfigError::Missing("bootstrap.servers")).into();
    let timeout = |last| Error::Timeout { what: "metadata", limit: Duration::ZERO, last };
    let cases = [
        (unacknowledged(broker(ErrorCode::NOT_ENOUGH_REPLICAS)), true),
        (unacknowledged(broker(ErrorCode::TOPIC_AUTHORIZATION_FAILED)), false),
        (unacknowledged(Arc::new(timeout(None))), true),
        (timeout(Some(refused)), false),
        (Error::UnknownTopic("payments".into()), true),
        (Error::BufferFull { waited: Duration::ZERO }, true),
        (Error::TransactionFatal { cause: broker(ErrorCode::NOT_ENOUGH_REPLICAS) }, false),
        (Error::Closed, false),
    ];
    for (error, retriable) in cases {
        assert_eq!(error.is_retriable(), retriable, "{error}");
    }
}

/// One error of every kind, with a cause if the kind can have one.
fn every_kind() -> Vec<Error> {
    let cause = || broker(ErrorCode::NOT_ENOUGH_REPLICAS);
    let text = || Arc::<str>::from("a reason");
    let (topic, partition, offset) = (text(), 0, 7);
    let io = || Arc::new(io::Error::from(io::ErrorKind::ConnectionReset));
    vec![
        ConfigError::Missing("bootstrap.servers").into(),
        Error::Unreachable { bootstrap: "h:1".into(), last: Some(cause()) },
        Error::Connection {
            broker: "h:1".into(),
            reason: "the socket failed".into(),
            problem: ConnectionProblem::Other,
            source: Some(io()),
        },
        Error::Authentication { broker: "h:1".into(), reason: text() },
        Error::Protocol { broker: "h:1".into(), reason: text(), foreign: false },
        Error::UnsupportedVersion(text()),
        Error::UnknownTopic(text()),
        Error::UnknownPartition { topic: text(), partition: 3, partitions: 2 },
        Error::RecordTooLarge { size: 2, limit: 1 },
        Error::BufferFull { waited: Duration::from_secs(1) },
        Error::Timeout { what: "the call", limit: Duration::from_secs(1), last: Some(cause()) },
        Error::Broker { what: text(), code: ErrorCode::INVALID_CONFIG, message: Some(text()) },
        unacknowledged(cause()),
        Error::TransactionAbortable { cause: cause() },
        Error::TransactionFatal { cause: cause() },
        Error::TransactionAborted,
        Error::CommitFailed { group: text(), code: ErrorCode::ILLEGAL_GENERATION, reason: text() },
        Error::Corrupt {
            topic: topic.clone(),
            partition,
            offset,
            next_offset: Some(8),
            problem: BatchProblem::Damaged,
            reason: text(),
        },
        Error::OffsetOutOfRange { topic: topic.clone(), partition, offset },
        Error::LogTruncated {
            topic,
            partition,
            offset,
            leader_epoch: 1,
            divergent_offset: None,
            divergent_epoch: None,
        },
        Error::ResponseTooLarge { broker: text(), bytes: 2, limit: 1, setting: "fetch.max.bytes" },
        Error::Thread { source: io() },
        Error::IllegalState("closed"),
        Error::Closed,
    ]
}

/// Whether an error of this kind can have a cause. A new kind does not compile without an entry.
fn wraps(error: &Error) -> bool {
    match error {
        Error::Unreachable { .. }
        | Error::Connection { .. }
        | Error::Timeout { .. }
        | Error::NotAcknowledged { .. }
        | Error::TransactionAbortable { .. }
        | Error::TransactionFatal { .. }
        | Error::Thread { .. } => true,
        Error::Config(_)
        | Error::Authentication { .. }
        | Error::Protocol { .. }
        | Error::UnsupportedVersion(_)
        | Error::UnknownTopic(_)
        | Error::UnknownPartition { .. }
        | Error::RecordTooLarge { .. }
        | Error::BufferFull { .. }
        | Error::Broker { .. }
        | Error::TransactionAborted
        | Error::CommitFailed { .. }
        | Error::Corrupt { .. }
        | Error::OffsetOutOfRange { .. }
        | Error::LogTruncated { .. }
        | Error::ResponseTooLarge { .. }
        | Error::IllegalState(_)
        | Error::Closed => false,
    }
}

#[test]
fn no_text_contains_that_of_its_cause_and_a_report_has_each_once() {
    let kinds: std::collections::HashSet<_> =
        every_kind().iter().map(std::mem::discriminant).collect();
    assert_eq!(kinds.len(), 24, "all kinds of `wraps`");
    for error in every_kind() {
        assert_eq!(error.source().is_some(), wraps(&error), "{error:?}");
        let texts: Vec<String> =
            std::iter::successors(Some(&error as &dyn std::error::Error), |e| (*e).source())
                .map(ToString::to_string)
                .collect();
        let report = error.report().to_string();
        for pair in texts.windows(2) {
            assert!(!pair[0].contains(&pair[1]), "{pair:?}");
        }
        for text in &texts {
            assert_eq!(report.matches(text.trim_end_matches('.')).count(), 1, "{report}");
        }
    }
}

/// The kind's name, as in the enum.
fn kind(error: &Error) -> String {
    let debug = format!("{error:?}");
    debug.chars().take_while(char::is_ascii_alphanumeric).collect()
}

#[test]
fn page_of_errors_has_every_kind_and_code() {
    let page = include_str!("../../../../docs/errors.md");
    let section = page.split("\n## ").find(|text| text.starts_with("Kinds\n")).unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.map(|row| row.split('|').skip(1).map(str::trim).collect::<Vec<_>>());
    let listed: Vec<(String, &str)> =
        cells.map(|cells| (cells[0].trim_matches('`').to_owned(), cells[2])).collect();
    let kinds = every_kind();
    let names: Vec<String> = kinds.iter().map(kind).collect();
    assert_eq!(listed.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>(), names);
    for ((name, retriable), error) in listed.iter().zip(&kinds) {
        match *retriable {
            "yes" => assert!(error.is_retriable(), "{name}"),
            "no" => assert!(!error.is_retriable(), "{name}"),
            depends => assert!(depends.contains("cause") || depends.contains("code"), "{name}"),
        }
    }

    let mut codes = "| code | name | retriable | meaning |\n|---|---|---|---|\n".to_owned();
    let known = (-1..).map(ErrorCode).take_while(|code| code.name() != "UNKNOWN_CODE");
    for code in known.filter(|code| code.is_error()) {
        let retriable = if code.is_retriable() { "yes" } else { "no" };
        let meaning = code.message().trim_end_matches('.');
        codes += &format!("| {} | `{}` | {retriable} | {meaning} |\n", code.0, code.name());
    }
    crate::documents::check("errors.md", &[("codes", codes)]);
}

#[test]
fn a_batch_of_a_missing_codec_is_not_damaged() {
    let missing = RecordError::Decompress(DecompressError::NotBuilt(Codec::Zstd));
    assert_eq!(BatchProblem::of(&missing), BatchProblem::MissingCodec);
    assert_eq!(BatchProblem::of(&RecordError::BatchLength(-1)), BatchProblem::Damaged);
}
