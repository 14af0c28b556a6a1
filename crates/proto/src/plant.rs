//! Bugs to plant on purpose, one at a time: with them the simulation and the arena of the links prove that their checks
//! detect each kind.
//!
//! Ordinary builds contain none of them: without the feature `plants`, and outside of this crate's unit tests,
//! [`planted`] is a constant `false`. Otherwise a plant is active only on a thread that has chosen it.

/// A bug to plant. Each run has one thread, so parallel runs do not see each other's plant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// A partition with a newly elected leader starts its sequence numbers again at 0.
    SequenceRestarted,
    /// A batch of unknown outcome gets new sequence numbers when it is sent again.
    DoubtfulRenumbered,
    /// A batch that is sent again has the content of another batch in the same request (compare CVE-2026-35554).
    BufferReused,
    /// A batch that comes back is queued after those that were never sent.
    RetryOutOfOrder,
    /// A batch that fails leaves no gap in the sequence numbers.
    NoGapOnExpiry,
    /// A batch without a response counts as certainly not written.
    DoubtForgotten,
    /// A member joins again before its last commits have an outcome.
    NoFlushBeforeRejoin,
    /// A seek leaves in place the records fetched before it, and those of the fetch in flight.
    FetchAfterSeek,
    /// The list of aborted transactions is used in the broker's order.
    AbortedUnsorted,
    /// A fetch session is continued after an error.
    SessionKept,
    /// A committed offset is one more than the position.
    CommitAhead,
    /// A hint counts although the leader epoch in it is lower than the known one.
    EpochHintBackwards,
    /// Nothing expires with `acks=0`.
    NoExpiryWithoutAcks,
    /// An outcome wakes all tasks that wait for it but the first.
    WakeUpDropped,
    /// A lane's driver is not woken for work that it has to send.
    DriverNotWoken,
    /// A batch is sent again at once although its leader and epoch are still the same.
    NoBackoff,
    /// A pause has no effect on records that have been fetched already.
    PauseLeaks,
    /// A committed offset is taken although an open transaction may replace it.
    UnstableOffsets,
    /// After the last epoch of a producer id, sequences start again in that epoch.
    EpochReused,
    /// A position before the first offset of the log or after its end is reset to the end, whatever
    /// `auto.offset.reset` says.
    OutOfRangeToEnd,
    /// A send reaches another await point after it has appended its record.
    SendAwaitsAfterAppend,
    /// A poll reaches another await point after it has taken its records.
    PollAwaitsAfterTake,
    /// A flush does not wait for what was last appended.
    FlushEarly,
    /// A commit that completed while no call waited for it is not remembered.
    CommitForgotten,
    /// A position is fetched from although the leader has not validated it, and fetches name no epoch.
    PositionNotValidated,
    /// Fetches do not name `client.rack`.
    RackNotNamed,
    /// A commit is not carried out if its call was dropped before it was sent.
    CommitDropped,
    /// A topic that grows or comes back gets new partitions in the place of those that have numbered batches.
    PartitionReplaced,
    /// A request closes its connection when its oldest batch expires.
    ExpiryCloses,
    /// A partition counts as known to the broker however long nothing was written.
    IdleNotProven,
    /// The last record of a compressed batch is skipped.
    CompressedTailSkipped,
    /// A batch without records does not move the position.
    EmptiedBatchNotPassed,
    /// The sink of a failed batch's tagged records receives nothing.
    FailedRunDropped,
    /// A partition that takes another seat keeps its ticket.
    TicketKept,
    /// A due partition stays in the timed list while its request must wait for a response.
    DueEntryKept,
    /// A link's timer is set for due partitions although the socket accepts no bytes.
    TimerWhileBlocked,
    /// A link's timer is not set for the end of a throttle time.
    NoTimerForThrottle,
    /// A response does not release the bytes that its request held.
    HeldNotReleased,
    /// Every gap between two responses counts as the broker's service time.
    EveryGapCounts,
    /// No request waits for an idle connection to measure the round trip.
    RoundTripNotMeasured,
    /// A response is late only if it takes longer than nearly all of the last few.
    LateByLastResponses,
    /// A full window admits records.
    WindowNotKept,
}

impl Plant {
    /// Plants that the arena of the links must find (`link/tests/arena/plants.rs`). The simulation must find the others.
    pub const OF_ARENA: [Self; 9] = [
        Self::TicketKept,
        Self::DueEntryKept,
        Self::TimerWhileBlocked,
        Self::NoTimerForThrottle,
        Self::HeldNotReleased,
        Self::EveryGapCounts,
        Self::RoundTripNotMeasured,
        Self::LateByLastResponses,
        Self::WindowNotKept,
    ];

    /// Plants that the simulation must find.
    pub const OF_SIMULATION: [Self; 33] = [
        Self::SequenceRestarted,
        Self::DoubtfulRenumbered,
        Self::BufferReused,
        Self::RetryOutOfOrder,
        Self::NoGapOnExpiry,
        Self::DoubtForgotten,
        Self::NoFlushBeforeRejoin,
        Self::FetchAfterSeek,
        Self::AbortedUnsorted,
        Self::SessionKept,
        Self::CommitAhead,
        Self::EpochHintBackwards,
        Self::NoExpiryWithoutAcks,
        Self::WakeUpDropped,
        Self::DriverNotWoken,
        Self::NoBackoff,
        Self::PauseLeaks,
        Self::UnstableOffsets,
        Self::EpochReused,
        Self::OutOfRangeToEnd,
        Self::SendAwaitsAfterAppend,
        Self::PollAwaitsAfterTake,
        Self::FlushEarly,
        Self::CommitForgotten,
        Self::PositionNotValidated,
        Self::RackNotNamed,
        Self::CommitDropped,
        Self::PartitionReplaced,
        Self::ExpiryCloses,
        Self::IdleNotProven,
        Self::CompressedTailSkipped,
        Self::EmptiedBatchNotPassed,
        Self::FailedRunDropped,
    ];
}

/// Whether this bug is planted.
#[cfg(not(any(test, feature = "plants")))]
#[inline(always)]
pub const fn planted(_: Plant) -> bool {
    false
}

#[cfg(any(test, feature = "plants"))]
pub use chosen::{choose, planted};

#[cfg(any(test, feature = "plants"))]
mod chosen {
    use std::cell::Cell;

    use super::Plant;

    thread_local! {
        static CHOSEN: Cell<Option<Plant>> = const { Cell::new(None) };
    }

    /// Plants a bug in all code that runs on this thread from now on, or none.
    pub fn choose(plant: Option<Plant>) {
        CHOSEN.set(plant);
    }

    /// Whether this bug is planted.
    pub fn planted(plant: Plant) -> bool {
        CHOSEN.get() == Some(plant)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn every_plant_is_in_a_list() {
            let listed = Plant::OF_SIMULATION.len() + Plant::OF_ARENA.len();
            assert_eq!(listed, Plant::WindowNotKept as usize + 1, "after the last plant");
        }

        #[test]
        fn a_plant_is_on_only_in_the_thread_that_has_chosen_it() {
            choose(Some(Plant::CommitAhead));
            assert!(planted(Plant::CommitAhead) && !planted(Plant::SessionKept));
            let elsewhere = std::thread::spawn(|| planted(Plant::CommitAhead));
            assert!(!elsewhere.join().expect("the thread ends"));
        }
    }
}
