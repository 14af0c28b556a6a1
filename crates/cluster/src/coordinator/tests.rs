use super::{Kind, partition_for};
use crate::config::ClusterConfig;

#[test]
fn keys_belong_where_javas_hash_puts_them() {
    // What Java's String.hashCode gives: 99162322, Integer.MIN_VALUE, 0, 228, 1772899 (a surrogate pair) and
    // -1906497762.
    let cases = [
        ("hello", 22),
        ("polygenelubricants", 0),
        ("", 0),
        ("ä", 28),
        ("😀", 49),
        ("my-group", 12),
    ];
    for (key, expected) in cases {
        assert_eq!(partition_for(key, 50), expected, "{key}");
    }
    assert_eq!(partition_for("a", 0), 0, "no partitions is no panic");
}

#[test]
fn internal_topics_fit_the_cluster() {
    let spec = |kind: Kind, brokers| {
        let spec = kind.topic_spec(&ClusterConfig { brokers, ..ClusterConfig::default() });
        (spec.partitions, spec.replication_factor, spec.configs)
    };
    let compact = || ("cleanup.policy".to_owned(), "compact".to_owned());
    let min_isr = |n: &str| ("min.insync.replicas".to_owned(), n.to_owned());
    assert_eq!(spec(Kind::Group, 1), (4, 1, vec![compact()]));
    assert_eq!(spec(Kind::Group, 5), (4, 3, vec![compact()]));
    assert_eq!(spec(Kind::Transaction, 1), (4, 1, vec![compact(), min_isr("1")]));
    assert_eq!(spec(Kind::Transaction, 2), (4, 2, vec![compact(), min_isr("2")]));
}

mod values {
    use bytes::Bytes;

    use super::super::{
        offsets::{Commit, Offsets},
        records::{
            GroupValue, Key, MemberValue, OffsetValue, decode_group, decode_key, decode_offset,
            group_record, group_tombstone, offset_record, offset_tombstone,
        },
    };

    fn offset(offset: i64) -> OffsetValue {
        OffsetValue { offset, leader_epoch: 3, metadata: "why".into(), commit_timestamp: 77 }
    }

    #[test]
    fn records_read_back_and_are_kafkas() {
        let record = offset_record("g", "t", 5, &offset(9));
        assert_eq!(record.key.as_ref(), b"\0\x01\0\x01g\0\x01t\0\0\0\x05");
        let value = b"\0\x03\0\0\0\0\0\0\0\x09\0\0\0\x03\0\x03why\0\0\0\0\0\0\0\x4d";
        assert_eq!(record.value.as_deref(), Some(&value[..]));
        let key = Key::Offset { group: "g".into(), topic: "t".into(), partition: 5 };
        assert_eq!(decode_key(&record.key), Ok(Some(key)));
        assert_eq!(decode_offset(&record.value.unwrap()), Ok(Some(offset(9))));
        assert_eq!(offset_tombstone("g", "t", 5).key, record.key);

        let group = GroupValue {
            protocol_type: "consumer".into(),
            generation: 4,
            protocol: Some("range".into()),
            leader: Some("m".into()),
            state_timestamp: 88,
            members: vec![MemberValue {
                id: "m".into(),
                instance_id: Some("i".into()),
                client_id: "c".into(),
                client_host: "/h".into(),
                rebalance_timeout_ms: 1,
                session_timeout_ms: 2,
                subscription: Bytes::from_static(b"s"),
                assignment: Bytes::from_static(b"a"),
            }],
        };
        let record = group_record("g", &group);
        assert_eq!(record.key, group_tombstone("g").key);
        assert_eq!(decode_key(&record.key), Ok(Some(Key::Group("g".into()))));
        let value = record.value.unwrap();
        assert_eq!(decode_group(&value), Ok(Some(group)));
        for cut in 0..value.len() {
            assert!(decode_group(&value[..cut]).is_err(), "cut at {cut}");
        }
        assert_eq!(decode_key(b"\0\x03\0\x01g"), Ok(None), "a key of the consumer protocol");
        assert_eq!(decode_offset(b"\0\x09"), Ok(None));
    }

    #[test]
    fn offsets_of_a_transaction_hold_when_it_is_committed() {
        let at = |partition| ("t".to_owned(), partition);
        let commit = |value, log_offset| Commit { value: offset(value), log_offset };
        let mut offsets = Offsets::default();
        offsets.commit(at(0), commit(1, 10));
        offsets.prepare(7, at(0), commit(5, 11));
        offsets.prepare(7, at(1), commit(6, 12));
        offsets.prepare(8, at(2), commit(9, 13));
        assert_eq!(offsets.get(&at(0)).map(|v| v.offset), Some(1));
        assert!(offsets.is_pending(&at(0)) && offsets.is_pending(&at(1)));
        assert_eq!(offsets.only_pending().len(), 2);
        // Committed outside, later in the log: it holds.
        offsets.commit(at(1), commit(8, 14));
        offsets.complete(7, true);
        offsets.complete(8, false);
        let found: Vec<_> = offsets.all().map(|(at, v)| (at.1, v.offset)).collect();
        assert_eq!(found, [(0, 5), (1, 8)]);
        assert!(!offsets.is_pending(&at(0)) && offsets.only_pending().is_empty());
        assert_eq!(offsets.committed_until(76), []);
        let all = offsets.committed_until(77);
        assert!(all.len() == 2 && offsets.are_all(&all) && !offsets.are_all(&all[1..]));
        offsets.remove(&at(0));
        offsets.remove(&at(1));
        assert!(offsets.is_empty());
    }
}
