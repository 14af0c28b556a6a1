use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const TOTAL: usize = 1000;

fn of_brokers(percent: u32, brokers: i32) -> Budget<u32> {
    let mut budget = Budget::new(TOTAL, percent);
    for broker in 1..=brokers {
        budget.open(broker);
    }
    budget
}

/// Every broker admits records.
fn open(_: i32) -> bool {
    true
}

/// Takes for `broker` until it is refused.
fn fill(budget: &mut Budget<u32>, broker: i32, need: usize) -> usize {
    while budget.try_take(broker, need, open) {}
    budget.held(broker)
}

#[test]
fn the_only_broker_may_hold_everything() {
    assert_eq!(fill(&mut of_brokers(100, 1), 1, 10), TOTAL);
}

/// Records that leave the account for unknown topics may have to wait for any broker that has room.
#[test]
fn records_waiting_for_a_topic_do_not_use_up_the_share_of_records_waiting_for_a_broker() {
    let mut budget = of_brokers(100, 2);
    assert_eq!(fill(&mut budget, Budget::<u32>::WAITING_ROOM, 10), 500);
    let held = fill(&mut budget, 1, 10);
    budget.wait(Budget::<u32>::NOWHERE, 300, 7);
    assert_eq!(budget.grant(open), None, "{budget:?}");
    budget.give_back(1, held);
    let granted = Granted { broker: Budget::<u32>::NOWHERE, bytes: 300, who: 7 };
    assert_eq!(budget.grant(open), Some(granted), "{budget:?}");
}

/// An application that does not take outcomes leaves the free memory to all others.
#[test]
fn outcomes_not_taken_do_not_use_up_the_share_of_records_waiting_for_a_broker() {
    const NOWHERE: i32 = Budget::<u32>::NOWHERE;
    for (account, is_granted) in [(Budget::<u32>::ENDED, true), (NOWHERE, false)] {
        let mut budget = of_brokers(100, 2);
        assert!(budget.try_take(1, 150, open));
        budget.transfer(1, account, 150);
        for broker in [1, 2] {
            assert!(budget.try_take(broker, 325, open));
        }
        assert_eq!(budget.free(), 200);
        budget.wait(NOWHERE, 150, 7);
        assert_eq!(budget.grant(open).is_some(), is_granted, "{budget:?}");
    }
}

#[test]
fn one_broker_holds_half_and_two_a_third_each() {
    let mut budget = of_brokers(100, 3);
    assert_eq!(fill(&mut budget, 1, 10), 500);
    budget = of_brokers(100, 3);
    for _ in 0..TOTAL {
        let _ = budget.try_take(1, 1, open) | budget.try_take(2, 1, open);
    }
    assert!(budget.held(1).abs_diff(333) <= 1 && budget.held(2).abs_diff(333) <= 1, "{budget:?}");
    assert!(budget.try_take(3, 300, open), "the third finds room");
}

#[test]
fn without_a_bound_one_broker_may_hold_everything() {
    assert_eq!(fill(&mut of_brokers(0, 3), 1, 10), TOTAL);
}

#[test]
fn a_waiter_blocked_by_its_own_broker_blocks_no_other_broker() {
    let mut budget = of_brokers(100, 2);
    fill(&mut budget, 1, 10);
    budget.wait(1, 10, 7);
    assert_eq!(budget.grant(open), None);
    assert!(!budget.try_take(1, 1, open), "no waiter overtakes in the same queue");
    assert!(budget.try_take(2, 10, open));
    budget.give_back(2, 10);
    assert_eq!(budget.grant(open), None);
    for _ in 0..2 {
        budget.give_back(1, 10);
    }
    assert_eq!(budget.grant(open), Some(Granted { broker: 1, bytes: 10, who: 7 }));
}

#[test]
fn a_waiter_whose_broker_has_a_full_window_blocks_nobody() {
    let mut budget = of_brokers(100, 2);
    budget.wait(1, 10, 7);
    budget.wait(2, 10, 8);
    let only_2 = |broker| broker == 2;
    assert_eq!(budget.grant(only_2), Some(Granted { broker: 2, bytes: 10, who: 8 }));
    assert_eq!(budget.grant(only_2), None);
    assert!(budget.try_take(2, 10, only_2));
    assert!(budget.try_take(1, 10, only_2), "a batch that grows: its records have room");
    assert!(!budget.try_take(1, 10, open), "the waiter comes first");
    assert_eq!(budget.grant(open), Some(Granted { broker: 1, bytes: 10, who: 7 }));
}

/// A window may open by time alone, before its waiter looks.
#[test]
fn a_waiter_that_could_be_granted_denies_others_nothing_but_its_bytes() {
    let mut budget = of_brokers(100, 2);
    budget.wait(1, 10, 7);
    assert!(budget.try_take(2, 10, open));
    assert!(!budget.try_take(2, TOTAL - 15, open), "its bytes are not for others");
    assert_eq!(budget.grant(open), Some(Granted { broker: 1, bytes: 10, who: 7 }));
}

#[test]
fn a_large_record_is_not_starved_by_small_ones() {
    let mut budget = of_brokers(100, 3);
    fill(&mut budget, 1, 10);
    budget.wait(2, 600, 1);
    assert!(!budget.try_take(3, 10, open), "the large one is first");
    for _ in 0..10 {
        budget.give_back(1, 10);
    }
    assert_eq!(budget.grant(open), Some(Granted { broker: 2, bytes: 600, who: 1 }));
}

#[test]
fn a_waiter_that_has_left_blocks_no_other() {
    let mut budget = of_brokers(100, 3);
    fill(&mut budget, 1, 10);
    let ticket = budget.wait(2, 600, 1);
    assert!(!budget.try_take(3, 10, open));
    budget.leave(ticket);
    assert!(budget.try_take(3, 10, open));
    budget.leave(ticket);
    assert!(budget.try_take(3, 10, open), "a second leave has no effect");
}

#[test]
fn transferred_bytes_count_for_the_other_broker() {
    let mut budget = of_brokers(100, 2);
    fill(&mut budget, 1, 10);
    budget.transfer(1, 2, 500);
    assert_eq!((budget.held(1), budget.held(2), budget.free()), (0, 500, 500));
}

#[derive(Clone, Debug)]
enum Step {
    Take { broker: i32, need: usize },
    GiveBack { nth: usize },
    Move { nth: usize, to: i32 },
    Leave { nth: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let need = prop_oneof![4 => 1..60usize, 1 => 300..=TOTAL];
    let step = prop_oneof![
        3 => (1..5, need).prop_map(|(broker, need)| Step::Take { broker, need }),
        2 => (0..64usize).prop_map(|nth| Step::GiveBack { nth }),
        1 => (0..64usize, 1..5).prop_map(|(nth, to)| Step::Move { nth, to }),
        1 => (0..64usize).prop_map(|nth| Step::Leave { nth }),
    ];
    proptest::collection::vec(step, 1..200)
}

proptest! {
    /// For any sequence of takes, returns and moves: bytes are neither created nor lost. A broker exceeds its share
    /// only by transferred bytes. No waiter waits without a reason, and each gets its turn in the end.
    #[test]
    fn the_books_balance(steps in steps()) {
        let mut budget = of_brokers(100, 4);
        let mut out: Vec<(i32, usize)> = Vec::new();
        let mut waiting: BTreeMap<u32, (i32, usize)> = BTreeMap::new();
        let mut tickets: Vec<Ticket> = Vec::new();
        for step in steps {
            match step {
                Step::Take { broker, need } => {
                    let before = budget.held(broker);
                    if budget.try_take(broker, need, open) {
                        prop_assert!(before == 0 || budget.held(broker) <= budget.free());
                        out.push((broker, need));
                    } else {
                        // Its number among all waiters so far.
                        let who = tickets.len() as u32;
                        tickets.push(budget.wait(broker, need, who));
                        waiting.insert(who, (broker, need));
                    }
                }
                Step::GiveBack { nth } if !out.is_empty() => {
                    let (broker, bytes) = out.swap_remove(nth % out.len());
                    budget.give_back(broker, bytes);
                }
                Step::Move { nth, to } if !out.is_empty() => {
                    let nth = nth % out.len();
                    budget.transfer(out[nth].0, to, out[nth].1);
                    out[nth].0 = to;
                }
                Step::Leave { nth } if !tickets.is_empty() => {
                    // Its turn may have come already.
                    let who = nth % tickets.len();
                    budget.leave(tickets[who]);
                    waiting.remove(&(who as u32));
                }
                _ => {}
            }
            while let Some(granted) = budget.grant(open) {
                prop_assert_eq!(waiting.remove(&granted.who), Some((granted.broker, granted.bytes)));
                let first = waiting.iter().find(|(_, (broker, _))| *broker == granted.broker);
                prop_assert!(first.is_none_or(|(who, _)| *who > granted.who), "in order");
                out.push((granted.broker, granted.bytes));
            }
            let held: usize = out.iter().map(|(_, bytes)| bytes).sum();
            prop_assert_eq!(held + budget.free(), TOTAL);
            for broker in 1..5 {
                let held: usize = out.iter().filter(|(b, _)| *b == broker).map(|(_, n)| n).sum();
                prop_assert_eq!(held, budget.held(broker));
            }
        }
        while let Some((broker, bytes)) = out.pop() {
            budget.give_back(broker, bytes);
            while let Some(granted) = budget.grant(open) {
                waiting.remove(&granted.who);
                out.push((granted.broker, granted.bytes));
            }
        }
        prop_assert!(waiting.is_empty(), "{waiting:?} wait indefinitely");
        prop_assert_eq!(budget.free(), TOTAL);
    }
}
