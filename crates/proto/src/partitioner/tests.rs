use std::time::Duration;

use super::*;
use crate::path::{Flight, Gate};

/// Computed with `org.apache.kafka.common.utils.Utils.murmur2` of kafka-clients 4.3.0.
#[test]
fn murmur2_is_javas() {
    for (key, expected) in [
        ("21", -973_932_308_i32),
        ("foobar", -790_332_482),
        ("a-little-bit-long-string", -985_981_536),
        ("a-little-bit-longer-string", -1_486_304_829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
        ("abc", 479_470_107),
    ] {
        assert_eq!(murmur2(key.as_bytes()) as i32, expected, "{key}");
    }
}

#[test]
fn a_key_always_lands_in_range() {
    for n in 0..200u32 {
        assert!((0..7).contains(&partition_for_key(&n.to_be_bytes(), 7)));
    }
}

/// A fixed sequence of random numbers.
fn draws() -> impl FnMut() -> u64 {
    let mut draws = 0x9e37_79b9_7f4a_7c15_u64;
    move || {
        draws ^= draws << 13;
        draws ^= draws >> 7;
        draws ^= draws << 17;
        draws
    }
}

fn to(partition: u32) -> impl FnOnce(bool) -> Next {
    move |_| Next { partition, probe: false }
}

#[test]
fn bytes_are_uniform_for_any_record_sizes() {
    let mut draw = draws();
    let sticky = Sticky::new(0, 1000);
    let mut bytes = [0u64; 3];
    for n in 0..300_000u32 {
        let (partition, size) = (sticky.current(), 10 + n % 400);
        bytes[partition as usize] += u64::from(size);
        sticky
            .sent(partition, size, true, |_| Next { partition: (draw() % 3) as u32, probe: false });
    }
    let mean = bytes.iter().sum::<u64>() as f64 / 3.0;
    for share in bytes {
        assert!((share as f64 / mean - 1.0).abs() < 0.03, "{bytes:?}");
    }
}

#[test]
fn the_choice_moves_on_at_the_end_of_a_batch_or_after_twice_the_stickiness() {
    let sticky = Sticky::new(0, 100);
    sticky.sent(0, 150, false, to(1));
    assert_eq!(sticky.current(), 0);
    sticky.sent(0, 1, true, to(1));
    assert_eq!(sticky.current(), 1);
    sticky.sent(1, 200, false, to(0));
    assert_eq!(sticky.current(), 0);
}

#[test]
fn a_partition_is_left_at_once_and_only_while_it_is_the_choice() {
    let sticky = Sticky::new(0, 100);
    sticky.leave(0, to(2));
    assert_eq!(sticky.current(), 2);
    sticky.leave(0, to(1));
    assert_eq!(sticky.current(), 2);
}

#[test]
fn a_probe_is_one_record_and_due_once_per_interval() {
    let sticky = Sticky::new(0, 1000);
    let mut probes = 0;
    for n in 0..10 * PROBE_EVERY {
        let partition = sticky.current();
        probes += u64::from(partition == 1);
        sticky.sent(partition, 100, true, |probe| Next { partition: u32::from(probe), probe });
        assert!(partition == 0 || sticky.current() == 0, "record {n} is the second of a probe");
    }
    assert!((9..=10).contains(&probes), "{probes}");
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const ADAPTIVE: Rule = Rule::Adaptive { availability_timeout: None };

fn broker(partitions: u32, wait: u64) -> Candidate {
    Candidate { partitions, wait: ms(wait), ..Candidate::default() }
}

/// How often each candidate is chosen.
fn shares(candidates: &[Candidate], rule: Rule) -> Vec<u32> {
    let mut draw = draws();
    let mut shares = vec![0; candidates.len()];
    for _ in 0..6000 {
        if let Some(chosen) = choose(candidates, rule, false, draw()) {
            shares[chosen.candidate] += 1;
            assert!(chosen.nth < candidates[chosen.candidate].partitions);
        }
    }
    shares
}

#[test]
fn brokers_that_respond_about_as_fast_share_by_partitions() {
    let shares = shares(&[broker(1, 3), broker(2, 4), broker(0, 1)], ADAPTIVE);
    assert_eq!(shares[2], 0);
    assert!((shares[1] as f64 / shares[0] as f64 - 2.0).abs() < 0.2, "{shares:?}");
}

#[test]
fn a_slow_broker_gets_no_records_until_the_others_are_as_slow() {
    assert_eq!(shares(&[broker(1, 1), broker(1, 20), broker(1, 1)], ADAPTIVE)[1], 0);
    assert!(shares(&[broker(1, 15), broker(1, 20), broker(1, 15)], ADAPTIVE)[1] > 1500);
}

#[test]
fn the_uniform_rule_ignores_waits() {
    assert!(shares(&[broker(1, 1), broker(1, 20), broker(1, 1)], Rule::Uniform)[1] > 1500);
}

#[test]
fn a_broker_with_an_overdue_response_is_unavailable_unless_all_are() {
    let rule = Rule::Adaptive { availability_timeout: Some(ms(5)) };
    let late = Candidate { unanswered: Some(ms(6)), ..broker(1, 6) };
    assert_eq!(shares(&[broker(1, 6), late], rule)[1], 0);
    assert!(shares(&[broker(1, 6), late], ADAPTIVE)[1] > 2000);
    assert!(shares(&[late, late], rule)[1] > 2000);
}

#[test]
fn a_probe_goes_to_a_slow_broker_without_records_in_flight() {
    let slow = broker(1, 20);
    let chosen = choose(&[broker(2, 1), slow], ADAPTIVE, true, 5).expect("a partition");
    assert_eq!((chosen.candidate, chosen.probe), (1, true));
    let busy = Candidate { busy: true, ..slow };
    let chosen = choose(&[broker(2, 1), busy], ADAPTIVE, true, 5).expect("a partition");
    assert_eq!((chosen.candidate, chosen.probe), (0, false));
    assert_eq!(choose(&[broker(0, 1)], ADAPTIVE, true, 5), None);
}

/// Three brokers with a partition each, in virtual time. Each responds after a fixed time, and its last response is
/// what the client knows of it.
struct World {
    now: Duration,
    gates: [Gate; 3],
    usual: [Option<Duration>; 3],
    /// Responses in flight: arrival time, broker, and when the record was written.
    under_way: Vec<(Duration, usize, Duration)>,
    records: [u64; 3],
}

impl World {
    fn send(&mut self, sticky: &Sticky, times: &[Duration; 3], draw: &mut impl FnMut() -> u64) {
        self.now += Duration::from_micros(488);
        let arrived: Vec<_> = self.under_way.extract_if(.., |(at, ..)| *at <= self.now).collect();
        for (at, broker, written) in arrived {
            self.usual[broker] = Some(at - written);
        }
        let partition = sticky.current() as usize;
        self.records[partition] += 1;
        self.under_way.push((self.now + times[partition], partition, self.now));
        for (broker, gate) in self.gates.iter().enumerate() {
            let its = self.under_way.iter().filter(|(_, b, _)| *b == broker);
            let oldest = its.map(|(.., written)| *written).min();
            gate.set_flight(&Flight { held: 512, oldest, ..Flight::default() });
        }
        let candidates: Vec<Candidate> = (0..3)
            .map(|broker| Candidate {
                partitions: 1,
                wait: self.gates[broker].expected_wait(self.usual[broker], self.now),
                unanswered: self.gates[broker].unanswered(self.now),
                busy: self.gates[broker].is_busy(),
            })
            .collect();
        sticky.sent(partition as u32, 512, true, |probe| {
            let chosen = choose(&candidates, ADAPTIVE, probe, draw()).expect("a partition");
            Next { partition: chosen.candidate as u32, probe: chosen.probe }
        });
    }
}

#[test]
fn a_broker_20_ms_slower_is_measured_only_and_gets_its_share_back_when_it_recovers() {
    let (fast, slow) = (Duration::from_micros(300), ms(20));
    let mut draw = draws();
    let sticky = Sticky::new(0, 16_384);
    let mut world = World {
        now: Duration::ZERO,
        gates: std::array::from_fn(|_| Gate::new(None)),
        usual: [None; 3],
        under_way: Vec::new(),
        records: [0; 3],
    };
    for _ in 0..122_880 {
        world.send(&sticky, &[fast, slow, fast], &mut draw);
    }
    let [a, b, c] = std::mem::take(&mut world.records);
    assert!(b * 200 < a + b + c, "the slow broker got {b} of {}", a + b + c);
    assert!(b >= 40, "its measurement is kept alive: {b}");
    assert!((a as f64 / c as f64 - 1.0).abs() < 0.1, "{a} {c}");

    for _ in 0..122_880 {
        world.send(&sticky, &[fast, fast, fast], &mut draw);
    }
    let [a, b, c] = world.records;
    assert!(b * 10 > 3 * (a + b + c), "recovered, it got {b} of {}", a + b + c);
}

#[test]
fn a_record_that_would_use_up_the_choice_ends_it() {
    let sticky = Sticky::new(1, 1000);
    assert!(!sticky.ends_before(1, 2000), "a choice that has no record yet takes any");
    sticky.sent(1, 700, false, to(2));
    assert!(!sticky.ends_before(1, 299));
    assert!(sticky.ends_before(1, 300));
    sticky.end(1, 300, to(2));
    assert_eq!(sticky.current(), 2);
    assert!(sticky.ends_before(1, 300), "another sender has ended it");
    sticky.end(1, 300, to(3));
    assert_eq!(sticky.current(), 2, "it ends once");
    sticky.sent(2, 1000, true, |_| Next { partition: 4, probe: true });
    assert!(!sticky.ends_before(4, 1000), "a probe takes its record");
}
