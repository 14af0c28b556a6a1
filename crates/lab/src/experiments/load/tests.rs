use super::*;

#[test]
fn records_go_round_among_the_slots() {
    let partition = |partition| Slot { producer: 0, partition: Some(partition) };
    let senders = Senders::partitions([4, 7]);
    assert_eq!([0, 1, 2].map(|index| senders.slot(index)), [4, 7, 4].map(partition));
    assert_eq!(senders.count_producers(), 1);
    let senders = Senders::producers(90);
    assert_eq!(senders.count_producers(), 90);
    assert_eq!(senders.slot(91), Slot { producer: 1, partition: None });
}

#[test]
fn the_records_of_a_burst_are_due_with_its_first_one() {
    let senders = Senders { burst: 240, ..Senders::producers(24) };
    assert_eq!([0, 239, 240, 479].map(|index| senders.first_of_burst(index)), [0, 0, 240, 240]);
    assert_eq!(Senders::default().first_of_burst(7), 7);
}

#[test]
fn without_a_limit_everything_is_due_at_once() {
    let start = Instant::now();
    let pacer = Pacer::new(start, f64::INFINITY);
    assert_eq!([0, 1, 1 << 40].map(|index| pacer.due(index)), [start; 3]);
}
