//! Operation sequences on a fetcher, with a consumer and a broker that follows KIP-227.
//!
//! Each connection has one request in flight, no fetch exceeds the credit, and work that is in no request has a time or
//! a threshold. In the end every partition is read to its end.

use curtail_proto::fetcher::Buffered;

use self::model::Bench;
use crate::{Input, Target};

#[path = "../../../crates/proto/src/fetcher/tests/operations/model.rs"]
mod model;

/// Names for [`model`], which the property test of the machine shares.
mod names {
    pub(super) use curtail_proto::{
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

pub(super) const TARGET: Target = Target { name: "fetcher", run, seeds, cases: 6_000 };

const POLICIES: [Buffered; 4] =
    [Buffered::Credit, Buffered::Omit, Buffered::SkipBroker, Buffered::SkipAll];

fn run(input: &[u8]) {
    let mut input = Input::new(input);
    let mut bench = Bench::new(*input.pick(&POLICIES));
    while !input.is_empty() {
        bench.operate(input.byte(), input.byte());
    }
    bench.finish();
}

fn seeds() -> Vec<Vec<u8>> {
    // Two partitions, looked up and read, the first with more than the share holds.
    let started = [9, 0, 9, 1, 0, 0, 5, 0xf0, 5, 0xf0, 5, 0x11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut seeds = Vec::new();
    for policy in 0..POLICIES.len() as u8 {
        for trouble in [
            &[5, 0x11, 4, 0, 5, 1, 3, 0, 7, 0, 0, 0][..],
            &[12, 0, 0, 0, 15, 61, 0, 0, 12, 0, 4, 0, 0, 0],
            &[11, 1, 14, 1, 0, 0, 11, 17, 14, 1, 0, 0],
            &[13, 0, 14, 20, 0, 0, 4, 0],
            &[16, 0, 0, 0, 0, 0],
            &[17, 3, 0, 0, 14, 20, 17, 0, 0, 0],
            &[10, 0, 0, 0, 9, 0, 0, 0],
            &[15, 40, 0, 0],
        ] {
            seeds.push([&[policy][..], &started, trouble].concat());
        }
    }
    seeds
}
