use std::collections::BTreeSet;

use super::*;

#[test]
fn the_table_has_every_code_once_in_order() {
    assert!(CODES.iter().copied().eq(-1..=133));
    let names: BTreeSet<_> = FACTS.iter().map(|fact| fact.name).collect();
    assert_eq!(names.len(), FACTS.len());
    for fact in FACTS {
        assert!(fact.message.ends_with('.') && fact.message.len() > 5, "{}", fact.name);
    }
}

#[test]
fn facts_are_kafkas() {
    assert_eq!(ErrorCode(6), ErrorCode::NOT_LEADER_OR_FOLLOWER);
    assert_eq!(ErrorCode(-1).name(), "UNKNOWN_SERVER_ERROR");
    assert_eq!(ErrorCode(133).name(), "SHARE_SESSION_LIMIT_REACHED");
    for code in [ErrorCode::NOT_LEADER_OR_FOLLOWER, ErrorCode::KAFKA_STORAGE_ERROR] {
        assert!(code.is_retriable() && code.invalidates_metadata(), "{code}");
    }
    for code in [ErrorCode::CONCURRENT_TRANSACTIONS, ErrorCode::NOT_ENOUGH_REPLICAS] {
        assert!(code.is_retriable() && !code.invalidates_metadata(), "{code}");
    }
    for code in [ErrorCode::NONE, ErrorCode::UNKNOWN_SERVER_ERROR, ErrorCode::PRODUCER_FENCED] {
        assert!(!code.is_retriable() && !code.invalidates_metadata(), "{code}");
    }
}

#[test]
fn codes_past_the_table_are_representable() {
    for code in [ErrorCode(134), ErrorCode(i16::MAX), ErrorCode(-2), ErrorCode(i16::MIN)] {
        assert_eq!(code.name(), "UNKNOWN_CODE");
        assert!(!code.is_retriable() && !code.invalidates_metadata() && code.is_error());
    }
    assert_eq!(ErrorCode(134).to_string(), "UNKNOWN_CODE (134)");
    assert_eq!(ErrorCode::NONE.to_string(), "NONE (0)");
    assert_eq!(ErrorCode::NONE.ok(), Ok(()));
    assert_eq!(ErrorCode::INVALID_RECORD.ok(), Err(ErrorCode::INVALID_RECORD));
}
