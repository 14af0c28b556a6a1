//! The state machine of a transactional id and its record, without a cluster.

mod expiry;

use std::collections::BTreeSet;

use curtail_wire::{ErrorCode, records::EndTxnMarker};
use proptest::prelude::*;

use super::{
    machine::{End, Init, NO_ID, Phase, ProducerEpoch, TopicPartition, Txn, Version},
    record::{Format, decode_key, decode_value, encode_key, encode_value},
};

const NOW: i64 = 1_000;
const ID: i64 = 7;
const NEW_ID: i64 = 8;

fn producer(epoch: i16) -> ProducerEpoch {
    ProducerEpoch { id: ID, epoch }
}

fn partition() -> TopicPartition {
    ("t".to_owned(), 3)
}

/// Returns an id in a phase, at epoch 5.
fn txn(phase: Phase, version: Version) -> Txn {
    let mut txn = Txn::new(ID, 60_000, NOW);
    txn.producer.epoch = 5;
    txn.phase = phase;
    txn.version = version;
    if phase == Phase::Ongoing || phase.ending().is_some() {
        txn.partitions.insert(partition());
        txn.started_ms = NOW;
    }
    txn
}

/// The result of EndTxn: the decided phase and epoch, or that it was done before.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    Decided(Phase, i16),
    Done,
    Refused(ErrorCode),
}

use Ended::{Decided, Done, Refused};

const FENCED: Ended = Refused(ErrorCode::PRODUCER_FENCED);
const BUSY: Ended = Refused(ErrorCode::CONCURRENT_TRANSACTIONS);
const INVALID: Ended = Refused(ErrorCode::INVALID_TXN_STATE);

fn ended(txn: &Txn, epoch: i16, result: EndTxnMarker, version: Version) -> Ended {
    match txn.end(producer(epoch), result, version, NOW, || NEW_ID) {
        Ok(End::Decided(next)) => Decided(next.phase, next.producer.epoch),
        Ok(End::Done) => Done,
        Err(code) => Refused(code),
    }
}

#[test]
fn an_end_is_decided_as_in_kafka() {
    use EndTxnMarker::{Abort, Commit};
    use Phase::{CompleteAbort, CompleteCommit, Empty, Ongoing, PrepareAbort, PrepareCommit};
    // The id is at epoch 5. With version 2 a repeated end has epoch 4.
    let one = [
        (Ongoing, 5, Commit, Decided(PrepareCommit, 5)),
        (Ongoing, 5, Abort, Decided(PrepareAbort, 5)),
        (Ongoing, 4, Commit, FENCED),
        (Ongoing, 6, Commit, FENCED),
        (PrepareCommit, 5, Commit, BUSY),
        (PrepareCommit, 5, Abort, BUSY),
        (PrepareCommit, 4, Commit, FENCED),
        (PrepareAbort, 5, Abort, BUSY),
        (PrepareAbort, 5, Commit, BUSY),
        (CompleteCommit, 5, Commit, Done),
        (CompleteCommit, 5, Abort, INVALID),
        (CompleteAbort, 5, Abort, Done),
        (CompleteAbort, 5, Commit, INVALID),
        (Empty, 5, Commit, INVALID),
        (Empty, 5, Abort, INVALID),
    ];
    for (phase, epoch, result, expected) in one {
        let found = ended(&txn(phase, Version::One), epoch, result, Version::One);
        assert_eq!(found, expected, "version 1: {phase:?}, epoch {epoch}, {result:?}");
    }
    let two = [
        (Ongoing, 5, Commit, Decided(PrepareCommit, 6)),
        (Ongoing, 5, Abort, Decided(PrepareAbort, 6)),
        (Ongoing, 4, Commit, FENCED),
        (PrepareCommit, 4, Commit, BUSY),
        (PrepareCommit, 4, Abort, BUSY),
        (PrepareCommit, 5, Commit, BUSY),
        // The next transaction ended without a partition before the markers of this one were
        // written (KAFKA-18464).
        (PrepareCommit, 5, Abort, BUSY),
        (PrepareCommit, 3, Commit, BUSY),
        (PrepareAbort, 4, Abort, BUSY),
        (PrepareAbort, 5, Abort, BUSY),
        (PrepareAbort, 3, Abort, BUSY),
        (CompleteCommit, 4, Commit, Done),
        (CompleteCommit, 4, Abort, INVALID),
        (CompleteCommit, 5, Commit, INVALID),
        (CompleteCommit, 5, Abort, Decided(PrepareAbort, 6)),
        (CompleteCommit, 3, Commit, FENCED),
        (CompleteAbort, 4, Abort, Done),
        (CompleteAbort, 5, Abort, Decided(PrepareAbort, 6)),
        (Empty, 5, Abort, Decided(PrepareAbort, 6)),
        (Empty, 5, Commit, INVALID),
        (Empty, 4, Abort, FENCED),
    ];
    for (phase, epoch, result, expected) in two {
        let found = ended(&txn(phase, Version::Two), epoch, result, Version::Two);
        assert_eq!(found, expected, "version 2: {phase:?}, epoch {epoch}, {result:?}");
    }
    let other = ProducerEpoch { id: 99, epoch: 5 };
    let unknown = txn(Ongoing, Version::Two).end(other, Commit, Version::Two, NOW, || NEW_ID);
    assert_eq!(unknown, Err(ErrorCode::INVALID_PRODUCER_ID_MAPPING));
}

#[test]
fn a_fenced_producer_cannot_end_a_transaction() {
    for version in [Version::One, Version::Two] {
        let fenced = txn(Phase::Ongoing, version).fence(NOW, version).unwrap();
        assert_eq!(fenced.phase, Phase::PrepareAbort);
        let aborted = fenced.complete(NOW).unwrap();
        assert_eq!(aborted.phase, Phase::CompleteAbort);
        for result in [EndTxnMarker::Commit, EndTxnMarker::Abort] {
            // With version 2 the refusal follows once the abort is complete.
            let aborting = if version == Version::Two { BUSY } else { FENCED };
            assert_eq!(ended(&fenced, 5, result, version), aborting, "{version:?} {result:?}");
            assert_eq!(ended(&aborted, 5, result, version), FENCED, "{version:?} {result:?}");
        }
        let add = aborted.add(producer(5), &[partition()].into(), NOW);
        assert_eq!(add, Err(ErrorCode::PRODUCER_FENCED));
    }
}

#[test]
fn exhausted_epochs_lead_to_a_new_producer_id() {
    let mut last = txn(Phase::Ongoing, Version::Two);
    last.producer.epoch = i16::MAX - 1;
    let end = |txn: &Txn| {
        txn.end(producer(i16::MAX - 1), EndTxnMarker::Commit, Version::Two, NOW, || NEW_ID)
    };
    let Ok(End::Decided(decided)) = end(&last) else { panic!("decided") };
    assert_eq!(decided.producer, producer(i16::MAX), "the marker has the last epoch");
    assert_eq!(decided.producer_after(), ProducerEpoch { id: NEW_ID, epoch: 0 });
    assert_eq!(end(&decided), Err(ErrorCode::CONCURRENT_TRANSACTIONS));
    // The producer continues with the new id, which the markers' completion makes the current one (KAFKA-18575).
    let next = decided.producer_after();
    let busy = ErrorCode::CONCURRENT_TRANSACTIONS;
    let init = decided.init(Some(next), 1, NOW, Version::Two, || NEW_ID);
    assert_eq!(init, Err(busy));
    assert_eq!(decided.add(next, &[partition()].into(), NOW), Err(busy));
    let aborted = decided.end(next, EndTxnMarker::Abort, Version::Two, NOW, || NEW_ID);
    assert_eq!(aborted, Err(busy));
    let complete = decided.complete(NOW).unwrap();
    assert_eq!(complete.producer, ProducerEpoch { id: NEW_ID, epoch: 0 });
    assert_eq!(end(&complete), Ok(End::Done), "the response was lost");
    // After a fence at the last epoch the id's epochs are exhausted.
    let fenced = last.fence(NOW, Version::Two).unwrap();
    assert_eq!(fenced.producer, producer(i16::MAX));
    assert_eq!(end(&fenced), Err(busy));
    assert_eq!(end(&fenced.complete(NOW).unwrap()), Err(ErrorCode::PRODUCER_FENCED));
    let again = fenced.complete(NOW).unwrap().init(None, 1, NOW, Version::Two, || NEW_ID);
    let Ok(Init::Ready(next)) = again else { panic!("ready") };
    assert_eq!(next.producer, ProducerEpoch { id: NEW_ID, epoch: 0 });
}

#[test]
fn init_producer_id_gives_every_new_producer_a_new_epoch() {
    let init = |txn: &Txn, expected| {
        txn.init(expected, 9, NOW, Version::Two, || NEW_ID).map(|init| match init {
            Init::Ready(next) => {
                assert_eq!((next.phase, next.timeout_ms), (Phase::Empty, 9));
                (next.producer.id, next.producer.epoch)
            }
            Init::Fenced(next) => {
                assert_eq!(next.phase, Phase::PrepareAbort);
                (NO_ID, next.producer.epoch)
            }
        })
    };
    let fresh = Txn::new(ID, 1, NOW);
    assert_eq!(init(&fresh, None), Ok((ID, 0)));
    assert_eq!(init(&fresh, Some(ProducerEpoch { id: 99, epoch: 3 })), Ok((ID, 0)));
    let mut known = txn(Phase::CompleteCommit, Version::Two);
    known.last_epoch = 4;
    let cases = [
        (None, Ok((ID, 6))),
        (Some(producer(5)), Ok((ID, 6))),
        // A retry after a lost response.
        (Some(producer(4)), Ok((ID, 5))),
        (Some(producer(3)), Err(ErrorCode::PRODUCER_FENCED)),
        (Some(ProducerEpoch { id: 99, epoch: 5 }), Err(ErrorCode::PRODUCER_FENCED)),
    ];
    for (expected, result) in cases {
        assert_eq!(init(&known, expected), result, "{expected:?}");
    }
    let busy = Err(ErrorCode::CONCURRENT_TRANSACTIONS);
    assert_eq!(init(&txn(Phase::PrepareCommit, Version::Two), None), busy);
    assert_eq!(init(&txn(Phase::PrepareAbort, Version::Two), None), busy);
    assert_eq!(init(&txn(Phase::Ongoing, Version::Two), None), Ok((NO_ID, 7)), "fenced first");
}

#[test]
fn partitions_are_added_to_a_transaction_once() {
    let more: BTreeSet<TopicPartition> = [partition(), ("u".to_owned(), 0)].into();
    for phase in [Phase::Empty, Phase::CompleteCommit, Phase::CompleteAbort] {
        let next = txn(phase, Version::Two).add(producer(5), &more, NOW + 5).unwrap().unwrap();
        assert_eq!((next.phase, next.started_ms), (Phase::Ongoing, NOW + 5));
        assert_eq!(next.partitions, more);
    }
    let ongoing = txn(Phase::Ongoing, Version::Two);
    assert_eq!(ongoing.add(producer(5), &[partition()].into(), NOW + 5), Ok(None));
    let next = ongoing.add(producer(5), &more, NOW + 5).unwrap().unwrap();
    assert_eq!((next.partitions.len(), next.started_ms), (2, NOW));
    assert_eq!(ongoing.add(producer(4), &more, NOW), Err(ErrorCode::PRODUCER_FENCED));
    let unknown = ongoing.add(ProducerEpoch { id: 99, epoch: 5 }, &more, NOW);
    assert_eq!(unknown, Err(ErrorCode::INVALID_PRODUCER_ID_MAPPING));
    let ending = txn(Phase::PrepareCommit, Version::Two);
    assert_eq!(ending.add(producer(5), &more, NOW), Err(ErrorCode::CONCURRENT_TRANSACTIONS));

    assert_eq!(ongoing.verify(producer(5), &partition()), Ok(()));
    let other = ("u".to_owned(), 0);
    assert_eq!(ongoing.verify(producer(5), &other), Err(ErrorCode::TRANSACTION_ABORTABLE));
    let done = txn(Phase::CompleteCommit, Version::Two);
    assert_eq!(done.verify(producer(5), &partition()), Err(ErrorCode::TRANSACTION_ABORTABLE));
    assert_eq!(ongoing.verify(producer(4), &partition()), Err(ErrorCode::PRODUCER_FENCED));
}

#[test]
fn a_transaction_times_out_after_its_producers_timeout() {
    let ongoing = txn(Phase::Ongoing, Version::Two);
    assert!(!ongoing.timed_out(NOW + 60_000));
    assert!(ongoing.timed_out(NOW + 60_001));
    assert!(!txn(Phase::CompleteCommit, Version::Two).timed_out(i64::MAX));
}

#[test]
fn transaction_records_round_trip_in_kafkas_format() {
    assert_eq!(encode_key("ab"), &[0, 0, 0, 2, b'a', b'b'][..]);
    assert_eq!(decode_key(&encode_key("ab")), Some("ab"));
    assert_eq!(decode_key(&b"\0\x01\0\0"[..].into()), None);
    let mut ongoing = txn(Phase::Ongoing, Version::Two);
    ongoing.previous_id = 6;
    let head = [&[0, 1][..], &ID.to_be_bytes(), &[0, 5], &60_000_i32.to_be_bytes(), &[1]].concat();
    let partitions = [&[2, 2, b't', 2][..], &3_i32.to_be_bytes(), &[0]].concat();
    let times = [NOW.to_be_bytes(), NOW.to_be_bytes()].concat();
    let tags = [&[2, 0, 8][..], &6_i64.to_be_bytes(), &[2, 2, 0, 2]].concat();
    let value = encode_value(&ongoing, Format::Flexible);
    assert_eq!(value, [head, partitions, times, tags].concat());
    assert_eq!(decode_value(&value), Some(ongoing.clone()));
    for end in 0..value.len() {
        assert_eq!(decode_value(&value.slice(..end)), None, "{end} bytes");
    }
    // Fields that version 0 does not have.
    let classic = encode_value(&ongoing, Format::Classic);
    (ongoing.previous_id, ongoing.version) = (NO_ID, Version::One);
    assert_eq!(decode_value(&classic), Some(ongoing));
    let empty = txn(Phase::Empty, Version::One);
    for format in [Format::Classic, Format::Flexible] {
        assert_eq!(decode_value(&encode_value(&empty, format)), Some(empty.clone()));
    }
}

/// One step of a producer, or of its coordinator.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The partitions' leaders confirm the markers.
    Complete,
    Add,
    End(EndTxnMarker),
    /// Like [`Step::End`], with a lost response: the producer retries later.
    EndUnanswered(EndTxnMarker),
    /// InitProducerId of the same producer, to recover from an error.
    Recover,
}

fn step() -> impl Strategy<Value = Step> {
    let marker = || prop_oneof![Just(EndTxnMarker::Commit), Just(EndTxnMarker::Abort)];
    prop_oneof![
        Just(Step::Complete),
        Just(Step::Add),
        marker().prop_map(Step::End),
        marker().prop_map(Step::EndUnanswered),
        Just(Step::Recover),
    ]
}

/// A producer that sends each request with the id and epoch of the previous response.
struct Honest {
    txn: Txn,
    producer: ProducerEpoch,
    /// The EndTxn without a response, and the id and epoch of its request.
    unanswered: Option<(ProducerEpoch, EndTxnMarker)>,
    last_id: i64,
}

impl Honest {
    fn end(
        &mut self,
        from: ProducerEpoch,
        result: EndTxnMarker,
    ) -> Result<ProducerEpoch, ErrorCode> {
        let new_id = self.last_id + 1;
        match self.txn.end(from, result, Version::Two, NOW, || new_id)? {
            End::Decided(next) => {
                self.last_id = new_id;
                let after = next.producer_after();
                self.txn = next;
                Ok(after)
            }
            End::Done => Ok(self.txn.producer),
        }
    }

    fn take(&mut self, step: Step) -> Result<(), ErrorCode> {
        if let (Some((from, result)), false) = (self.unanswered, matches!(step, Step::Complete)) {
            self.producer = self.end(from, result)?;
            self.unanswered = None;
            return Ok(());
        }
        match step {
            Step::Complete => self.txn = self.txn.complete(NOW).unwrap_or(self.txn.clone()),
            Step::Add => {
                let added = self.txn.add(self.producer, &[partition()].into(), NOW)?;
                self.txn = added.unwrap_or(self.txn.clone());
            }
            Step::End(result) => self.producer = self.end(self.producer, result)?,
            Step::EndUnanswered(result) => {
                let from = self.producer;
                self.end(from, result)?;
                self.unanswered = Some((from, result));
            }
            // As in Kafka's producer, the open transaction is aborted first.
            Step::Recover if self.txn.phase == Phase::Ongoing => {
                self.producer = self.end(self.producer, EndTxnMarker::Abort)?;
            }
            Step::Recover => {
                let new_id = self.last_id + 1;
                let init = self.txn.init(Some(self.producer), 1, NOW, Version::Two, || new_id)?;
                let Init::Ready(next) = init else { panic!("a settled id is not fenced") };
                self.last_id = new_id;
                (self.producer, self.txn) = (next.producer, next);
            }
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn a_producer_without_a_competitor_is_never_fenced(
        epochs_left in 1_i16..12,
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut txn = txn(Phase::Empty, Version::One);
        txn.producer.epoch = i16::MAX - epochs_left;
        let producer = txn.producer;
        let mut honest = Honest { txn, producer, unanswered: None, last_id: NEW_ID };
        for step in steps {
            match honest.take(step) {
                Ok(()) | Err(ErrorCode::CONCURRENT_TRANSACTIONS) => {}
                // A commit of an empty transaction.
                Err(ErrorCode::INVALID_TXN_STATE) => {}
                Err(code) => prop_assert!(false, "{step:?} was refused with {code:?}"),
            }
        }
    }
}
