//! A member's metrics of commits, heartbeats and rebalances.

use curtail::metrics::GroupMetrics;

use super::*;

cases! { embedded as classic, Classic: commits_and_rebalances_are_measured }
cases! { embedded as by_coordinator, Consumer: commits_and_rebalances_are_measured }

fn of_group(consumer: &Consumer) -> GroupMetrics {
    consumer.metrics().group.expect("it has a group.id")
}

async fn commits_and_rebalances_are_measured(backend: &Bench<'_>, name: &str) {
    backend.create_topic(name, 2, 1).await;
    produce(&common::producer(backend, &[]), name, 2, 0..3).await;
    let by_hand = [("enable.auto.commit", "false")];
    let mut one = member(backend, name, &by_hand);
    poll_until(&mut [&mut one], |_, records| records.len() == 6).await;
    one.commit().await.unwrap();
    one.commit_offsets([(at(name, 0), OffsetAndMetadata::new(2))]).await.unwrap();
    let before = one.metrics();
    let alone = of_group(&one);
    assert!(alone.commit_latency.count() >= 2 && alone.commit_latency.p50() > 0, "{alone:?}");
    assert!(alone.rebalance_latency.count() >= 1 && alone.since_rebalance.is_some(), "{alone:?}");
    assert!(alone.partition_assigned_latency.count() >= 1, "{alone:?}");
    assert_eq!(alone.partition_revoked_latency.count(), 0, "{alone:?}");
    let joins = alone.join_time.count();
    assert_eq!(joins > 0, backend.protocol == GroupProtocol::Classic, "{alone:?}");
    assert_eq!(joins > 0, alone.sync_time.count() > 0, "{alone:?}");

    let mut two = member(backend, name, &by_hand);
    settle(&mut [&mut one, &mut two], &[1, 1]).await;
    poll_until(&mut [&mut one, &mut two], |consumers, _| {
        let now = of_group(consumers[0]);
        now.rebalance_latency.count() > alone.rebalance_latency.count()
            && now.heartbeat_latency.count() > alone.heartbeat_latency.count() + 1
    })
    .await;
    let metrics = one.metrics();
    let later = metrics.since(&before).group.expect("it has a group.id");
    assert_eq!((later.commit_latency.count(), later.failed_rebalance_total), (0, 0), "{later:?}");
    assert!(later.partition_revoked_latency.count() > 0, "{later:?}");
    let named: BTreeMap<String, f64> = metrics
        .named()
        .into_iter()
        .filter(|metric| metric.group == "consumer-coordinator-metrics")
        .map(|metric| (metric.name, metric.value))
        .collect();
    assert!(named["commit-total"] >= 2.0 && named["commit-latency-avg"] > 0.0, "{named:?}");
    assert!(named["heartbeat-response-time-max"] > 0.0, "{named:?}");
    assert!(named["rebalance-total"] >= 2.0 && named["rebalance-latency-max"] > 0.0, "{named:?}");
    assert!(named.contains_key("last-heartbeat-seconds-ago"), "{named:?}");
    assert_eq!(named["assigned-partitions"], 1.0);
    two.close().await;
    one.close().await;
    let by_itself = Consumer::new(ConsumerConfig::new(backend.bootstrap())).unwrap();
    assert!(by_itself.metrics().group.is_none());
}
