//! Bugs planted in the client, one for each class that the checker must detect. The feature `plants` of the client is
//! on in the tests of this crate only, and a plant is off unless a plan chooses it.

use curtail_sim::{ClientPlant, Scenario};

fn must_be_caught(plant: ClientPlant, scenario: Scenario, likely: u64, expected: &[&str]) {
    crate::caught_in(&plant, scenario, likely, expected, |plan| plan.with_client_plant(plant));
}

/// One test for each plant, so that they run in parallel.
macro_rules! caught {
    ($($test:ident: $plant:ident in $scenario:ident at $seed:literal as $expected:expr;)*) => {
        $(
            #[test]
            fn $test() {
                must_be_caught(ClientPlant::$plant, Scenario::$scenario, $seed, &$expected);
            }
        )*

        #[test]
        fn every_plant_has_a_test() {
            let tested = [$(ClientPlant::$plant),*];
            let missing: Vec<_> =
                ClientPlant::OF_SIMULATION.into_iter().filter(|plant| !tested.contains(plant)).collect();
            assert_eq!(missing, []);
        }
    };
}

caught! {
    restarted_sequences_are_caught: SequenceRestarted in OverlappingMoves at 0
        as ["lost", "misplaced", "sequence-refused"];
    renumbered_doubtful_batches_are_caught: DoubtfulRenumbered in FrozenBrokers at 1 as ["duplicated"];
    reused_buffers_are_caught: BufferReused in Resets at 0 as ["lost", "duplicated"];
    retries_out_of_order_are_caught: RetryOutOfOrder in Settings at 7
        as ["reordered", "sequence-refused"];
    missing_gaps_are_caught: NoGapOnExpiry in FrozenBrokers at 8 as ["sequence-refused"];
    forgotten_doubt_is_caught: DoubtForgotten in Restarts at 21 as ["written-after-all"];
    rejoins_before_the_flush_are_caught: NoFlushBeforeRejoin in Groups at 39
        as ["handover-uncommitted"];
    fetches_from_before_a_seek_are_caught: FetchAfterSeek in Seeks at 1 as ["strayed"];
    unsorted_aborted_transactions_are_caught: AbortedUnsorted in Transactions at 1
        as ["torn-transaction"];
    kept_fetch_sessions_are_caught: SessionKept in Restarts at 0 as ["hang"];
    commits_ahead_are_caught: CommitAhead in Groups at 0 as ["committed-ahead", "hang"];
    hints_that_go_back_are_caught: EpochHintBackwards in StaleMetadata at 0 as ["stale-leader"];
    records_that_never_expire_are_caught: NoExpiryWithoutAcks in Settings at 9
        as ["too-late", "no-outcome", "hang"];
    dropped_wake_ups_are_caught: WakeUpDropped in Settings at 0
        as ["too-late", "no-outcome", "hang"];
    drivers_that_sleep_on_are_caught: DriverNotWoken in Sparse at 6 as ["sluggish"];
    skipped_backoff_is_caught: NoBackoff in StaleMetadata at 78 as ["retry-storm"];
    pauses_that_leak_are_caught: PauseLeaks in Seeks at 1 as ["strayed"];
    unstable_offsets_are_caught: UnstableOffsets in Copies at 71 as ["copied-twice"];
    resets_to_the_wrong_end_are_caught: OutOfRangeToEnd in Gaps at 1 as ["strayed"];
    sends_that_append_and_wait_are_caught: SendAwaitsAfterAppend in Dropped at 1
        as ["written-after-all"];
    polls_that_take_and_wait_are_caught: PollAwaitsAfterTake in Dropped at 1 as ["strayed"];
    sinks_that_miss_a_failed_batch_are_caught: FailedRunDropped in FrozenBrokers at 8 as ["no-outcome"];
    flushes_that_end_early_are_caught: FlushEarly in Dropped at 1 as ["flushed-early"];
    forgotten_commits_are_caught: CommitForgotten in Dropped at 2 as ["commit-undecided"];
    positions_without_validation_are_caught: PositionNotValidated in Unclean at 2
        as ["truncated-silently", "strayed", "hang"];
    unnamed_racks_are_caught: RackNotNamed in Racks at 0 as ["read-afar"];
    commits_dropped_with_their_call_are_caught: CommitDropped in Dropped at 0 as ["commit-dropped"];
    reused_epochs_are_caught: EpochReused in ProducerIds at 13 as ["lost"];
    replaced_partitions_are_caught: PartitionReplaced in Topics at 0
        as ["lost", "misplaced", "no-outcome", "too-late", "hang", "sequence-refused"];
    expiries_that_close_connections_are_caught: ExpiryCloses in Settings at 35
        as ["needless-disconnect"];
    pipelining_after_idleness_is_caught: IdleNotProven in ProducerIds at 83
        as ["reordered", "sequence-refused", "written-after-all"];
    emptied_batches_that_are_not_passed_are_caught: EmptiedBatchNotPassed in Compaction at 0
        as ["hang", "compacted-away"];
    skipped_compressed_records_are_caught: CompressedTailSkipped in Settings at 0
        as ["consumed-differs", "hang"];
}
