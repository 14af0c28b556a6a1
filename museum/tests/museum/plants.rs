//! Cases against bugs planted in the client: a case that passes with its bug proves nothing.

use std::panic::catch_unwind;

use curtail::plant::{Plant, choose};

use crate::cases::*;

/// Each plant with the cases that must fail because of it.
const CAUGHT: &[(Plant, &[fn()])] = &[
    (Plant::SequenceRestarted, &[dead_leader::records_go_to_the_leader_elected_next]),
    (
        Plant::DoubtfulRenumbered,
        &[
            failure_behind_a_doubtful_batch::a_batch_in_doubt_is_not_renumbered,
            refusal_bumps_epoch::out_of_order_after_a_refusal_keeps_the_epoch,
        ],
    ),
    (Plant::BufferReused, &[batch_rebuilt_differently::a_retry_repeats_the_bytes]),
    (
        Plant::RetryOutOfOrder,
        &[
            overtaken_first_batch::the_second_batch_waits_for_the_first,
            retry_reorders::one_request_in_flight_keeps_the_order_without_idempotence,
        ],
    ),
    (
        Plant::NoGapOnExpiry,
        &[
            bump_restarts_every_partition::idle_partitions_begin_the_new_epoch_at_zero,
            exhausted_epoch::the_next_bump_gets_a_new_producer_id,
            failed_sends_leave_a_gap::records_after_an_outage_are_written,
        ],
    ),
    (
        Plant::NoFlushBeforeRejoin,
        &[stale_records_after_rebalance::members_of_the_classic_protocol_hand_over_exactly],
    ),
    (
        Plant::FetchAfterSeek,
        &[
            seek_during_fetch::a_response_from_before_a_seek_back_is_dropped,
            session_keeps_old_offset::a_session_follows_every_seek,
        ],
    ),
    (Plant::AbortedUnsorted, &[unsorted_aborted_list::aborted_records_stay_hidden]),
    (
        Plant::CommitAhead,
        &[
            commit_after_pause::pause_and_empty_polls_leave_the_offset,
            commit_passes_the_application::commits_cover_only_records_of_earlier_polls,
            fenced_member::a_fenced_member_continues,
        ],
    ),
    (Plant::EpochHintBackwards, &[stale_leader_hint::another_leader_in_an_older_epoch_is_no_move]),
    (
        Plant::NoBackoff,
        &[
            stale_leader_hint::the_same_leader_in_the_same_epoch_is_no_move,
            stale_leader_hint::another_leader_in_the_same_epoch_is_no_move,
            stale_leader_hint::the_same_leader_in_an_older_epoch_is_no_move,
        ],
    ),
    (Plant::PauseLeaks, &[pause_drops_prefetched::records_fetched_ahead_survive_a_pause]),
];

#[test]
fn cases_fail_with_the_bug_that_they_are_about() {
    for (plant, cases) in CAUGHT {
        for (number, case) in cases.iter().enumerate() {
            choose(Some(*plant));
            let outcome = catch_unwind(case);
            choose(None);
            assert!(outcome.is_err(), "case {number} of {plant:?} passes");
        }
    }
}
