//! The effect of a broker's response to a produce request on its batch.

use curtail_wire::ErrorCode;

/// Whether a batch carries a producer id and sequence, and which side may change the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sequenced {
    /// `enable.idempotence=false`: no sequence.
    Not,
    /// Without a transactional id: the producer bumps the epoch itself (KIP-360).
    Idempotent,
    /// With a transactional id: the coordinator bumps the epoch, after the transaction.
    Transactional,
}

/// Circumstances that an error code alone does not show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// Whether the batch carries a sequence.
    pub sequenced: Sequenced,
    /// Whether every batch of the same partition with a lower sequence was written.
    pub is_next: bool,
    /// Records in the batch.
    pub records: u32,
}

/// What to do with a batch after its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is written.
    Written,
    /// It was written by an earlier attempt whose response was lost.
    WrittenBefore,
    /// It is not written; retry it after a backoff.
    Retry {
        /// Whether the leader may have changed.
        refresh_metadata: bool,
    },
    /// The leader has changed; send it to the new leader.
    Moved,
    /// It is not written, and never will be under its epoch. Send it again after a backoff, in the next epoch
    /// ([`crate::accumulator::PartitionQueue::renumber`]).
    RetryInNextEpoch,
    /// It is not written because it is too large; send its records in smaller batches.
    Split,
    /// It cannot be written, and a retry would not help.
    Fail,
    /// It cannot be written, and the partition's later sequences would wait for it indefinitely: the producer
    /// continues in a new epoch (KIP-360).
    FailAndBumpEpoch,
}

/// Maps an error code to a verdict. Every code not named here is final.
pub fn classify(error: ErrorCode, context: Context) -> Verdict {
    let Context { sequenced, is_next, records } = context;
    match error {
        ErrorCode::NONE => Verdict::Written,
        ErrorCode::DUPLICATE_SEQUENCE_NUMBER => Verdict::WrittenBefore,
        ErrorCode::NOT_LEADER_OR_FOLLOWER
        | ErrorCode::FENCED_LEADER_EPOCH
        | ErrorCode::UNKNOWN_LEADER_EPOCH => Verdict::Moved,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
        | ErrorCode::UNKNOWN_TOPIC_ID
        | ErrorCode::INCONSISTENT_TOPIC_ID
        | ErrorCode::LEADER_NOT_AVAILABLE
        | ErrorCode::KAFKA_STORAGE_ERROR
        | ErrorCode::REPLICA_NOT_AVAILABLE
        | ErrorCode::NETWORK_EXCEPTION => Verdict::Retry { refresh_metadata: true },
        ErrorCode::REQUEST_TIMED_OUT
        | ErrorCode::CORRUPT_MESSAGE
        | ErrorCode::NOT_ENOUGH_REPLICAS
        | ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND
        | ErrorCode::COORDINATOR_LOAD_IN_PROGRESS
        // The previous transaction has not completed (KIP-890).
        | ErrorCode::CONCURRENT_TRANSACTIONS
        | ErrorCode::THROTTLING_QUOTA_EXCEEDED => Verdict::Retry { refresh_metadata: false },
        // A single record cannot be split.
        ErrorCode::MESSAGE_TOO_LARGE if records > 1 => Verdict::Split,
        // A later batch arrived before an earlier one that is retried or has failed: it waits for its turn, or for
        // the next epoch.
        ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER if sequenced != Sequenced::Not && !is_next => {
            Verdict::Retry { refresh_metadata: false }
        }
        // The broker lost the batches before the next one, or the producer. The Java client's
        // TransactionManager.canRetry bumps the epoch as well, and fails the batch only in a transaction.
        ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER | ErrorCode::UNKNOWN_PRODUCER_ID
            if sequenced == Sequenced::Idempotent =>
        {
            Verdict::RetryInNextEpoch
        }
        _ if sequenced == Sequenced::Not => Verdict::Fail,
        _ => Verdict::FailAndBumpEpoch,
    }
}

/// What a response to a produce request says about the append of a refused batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Append {
    /// There was none.
    Excluded,
    /// The leader may have appended the batch before it refused it.
    Possible,
}

/// The first version of Produce whose responses are relied upon for [`Append`]. Brokers that serve it (KIP-951) are Apache
/// Kafka 3.7 and later, and what descends from it.
const TELLS_APPEND: i16 = 10;

impl Append {
    /// Reads it from the version and the base offset of a response.
    ///
    /// A leader of Apache Kafka that has appended a batch keeps its offset in the response, whatever error ends the wait for
    /// the followers (`DelayedProduce`). A broker that refuses before the append names no offset.
    pub fn told(version: i16, base_offset: i64) -> Self {
        match version >= TELLS_APPEND && base_offset < 0 {
            true => Self::Excluded,
            false => Self::Possible,
        }
    }
}

/// Whether a batch may be in the log although it ended with this error.
///
/// With acks=all a leader appends a batch and then waits for its followers. If it loses the leadership, the topic or
/// the disk in that time, it responds with that error. The batch may then be on a follower that leads now. Errors
/// that only precede the append, such as NOT_ENOUGH_REPLICAS, leave no doubt.
pub fn may_have_been_written(error: ErrorCode, append: Append) -> bool {
    match error {
        ErrorCode::NOT_LEADER_OR_FOLLOWER | ErrorCode::FENCED_LEADER_EPOCH => {
            append == Append::Possible
        }
        ErrorCode::REQUEST_TIMED_OUT
        | ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND
        | ErrorCode::NETWORK_EXCEPTION
        | ErrorCode::UNKNOWN_SERVER_ERROR
        | ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
        | ErrorCode::UNKNOWN_TOPIC_ID
        | ErrorCode::KAFKA_STORAGE_ERROR => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEXT: Context = Context { sequenced: Sequenced::Idempotent, is_next: true, records: 1 };
    const LATER: Context = Context { is_next: false, ..NEXT };
    const PLAIN: Context = Context { sequenced: Sequenced::Not, ..NEXT };
    const IN_TRANSACTION: Context = Context { sequenced: Sequenced::Transactional, ..NEXT };

    #[test]
    fn every_code_has_exactly_one_meaning() {
        for code in -1..=140 {
            let error = ErrorCode(code);
            let verdict = classify(error, NEXT);
            let retries = matches!(verdict, Verdict::Retry { .. } | Verdict::Moved);
            let done = matches!(verdict, Verdict::Written | Verdict::WrittenBefore);
            assert_eq!(done, code == 0 || error == ErrorCode::DUPLICATE_SEQUENCE_NUMBER, "{error}");
            if retries {
                assert!(error.is_retriable(), "{error} is retried but Kafka says it is final");
            }
            let transactional = classify(error, IN_TRANSACTION);
            let plain = classify(error, PLAIN);
            assert_eq!(
                plain == Verdict::Fail,
                transactional == Verdict::FailAndBumpEpoch,
                "{error}"
            );
            if verdict != Verdict::RetryInNextEpoch {
                assert_eq!(verdict, transactional, "{error}");
            }
        }
    }

    #[test]
    fn out_of_order_is_retried_unless_no_batch_is_before_it() {
        let error = ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER;
        assert_eq!(classify(error, LATER), Verdict::Retry { refresh_metadata: false });
        assert_eq!(classify(error, NEXT), Verdict::RetryInNextEpoch);
        assert_eq!(classify(error, IN_TRANSACTION), Verdict::FailAndBumpEpoch);
        assert_eq!(classify(error, PLAIN), Verdict::Fail);
    }

    /// In a transaction the coordinator changes the epoch.
    #[test]
    fn an_unknown_producer_bumps_its_epoch_and_retries_outside_of_transactions() {
        let error = ErrorCode::UNKNOWN_PRODUCER_ID;
        assert_eq!(classify(error, NEXT), Verdict::RetryInNextEpoch);
        assert_eq!(classify(error, LATER), Verdict::RetryInNextEpoch);
        assert_eq!(classify(error, IN_TRANSACTION), Verdict::FailAndBumpEpoch);
        assert_eq!(classify(error, PLAIN), Verdict::Fail);
    }

    #[test]
    fn only_several_records_can_be_split() {
        for context in [NEXT, LATER, PLAIN] {
            let several = Context { records: 2, ..context };
            assert_eq!(classify(ErrorCode::MESSAGE_TOO_LARGE, several), Verdict::Split);
            assert_ne!(classify(ErrorCode::MESSAGE_TOO_LARGE, context), Verdict::Split);
            // A batch larger than a log segment is a misconfiguration of the broker, as in the Java client.
            assert_ne!(classify(ErrorCode::RECORD_LIST_TOO_LARGE, several), Verdict::Split);
        }
    }

    #[test]
    fn a_leader_that_steps_down_may_have_appended_before() {
        for error in [
            ErrorCode::NOT_LEADER_OR_FOLLOWER,
            ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode::KAFKA_STORAGE_ERROR,
            ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND,
            ErrorCode::REQUEST_TIMED_OUT,
        ] {
            assert!(may_have_been_written(error, Append::Possible), "{error}");
        }
        for error in [ErrorCode::NOT_ENOUGH_REPLICAS, ErrorCode::MESSAGE_TOO_LARGE] {
            assert!(!may_have_been_written(error, Append::Possible), "{error}");
        }
    }

    #[test]
    fn a_response_without_an_offset_excludes_the_append_of_a_leader_that_stepped_down() {
        let moved = ErrorCode::NOT_LEADER_OR_FOLLOWER;
        for (version, base_offset, is_possible) in
            [(9, -1, true), (10, -1, false), (13, -1, false), (10, 0, true), (13, 7, true)]
        {
            let append = Append::told(version, base_offset);
            assert_eq!(
                may_have_been_written(moved, append),
                is_possible,
                "{version} {base_offset}"
            );
            let late = ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND;
            assert!(may_have_been_written(late, append), "the error says it");
        }
    }

    #[test]
    fn a_moved_leader_is_never_an_error_of_the_batch() {
        for error in [ErrorCode::NOT_LEADER_OR_FOLLOWER, ErrorCode::FENCED_LEADER_EPOCH] {
            for context in [NEXT, LATER, PLAIN] {
                assert_eq!(classify(error, context), Verdict::Moved);
            }
        }
    }
}
