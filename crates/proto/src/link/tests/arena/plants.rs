//! Bugs planted in the machines, one for each rule that the arena must enforce.

use super::{
    calm::{cold_broker, even_pace, slow_broker, unthrottled},
    *,
};
use crate::plant::{Plant, choose};

/// Number of seeds within which a planted bug must be found.
const SEEDS: u64 = 200;

/// A world with every fault.
fn mixed(seed: u64) {
    let mut world = World::new(Plan::mixed(seed));
    world.run(Length::Until(3000 * MS));
    world.finish();
}

/// Runs a world with a plant, and returns the message of the assertion that failed.
fn failure(plant: Plant, run: impl FnOnce()) -> Option<String> {
    choose(Some(plant));
    let result = catch_unwind(AssertUnwindSafe(run));
    choose(None);
    let panic = result.err()?;
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    Some(text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default())
}

/// Runs worlds until an assertion fails with one of the `expected` texts: first the seed that is likely to find the bug,
/// then all of them. Prints a seed other than the likely one, so that it can be written down.
fn must_be_caught(plant: Plant, run: fn(u64), likely: u64, expected: &[&str]) {
    let mut seen = BTreeSet::new();
    for seed in std::iter::once(likely).chain(0..SEEDS) {
        let Some(message) = failure(plant, || run(seed)) else { continue };
        if expected.iter().any(|text| message.contains(text)) {
            if seed != likely {
                println!("{plant:?} is found by seed {seed}, no longer by {likely}");
            }
            return;
        }
        seen.insert(message);
    }
    panic!("{plant:?} was not caught as {expected:?} in {SEEDS} seeds; seen: {seen:?}");
}

/// One test for each plant, so that they run in parallel.
macro_rules! caught {
    ($($test:ident: $plant:ident in $run:ident at $seed:literal as $expected:expr;)*) => {
        $(
            #[test]
            fn $test() {
                must_be_caught(Plant::$plant, $run, $seed, &$expected);
            }
        )*

        #[test]
        fn every_plant_has_a_test() {
            let tested = [$(Plant::$plant),*];
            let missing: Vec<_> =
                Plant::OF_ARENA.into_iter().filter(|plant| !tested.contains(plant)).collect();
            assert_eq!(missing, []);
        }
    };
}

caught! {
    kept_tickets_are_caught: TicketKept in mixed at 0 as ["has two seats"];
    due_entries_that_stay_are_caught: DueEntryKept in mixed at 2 as ["a timer fires without an end"];
    timers_of_blocked_sockets_are_caught: TimerWhileBlocked in mixed at 0
        as ["a timer fires without an end"];
    forgotten_ends_of_throttles_are_caught: NoTimerForThrottle in mixed at 0
        as ["nothing ends the wait"];
    bytes_that_are_not_released_are_caught: HeldNotReleased in mixed at 0 as ["bytes in flight"];
    gaps_of_idle_brokers_are_caught: EveryGapCounts in even_pace at 0
        as ["records wait for an idle broker"];
    round_trips_that_are_not_measured_are_caught: RoundTripNotMeasured in cold_broker at 0
        as ["records wait behind others"];
    requests_behind_late_ones_are_caught: LateByLastResponses in slow_broker at 0
        as ["a request behind a response of a slow broker"];
    windows_that_are_not_kept_are_caught: WindowNotKept in unthrottled at 0
        as ["bytes fill the window"];
}
