use super::{ClockOffset, Parts, Passage, Sample};

fn parts(produce: u64, request: u64, catch_up: u64, fetch: u64) -> Parts {
    Parts { produce, request, catch_up, fetch }
}

/// Due at 10, handed to the socket at 20, acknowledged at 50, read at 90.
const WAY: Passage = Passage {
    due: 10,
    written: 20,
    acknowledged: 50,
    drained: 30,
    behind: false,
    fetched: 85,
    read: 90,
};

#[test]
fn a_latency_is_split_into_phases() {
    for (what, way, expected) in [
        ("the consumer waited at the end", WAY, parts(10, 30, 5, 35)),
        ("it was busy until 70", Passage { drained: 70, ..WAY }, parts(10, 30, 25, 15)),
        ("it had not read what was before", Passage { behind: true, ..WAY }, parts(10, 30, 40, 0)),
        (
            "it arrived while others were processed",
            Passage { drained: 20, fetched: 40, ..WAY },
            parts(10, 30, 40, 0),
        ),
        (
            "it was read before the acknowledgement",
            Passage { acknowledged: 95, ..WAY },
            parts(10, 70, 0, 0),
        ),
        (
            "the batch was in flight when the record was due",
            Passage { written: 5, ..WAY },
            parts(0, 40, 5, 35),
        ),
    ] {
        let taken = way.parts();
        assert_eq!(taken, expected, "{what}");
        let sum = taken.produce + taken.request + taken.catch_up + taken.fetch;
        assert_eq!(sum, way.whole(), "{what}");
    }
}

#[test]
fn the_slowest_hundredth_is_split_into_phases() {
    let mut passages = vec![WAY; 200];
    for slow in &mut passages[7..9] {
        *slow = Passage { read: 1090, fetched: 1085, ..WAY };
    }
    let mut sample = Sample::of(&passages);
    assert_eq!(sample.slowest, [parts(10, 30, 5, 1035)]);
    assert_eq!(Sample::of(&[]).slowest, [Parts::default()]);
    sample.join(Sample::of(&[WAY]));
    assert_eq!((sample.p99_us.len(), sample.slowest.len(), sample.end_to_end.count()), (2, 2, 201));
}

#[test]
fn clock_bounds_are_the_intersection_over_all_records() {
    let wide = ClockOffset::of(1_120, 1_000.0, 1_050.0);
    assert_eq!(wide, ClockOffset { at_least_ms: 70.0, at_most_ms: 121.0 });
    let narrow = ClockOffset::of(2_100, 2_000.0, 2_002.0);
    assert_eq!(wide.and(narrow), ClockOffset { at_least_ms: 98.0, at_most_ms: 101.0 });
    let stepped = ClockOffset::of(3_500, 3_000.0, 3_001.0);
    assert_eq!(narrow.and(stepped), stepped, "the clock was set");
}
