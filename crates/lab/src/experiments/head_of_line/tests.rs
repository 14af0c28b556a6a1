use super::*;

#[test]
fn one_record_in_ten_is_slow_and_all_quick_partitions_have_their_turn() {
    let places = Places { quick: vec![3, 5, 8], slow: 2 };
    let shared = places.senders(SLOW_ONE_OF, false).slots;
    let of = |slots: &[Slot], partition| {
        slots.iter().filter(|slot| slot.partition == Some(partition)).count()
    };
    assert_eq!((shared.len(), of(&shared, 2)), (30, 3));
    assert_eq!([3, 5, 8].map(|quick| of(&shared, quick)), [9; 3]);
    assert!(shared.iter().all(|slot| slot.producer == 0));
    let apart = places.senders(SLOW_ONE_OF, true).slots;
    assert!(apart.iter().all(|slot| (slot.producer == 1) == (slot.partition == Some(2))));
}
