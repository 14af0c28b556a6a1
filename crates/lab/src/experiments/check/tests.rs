use super::*;
use crate::experiments::load::Acknowledged;

fn fate(sent: u64, partition: i32, offset: i64, at: u64) -> Fate {
    let acknowledged = Acknowledged { partition, offset: Some(offset), written: Some(sent), at };
    Fate { sent, acknowledged: Some(acknowledged) }
}

fn found(partition: i32, records: &[(i64, u64)]) -> Found {
    Found::from([(partition, records.to_vec())])
}

#[test]
fn an_intact_topic_has_no_findings() {
    let fates = [fate(0, 0, 0, 5), fate(1, 0, 1, 6), fate(2, 0, 2, 6)];
    let found = found(0, &[(0, 0), (1, 1), (2, 2)]);
    for order in [Order::Sent, Order::Acknowledged] {
        assert_eq!(compare(&fates, &found, order), Findings::default());
    }
}

#[test]
fn a_record_at_another_place_than_acknowledged_is_lost() {
    let fates = [fate(0, 0, 0, 5), fate(1, 0, 1, 6), fate(2, 1, 0, 6)];
    let found = found(0, &[(0, 0), (1, 2)]);
    assert_eq!(compare(&fates, &found, Order::Sent).lost, 2);
}

#[test]
fn a_second_copy_counts_as_duplicated_only() {
    let fates = [fate(0, 0, 0, 5), fate(1, 0, 1, 6)];
    let found = found(0, &[(0, 0), (1, 1), (2, 0)]);
    for order in [Order::Sent, Order::Acknowledged] {
        let findings = compare(&fates, &found, order);
        assert_eq!(findings, Findings { duplicated: 1, ..Findings::default() });
    }
}

#[test]
fn a_failed_record_may_be_in_the_topic_or_not() {
    let fates = [fate(0, 0, 0, 5), Fate { sent: 1, acknowledged: None }];
    for records in [&[(0, 0)][..], &[(0, 0), (1, 1)]] {
        assert_eq!(compare(&fates, &found(0, records), Order::Sent), Findings::default());
    }
}

#[test]
fn sending_order_is_stricter_than_that_of_acknowledgements() {
    // The second record overtook the first one while both were in flight.
    let fates = [fate(0, 0, 1, 5), fate(1, 0, 0, 6)];
    let found = found(0, &[(0, 1), (1, 0)]);
    assert_eq!(compare(&fates, &found, Order::Sent).reordered, 1);
    assert_eq!(compare(&fates, &found, Order::Acknowledged).reordered, 0);
}

#[test]
fn order_is_checked_per_producer() {
    let fates = [fate(0, 0, 1, 5), fate(1, 0, 0, 6), fate(2, 0, 3, 7), fate(3, 0, 2, 8)];
    let between = found(0, &[(0, 1), (1, 0), (2, 3), (3, 2)]);
    assert_eq!(compare(&fates, &between, Order::SentInTurn(2)).reordered, 0);
    assert_eq!(compare(&fates, &between, Order::Sent).reordered, 2);
    let within = [fate(0, 0, 1, 5), fate(1, 0, 2, 6), fate(2, 0, 0, 7)];
    let found = found(0, &[(0, 2), (1, 0), (2, 1)]);
    assert_eq!(compare(&within, &found, Order::SentInTurn(2)).reordered, 1);
}

#[test]
fn a_record_before_one_acknowledged_earlier_is_out_of_order() {
    let fates = [fate(0, 0, 1, 5), fate(6, 0, 0, 9)];
    let found = found(0, &[(0, 1), (1, 0)]);
    assert_eq!(compare(&fates, &found, Order::Acknowledged).reordered, 1);
}
