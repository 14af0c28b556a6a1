use super::*;
use crate::experiments::{
    Setting,
    check::{Order, read_back},
    phases::Observe,
    testbed::Needs,
};

fn load(bootstrap: String) -> Load {
    Load {
        config: ProducerConfig::new(bootstrap),
        topic: "t".into(),
        records: 40,
        warmup: 0,
        rate: 4000.0,
        size: 100,
        keys: Keys::Cycle(7),
        placement: Placement::Producer,
        seed: 1,
        warm_up: WarmUp::Records,
        earlier: false,
        awaits: Awaits::default(),
    }
}

#[test]
fn a_warm_up_has_five_seconds_of_records_but_at_most_half_as_many_as_the_load() {
    let records = |records, rate, warm_up| {
        Load { records, rate, warm_up, ..load("127.0.0.1:1".into()) }.warm_up_records()
    };
    assert_eq!(records(1000, 10.0, WarmUp::Records), 50);
    assert_eq!(records(80, 10.0, WarmUp::Records), 40);
    assert_eq!(records(80, f64::INFINITY, WarmUp::Records), 40);
    assert_eq!(records(1000, 10.0, WarmUp::Connections), 0);
    assert_eq!(records(1000, 10.0, WarmUp::Nothing), 0);
}

#[test]
fn records_of_the_warm_up_are_written_and_not_counted() {
    let setting = Setting::new(ClusterKind::Embedded);
    let testbed = Testbed::start(&setting, &Needs { brokers: 1, ..Needs::default() }).unwrap();
    testbed.create_topic("t", 3, 1).unwrap();
    let load = load(testbed.bootstrap());
    let (sent, ()) = load.run_observed(&testbed, Observe::PhasesWithReader, |_| Ok(())).unwrap();
    let mut sample = sent.sample();
    read_back(&sent, Order::Sent, &mut sample).unwrap();
    assert_eq!((sample.records, sample.errors, sample.lost, sample.duplicated), (40, 0, 0, 0));
    assert_eq!(sample.reordered, 0);
    assert_eq!(sample.phases.get(crate::phases::PhaseName::Fetch).count(), 40);
    assert_eq!(sample.brokers.values().map(|(records, _)| records).sum::<u64>(), 40);
    let mut ends = BTreeMap::new();
    for written in sent.fates.iter().filter_map(|fate| fate.acknowledged) {
        ends.insert(written.partition, written.offset.unwrap() + 1);
    }
    assert_eq!(ends.values().sum::<i64>(), 60);
}

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
