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
