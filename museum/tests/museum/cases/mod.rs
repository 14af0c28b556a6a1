//! The cases, one file each.

macro_rules! cases {
    ($($name:ident,)*) => {
        $(pub(crate) mod $name;)*

        /// The names of the cases, which are those of their files.
        pub(crate) const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

cases! {
    ambiguous_commit,
    batch_rebuilt_differently,
    bump_restarts_every_partition,
    busy_poll,
    close_during_send,
    close_without_brokers,
    commit_after_failed_record,
    commit_after_pause,
    commit_passes_the_application,
    concurrent_sends,
    coordinator_loading,
    dead_leader,
    empty_batch,
    exhausted_epoch,
    expired_sequence_reused,
    failed_sends_leave_a_gap,
    failure_behind_a_doubtful_batch,
    fenced_member,
    first_metadata_without_leader,
    growing_topic,
    idle_member,
    lookup_at_a_dead_leader,
    negative_epoch_join,
    newer_epoch_stalls,
    no_leader_flush,
    overtaken_first_batch,
    partition_count_decreases,
    pattern_topic_assigned_early,
    pause_drops_prefetched,
    pause_during_fetch,
    poll_interval_exceeded,
    rack_aware_duplicates,
    recreated_topic,
    refusal_bumps_epoch,
    renumbered_out_of_order,
    retry_reorders,
    reused_buffer,
    seek_during_fetch,
    session_keeps_old_offset,
    silent_peer_without_acks,
    stale_leader_hint,
    stale_member_epoch,
    stale_records_after_rebalance,
    truncation_after_restart,
    unsorted_aborted_list,
}
