//! Sequences of operations, see [`model`].

use proptest::prelude::*;

use self::model::Bench;
use super::Buffered;

mod model;

/// Names for [`model`], which the fuzz target `fetcher` includes with other names.
mod names {
    pub(super) use crate::{
        TopicPartition,
        backoff::Backoff,
        fetcher::{
            Answer, Answered, Buffered, Event, Failure, Fetch, Fetcher, Interest, LookUp, Need,
            Purpose, Room, Settings, Share, Transmit, Wake, Wanted,
        },
        path::Suspicion,
        position::{FetchFrom, Reset, Version, Versions},
    };
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn every_partition_is_read_within_its_credit(
        buffered in prop_oneof![
            4 => Just(Buffered::Credit),
            1 => Just(Buffered::Omit),
            1 => Just(Buffered::SkipBroker),
            1 => Just(Buffered::SkipAll),
        ],
        operations in proptest::collection::vec((0..model::OPERATIONS, any::<u8>()), 0..120),
    ) {
        let mut bench = Bench::new(buffered);
        for (operation, argument) in operations {
            bench.operate(operation, argument);
        }
        bench.finish();
    }
}
