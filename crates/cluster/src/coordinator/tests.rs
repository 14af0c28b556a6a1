use super::{Kind, partition_for};
use crate::config::ClusterConfig;

#[test]
fn keys_map_to_partitions_by_javas_hash() {
    // Results of Java's String.hashCode: 99162322, Integer.MIN_VALUE, 0, 228, 1772899 (a surrogate
    // pair) and -1906497762.
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
fn internal_topics_need_no_more_replicas_than_brokers_and_fix_what_keeps_their_state() {
    let spec = |kind: Kind, brokers| {
        let spec = kind.topic_spec(&ClusterConfig { brokers, ..ClusterConfig::default() });
        (spec.partitions, spec.replication_factor, spec.configs)
    };
    let configs = |configs: &[(&str, &str)]| {
        let own = configs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        own.collect::<Vec<_>>()
    };
    let of_groups = || configs(&[("cleanup.policy", "compact"), ("compression.type", "producer")]);
    let of_transactions = |min_isr| {
        configs(&[
            ("cleanup.policy", "compact"),
            ("compression.type", "uncompressed"),
            ("unclean.leader.election.enable", "false"),
            ("min.insync.replicas", min_isr),
        ])
    };
    assert_eq!(spec(Kind::Group, 1), (4, 1, of_groups()));
    assert_eq!(spec(Kind::Group, 5), (4, 3, of_groups()));
    assert_eq!(spec(Kind::Transaction, 1), (4, 1, of_transactions("1")));
    assert_eq!(spec(Kind::Transaction, 2), (4, 2, of_transactions("2")));
}

mod values {
    use bytes::Bytes;
    use curtail_wire::Uuid;

    use super::super::{
        offsets::{Commit, Offsets},
        records::{
            GroupValue, Key, MemberValue, OffsetValue, decode_group, decode_key, decode_offset,
            group_record, group_tombstone, offset_record, offset_tombstone,
        },
    };

    fn offset(offset: i64) -> OffsetValue {
        OffsetValue {
            offset,
            leader_epoch: 3,
            metadata: "why".into(),
            commit_timestamp: 77,
            topic_id: Uuid::ZERO,
        }
    }

    #[test]
    fn records_round_trip_in_kafkas_format() {
        let record = offset_record("g", "t", 5, &offset(9));
        assert_eq!(record.key.as_ref(), b"\0\x01\0\x01g\0\x01t\0\0\0\x05");
        let value = b"\0\x04\0\0\0\0\0\0\0\x09\0\0\0\x03\x04why\0\0\0\0\0\0\0\x4d\0";
        assert_eq!(record.value.as_deref(), Some(&value[..]));
        let old = b"\0\x03\0\0\0\0\0\0\0\x09\0\0\0\x03\0\x03why\0\0\0\0\0\0\0\x4d";
        assert_eq!(decode_offset(old), Ok(Some(offset(9))));
        let by_id = OffsetValue { topic_id: Uuid([7; 16]), ..offset(9) };
        let stored = offset_record("g", "t", 5, &by_id).value.unwrap();
        assert_eq!(stored[..value.len() - 1], value[..value.len() - 1]);
        assert_eq!(stored[value.len() - 1..], [&[1, 0, 16][..], &[7; 16]].concat());
        assert_eq!(decode_offset(&stored), Ok(Some(by_id)));
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
        assert_eq!(decode_key(b"\0\x0b\0\x01g"), Ok(None), "a key of share groups");
        assert_eq!(decode_offset(b"\0\x09"), Ok(None));
    }

    #[test]
    fn offsets_of_a_transaction_take_effect_when_it_is_committed() {
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
        // Committed outside a transaction and later in the log, so this offset wins.
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

mod transactions {
    use std::{sync::Arc, time::Duration};

    use curtail_net::Env;
    use curtail_wire::{ErrorCode, records::EndTxnMarker};

    use super::super::{
        Kind,
        groups::{Committer, Groups},
        records::OffsetValue,
        runtime::{Producer, Shard},
    };
    use crate::{Cluster, ClusterConfig, broker::Broker, log::TxnMarker};

    const GROUP: &str = "hello";
    /// The group's partition, of four.
    const PARTITION: i32 = 2;
    const PRODUCER: Producer = Producer { id: 7, epoch: 0 };
    const TIMEOUT: Duration = Duration::from_secs(20);

    /// Waits for the group's coordinator to load and returns it.
    async fn coordinator(cluster: &Cluster) -> (Arc<Broker>, Arc<Shard<Groups>>) {
        let loaded = async {
            loop {
                let leader = cluster.leader(Kind::Group.topic(), PARTITION);
                let broker = leader.and_then(|(leader, _)| cluster.running(leader));
                let broker = broker.expect("a leader that runs");
                if let Ok(shard) = broker.groups.shard(&broker, GROUP)
                    && shard.run(&broker, |_, _| ()).is_ok()
                {
                    return (broker, shard);
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(TIMEOUT, loaded).await.expect("it loads")
    }

    /// Prepares an offset and waits until it is committed in the log.
    async fn prepare(
        (broker, shard): &(Arc<Broker>, Arc<Shard<Groups>>),
        partition: i32,
        offset: i64,
    ) -> Result<(), ErrorCode> {
        let no_member = Committer { member_id: "", instance_id: None, generation: -1 };
        let value =
            OffsetValue { offset, leader_epoch: 0, commit_timestamp: 1, ..Default::default() };
        let offsets = vec![(("t".to_owned(), partition), value)];
        let taken = shard.run(broker, |groups, cx| {
            let guard = cx.begin_verification(PRODUCER)?;
            groups.prepare(GROUP, no_member, (PRODUCER, guard), offsets, cx)
        })?;
        let taken = taken?.expect("an offset was appended");
        shard.committed(broker, &taken, TIMEOUT).await
    }

    /// Returns committed offsets by partition, and the partitions with pending offsets.
    fn state((broker, shard): &(Arc<Broker>, Arc<Shard<Groups>>)) -> (Vec<(i32, i64)>, Vec<i32>) {
        let state = shard.run(broker, |groups, _| {
            let Some(offsets) = groups.offsets(GROUP) else { return Default::default() };
            let committed = offsets.all().map(|(at, value)| (at.1, value.offset)).collect();
            let pending = (0..3).filter(|p| offsets.is_pending(&("t".to_owned(), *p))).collect();
            (committed, pending)
        });
        state.expect("the coordinator is here")
    }

    async fn end(of: &(Arc<Broker>, Arc<Shard<Groups>>), result: EndTxnMarker) {
        let marker = TxnMarker {
            producer_id: PRODUCER.id,
            producer_epoch: PRODUCER.epoch,
            result,
            coordinator_epoch: 0,
            bumped: false,
        };
        let (broker, shard) = of;
        let taken = shard.run(broker, |groups, cx| groups.write_marker(&marker, cx));
        let taken = taken.expect("the coordinator is here").expect("appended");
        shard.committed(broker, &taken, TIMEOUT).await.expect("committed");
    }

    /// Moves the coordinator to another broker.
    async fn move_on(cluster: &Cluster) -> (Arc<Broker>, Arc<Shard<Groups>>) {
        let topic = Kind::Group.topic();
        let (leader, _) = cluster.leader(topic, PARTITION).expect("a leader");
        let other = cluster.broker_ids().into_iter().find(|id| *id != leader).expect("another");
        cluster.move_leader(topic, PARTITION, other).expect("in sync");
        cluster.settled().await;
        coordinator(cluster).await
    }

    #[tokio::test]
    async fn prepared_offsets_take_effect_with_the_marker_on_any_coordinator() {
        let config = ClusterConfig { brokers: 2, ..ClusterConfig::default() };
        let cluster = Cluster::start(config.clone(), Env::real()).await.expect("it starts");
        let spec = Kind::Group.topic_spec(&config);
        cluster.controller().create_topic(&spec).expect("a new topic");
        cluster.settled().await;
        let first = coordinator(&cluster).await;
        prepare(&first, 0, 5).await.expect("prepared");
        prepare(&first, 1, 6).await.expect("prepared");
        assert_eq!(state(&first), (vec![], vec![0, 1]));

        // The coordinator moves while the transaction is open, and the transaction is committed
        // there.
        let second = move_on(&cluster).await;
        assert_eq!(prepare(&first, 2, 9).await, Err(ErrorCode::NOT_COORDINATOR));
        assert_eq!(state(&second), (vec![], vec![0, 1]));
        end(&second, EndTxnMarker::Commit).await;
        assert_eq!(state(&second), (vec![(0, 5), (1, 6)], vec![]));
        prepare(&second, 0, 50).await.expect("prepared");
        end(&second, EndTxnMarker::Abort).await;

        // A later coordinator loads the same state from the log.
        let third = move_on(&cluster).await;
        assert_eq!(state(&third), (vec![(0, 5), (1, 6)], vec![]));
        cluster.shutdown().await;
    }
}
