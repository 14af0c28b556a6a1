//! Cases against bugs planted in the client: a case that passes with its bug proves nothing.

use std::{panic::catch_unwind, time::Duration};

use curtail::plant::{Plant, choose};

use crate::{cases::*, stage::wait_at_most};

/// A planted bug may cause a hang, and this is longer than any case takes otherwise.
const LIMIT: Duration = Duration::from_secs(4);

fn fail_with(plant: Plant, cases: &[fn()]) {
    wait_at_most(LIMIT);
    for (number, case) in cases.iter().enumerate() {
        choose(Some(plant));
        let outcome = catch_unwind(case);
        choose(None);
        assert!(outcome.is_err(), "case {number} of {plant:?} passes");
    }
}

/// A plant, and the cases that must fail because of it.
macro_rules! caught {
    ($($test:ident: $plant:ident by $($case:path),+;)*) => {
        $(#[test]
        fn $test() {
            fail_with(Plant::$plant, &[$($case),+]);
        })*
    };
}

caught! {
    restarted_sequences_are_caught: SequenceRestarted by
        dead_leader::records_go_to_the_leader_elected_next;
    renumbered_doubtful_batches_are_caught: DoubtfulRenumbered by
        failure_behind_a_doubtful_batch::a_batch_in_doubt_is_not_renumbered,
        refusal_bumps_epoch::out_of_order_after_a_refusal_keeps_the_epoch;
    reused_buffers_are_caught: BufferReused by
        batch_rebuilt_differently::a_retry_repeats_the_bytes;
    retries_out_of_order_are_caught: RetryOutOfOrder by
        overtaken_first_batch::the_second_batch_waits_for_the_first,
        retry_reorders::one_request_in_flight_keeps_the_order_without_idempotence;
    forgotten_gaps_are_caught: NoGapOnExpiry by
        bump_restarts_every_partition::idle_partitions_begin_the_new_epoch_at_zero,
        exhausted_epoch::the_next_bump_gets_a_new_producer_id,
        failed_sends_leave_a_gap::records_after_an_outage_are_written;
    forgotten_doubts_are_caught: DoubtForgotten by
        expired_sequence_reused::an_expired_record_keeps_its_sequence_number;
    joins_before_commits_are_caught: NoFlushBeforeRejoin by
        stale_records_after_rebalance::members_of_the_classic_protocol_hand_over_exactly;
    fetches_from_before_a_seek_are_caught: FetchAfterSeek by
        seek_during_fetch::a_response_from_before_a_seek_back_is_dropped,
        session_keeps_old_offset::a_session_follows_every_seek;
    unsorted_aborted_lists_are_caught: AbortedUnsorted by
        unsorted_aborted_list::aborted_records_stay_hidden;
    commits_ahead_are_caught: CommitAhead by
        commit_after_pause::pause_and_empty_polls_leave_the_offset,
        commit_passes_the_application::commits_cover_only_records_of_earlier_polls,
        fenced_member::a_fenced_member_continues;
    hints_of_older_epochs_are_caught: EpochHintBackwards by
        stale_leader_hint::another_leader_in_an_older_epoch_is_not_followed;
    skipped_backoffs_are_caught: NoBackoff by
        stale_leader_hint::the_same_leader_in_the_same_epoch_is_no_move,
        stale_leader_hint::another_leader_in_the_same_epoch_is_no_move,
        stale_leader_hint::the_same_leader_in_an_older_epoch_is_no_move;
    leaking_pauses_are_caught: PauseLeaks by
        pause_drops_prefetched::records_fetched_ahead_survive_a_pause;
}
