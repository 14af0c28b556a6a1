use std::collections::BTreeMap;

use curtail::admin::PartitionDescription;

use super::{Cluster, Setting, Topic};

/// A partition's leader, replicas and replicas in sync.
type Partition<'a> = (Option<i32>, &'a [i32], &'a [i32]);

fn topic(min_in_sync: usize, partitions: &[Partition<'_>]) -> Topic {
    let partition =
        |(index, (leader, replicas, isr)): (i32, &Partition<'_>)| PartitionDescription {
            partition: index,
            leader: *leader,
            leader_epoch: None,
            replicas: replicas.to_vec(),
            isr: isr.to_vec(),
            offline: Vec::new(),
        };
    let partitions = (0..).zip(partitions).map(partition).collect();
    Topic { name: "t".into(), partitions, min_in_sync: Some(min_in_sync) }
}

fn brokers(settings: &[&[(&str, &str, bool)]]) -> BTreeMap<i32, super::Settings> {
    let setting = |(name, value, is_default): &(&str, &str, bool)| {
        ((*name).to_owned(), Setting { value: (*value).to_owned(), is_default: *is_default })
    };
    let of = |settings: &&[(&str, &str, bool)]| settings.iter().map(setting).collect();
    (1..).zip(settings.iter().map(of)).collect()
}

#[test]
fn findings_name_partitions_without_leader_or_replicas() {
    let good: (Option<i32>, &[i32], &[i32]) = (Some(1), &[1, 2], &[1, 2]);
    let second: (Option<i32>, &[i32], &[i32]) = (Some(2), &[2, 1], &[1, 2]);
    for (what, topics, words) in [
        ("all is well", vec![topic(1, &[good, second])], &[][..]),
        ("no leader", vec![topic(1, &[(None, &[1, 2], &[1, 2])])], &["without a leader: t-0"]),
        (
            "one replica is behind",
            vec![topic(1, &[good, (Some(2), &[2, 1], &[2])])],
            &["under-replicated", "t-1"],
        ),
        ("none may be missing", vec![topic(2, &[good])], &["min.insync.replicas", "t"]),
        ("one replica needs itself", vec![topic(1, &[(Some(1), &[1], &[1])])], &[]),
        (
            "one broker leads everything",
            vec![topic(1, &[good, good, good, good])],
            &["unevenly spread: 4 on broker 1, 0 on broker 2"],
        ),
        (
            "leaders are where they should not be",
            vec![topic(
                1,
                &[
                    second,
                    good,
                    (Some(2), &[1, 2], &[1, 2]),
                    (Some(1), &[2, 1], &[1, 2]),
                    (Some(2), &[1, 2], &[1, 2]),
                ],
            )],
            &["3 of 5 partitions", "curtail elect"],
        ),
    ] {
        let cluster = Cluster { brokers: brokers(&[&[], &[]]), topics, unseen: Vec::new() };
        let texts: Vec<String> = cluster.findings().into_iter().map(|f| f.text).collect();
        assert_eq!(texts.is_empty(), words.is_empty(), "{what}: {texts:?}");
        for word in words {
            assert!(texts.iter().any(|text| text.contains(word)), "{what}: {texts:?}");
        }
        assert!(texts.len() <= 1, "{what}: {texts:?}");
    }
}

#[test]
fn unusual_settings_are_findings() {
    let usual = ("num.io.threads", "8", true);
    for (what, settings, words) in [
        ("defaults", &[&[usual][..], &[usual]][..], &[][..]),
        (
            "flushed by hand",
            &[
                &[("log.flush.interval.messages", "1", false)],
                &[("log.flush.interval.messages", "1", false)],
            ],
            &[
                "log.flush.interval.messages=1 on broker 1, log.flush.interval.messages=1 on broker 2",
            ],
        ),
        ("a low default is none of the user's", &[&[("num.io.threads", "2", true)]], &[]),
        (
            "one differs",
            &[&[usual], &[("num.io.threads", "16", false)]],
            &["num.io.threads differs between brokers: 16 on 2; 8 on 1"],
        ),
        (
            "compressed again",
            &[&[("compression.type", "gzip", false)]],
            &["recompresses every batch"],
        ),
        ("left to the producer", &[&[("compression.type", "producer", false)]], &[]),
    ] {
        let cluster = Cluster { brokers: brokers(settings), ..Cluster::default() };
        let texts: Vec<String> = cluster.findings().into_iter().map(|f| f.text).collect();
        assert_eq!(texts.len(), words.len(), "{what}: {texts:?}");
        for word in words {
            assert!(texts.iter().any(|text| text.contains(word)), "{what}: {texts:?}");
        }
    }
}

#[test]
fn parts_that_could_not_be_read_are_findings() {
    let cluster = Cluster { unseen: vec!["topics: not allowed".into()], ..Cluster::default() };
    assert_eq!(cluster.findings()[0].text, "not examined: topics: not allowed");
}
