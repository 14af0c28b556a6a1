//! Control batches.

use super::*;

#[test]
fn transaction_markers_survive() {
    for marker in [EndTxnMarker::Abort, EndTxnMarker::Commit] {
        let bytes = encode_end_txn_marker(marker, 42, 7, 13, 1_700_000_000_000).unwrap();
        let header = BatchHeader::parse(&bytes).unwrap();
        assert!(header.is_control() && header.is_transactional());
        assert_eq!((header.producer_id, header.producer_epoch, header.base_sequence), (42, 7, -1));
        let records = decode(&bytes);
        assert_eq!(records.len(), 1);
        let read = ControlRecord::parse(records[0].key.as_deref(), records[0].value.as_deref());
        assert_eq!(read, Ok(ControlRecord::EndTxn { marker, coordinator_epoch: 13 }));
    }
}

#[test]
fn control_records_are_parsed_by_type_and_tails_are_ignored() {
    let parse = |kind: u8, value| ControlRecord::parse(Some(&[0, 0, 0, kind]), value);
    assert_eq!(parse(2, Some(&[0, 0])), Ok(ControlRecord::LeaderChange));
    assert_eq!(parse(3, None), Ok(ControlRecord::Other(3)));
    let commit = ControlRecord::EndTxn { marker: EndTxnMarker::Commit, coordinator_epoch: 9 };
    assert_eq!(parse(1, Some(&[0, 0, 0, 0, 0, 9])), Ok(commit));
    assert_eq!(parse(1, Some(&[0, 1, 0, 0, 0, 9, 0])), Ok(commit), "a later version with a tail");
}

#[test]
fn invalid_control_records_are_refused() {
    let marker = [0, 0, 0, 0, 0, 9];
    for (key, value) in [
        (None, Some(&marker[..])),
        (Some(&[][..]), Some(&marker)),
        (Some(&[0, 0, 0]), Some(&marker)),
        (Some(&[0xff, 0xff, 0, 1]), Some(&marker)),
        (Some(&[0, 0, 0, 1]), None),
        (Some(&[0, 0, 0, 1]), Some(&marker[..5])),
        (Some(&[0, 0, 0, 0]), Some(&[0x80, 0, 0, 0, 0, 9])),
    ] {
        let read = ControlRecord::parse(key, value);
        assert!(matches!(read, Err(RecordError::Control(_))), "{key:?} {value:?}: {read:?}");
    }
}
