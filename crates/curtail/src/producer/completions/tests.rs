use proptest::prelude::*;

use super::{
    claim::ByTag,
    completions::{CompletionSink, Completions, Tagged, pair},
};
use crate::{Error, consumer::BatchMetadata, producer::Timing};

fn batch(base_offset: i64) -> BatchMetadata {
    let now = tokio::time::Instant::now();
    BatchMetadata {
        topic: "t".into(),
        partition: 0,
        base_offset: Some(base_offset),
        records: 0,
        bytes: 0,
        attempts: 1,
        log_append_time: None,
        timing: Timing { created: now, first_written: now, written: now, acknowledged: now },
    }
}

fn received(completions: &mut Completions) -> Vec<(u64, Option<i64>)> {
    let mut all = Vec::new();
    while let Some(run) = completions.try_next() {
        assert_eq!(run.records().len(), run.tags().len());
        all.extend(run.records());
    }
    all
}

/// A batch whose records go to these sinks in turn, or to none. The tag of a record is its index.
fn tagged(sinks: &[CompletionSink], owners: &[Option<usize>]) -> Tagged {
    let mut batch = Tagged::default();
    for (index, owner) in (0u32..).zip(owners) {
        if let Some(owner) = owner {
            batch.add(ByTag { sink: &sinks[*owner], tag: index.into() }, index);
        }
    }
    batch
}

proptest! {
    /// Whatever sinks the records have and wherever the batch is split, each sink receives its own records, in order,
    /// with their offsets.
    #[test]
    fn each_sink_receives_its_records_of_a_split_batch_in_order(
        owners in proptest::collection::vec(proptest::option::of(0usize..7), 1..200),
        cuts in proptest::collection::vec(1u32..40, 0..10),
    ) {
        let (sinks, mut completions): (Vec<_>, Vec<_>) = (0..7).map(|_| pair()).unzip();
        let mut rest = tagged(&sinks, &owners);
        let mut left = owners.len() as u32;
        let mut first = 0;
        for cut in cuts.into_iter().chain([u32::MAX]) {
            let records = cut.min(left);
            rest.split_off(records).report(&Ok(batch(1000 + i64::from(first))), None);
            first += records;
            left -= records;
        }
        prop_assert!(rest.is_empty());
        for (owner, completions) in completions.iter_mut().enumerate() {
            let owned = (0u64..).zip(&owners).filter(|(_, of)| **of == Some(owner));
            let expected: Vec<_> = owned.map(|(tag, _)| (tag, Some(1000 + tag as i64))).collect();
            prop_assert_eq!(received(completions), expected);
        }
    }
}

#[test]
fn a_failed_run_has_tags_and_no_offsets() {
    let (sink, mut completions) = pair();
    tagged(std::slice::from_ref(&sink), &[Some(0), None, Some(0)])
        .report(&Err(Error::Closed), None);
    let run = completions.try_next().expect("a run");
    assert!(matches!(run.outcome(), Err(Error::Closed)));
    assert_eq!(run.records().collect::<Vec<_>>(), [(0, None), (2, None)]);
    sink.fail(9, Error::Closed, None);
    assert_eq!(received(&mut completions), [(9, None)]);
}

#[test]
fn an_offset_beyond_the_last_possible_one_is_none() {
    let (sink, mut completions) = pair();
    tagged(&[sink], &[Some(0), Some(0)]).report(&Ok(batch(i64::MAX)), None);
    assert_eq!(received(&mut completions), [(0, Some(i64::MAX)), (1, None)]);
}

#[tokio::test]
async fn completions_end_with_the_last_sink_and_its_last_batch() {
    let (sink, mut completions) = pair();
    let batch_in_flight = tagged(std::slice::from_ref(&sink), &[Some(0)]);
    drop(sink);
    assert!(completions.try_next().is_none());
    batch_in_flight.report(&Ok(batch(5)), None);
    assert_eq!(completions.next().await.expect("the batch's run").tags(), [0]);
    assert!(completions.next().await.is_none());
}
