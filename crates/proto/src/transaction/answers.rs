//! How responses of coordinators, and of brokers to produce requests, affect a transaction.
//!
//! Errors are of three kinds (KIP-691, KIP-1050). After a retriable error the request is repeated. After an abortable
//! error the transaction can only be aborted. After a fatal error the producer has failed for good.

use std::{sync::Arc, time::Instant};

use curtail_wire::ErrorCode;

use super::{Coordinator, Key, Machine, Outcome, Phase, Protocol, Reason, Request};
use crate::{accumulator::ProducerIdentity, later::Later, metadata::Node};

/// Severity of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The transaction must be aborted.
    Abortable,
    /// The producer has failed for good.
    Fatal,
}

/// A response, or its absence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply<E> {
    /// No response: it is unknown whether the request was carried out.
    Lost(E),
    /// The request cannot be sent, now or later, for example without a common version.
    Impossible(E),
    /// The coordinator refused the whole request.
    Refused(ErrorCode),
    /// To [`Request::InitProducerId`], and to [`Request::End`] with version 2: the producer's identity from now on.
    Identity(ProducerIdentity),
    /// To [`Request::AddOffsets`], and to [`Request::End`] with version 1: success.
    Done,
    /// To [`Request::AddPartitions`] and [`Request::CommitOffsets`]: one code per partition.
    Each(Vec<(Key, ErrorCode)>),
}

/// Severity of a batch's failure for its transaction; `None` is an error of the client itself, such as the end of
/// `delivery.timeout.ms`.
///
/// INVALID_PRODUCER_EPOCH is not fatal here: a leader may lag behind or be ahead of the coordinator. The end of the
/// transaction shows whether the producer is fenced.
pub fn severity_of_batch(code: Option<ErrorCode>) -> Severity {
    match code {
        Some(
            ErrorCode::PRODUCER_FENCED
            | ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            | ErrorCode::CLUSTER_AUTHORIZATION_FAILED
            | ErrorCode::UNSUPPORTED_VERSION,
        ) => Severity::Fatal,
        _ => Severity::Abortable,
    }
}

/// The reaction to a refusal.
enum Remedy {
    /// Repeat the request to the same coordinator.
    Repeat,
    /// Repeat the request soon: the cause takes milliseconds.
    RepeatSoon,
    /// Find the coordinator again.
    Elsewhere,
    /// Return to the state before [`Machine::init`], which may be called again.
    NotInitialized,
    Abort,
    /// As `Abort`, and the producer needs a new epoch.
    AbortAndRenew,
    /// As `AbortAndRenew`, and the coordinator knows no transaction that could be ended.
    Forgotten,
    Fatal,
}

fn remedy(request: &Request, code: ErrorCode) -> Remedy {
    let is_init = matches!(request, Request::InitProducerId(_));
    let is_first = matches!(request, Request::InitProducerId(None));
    let is_commit_of_offsets = matches!(request, Request::CommitOffsets(_));
    match code {
        ErrorCode::NOT_COORDINATOR | ErrorCode::COORDINATOR_NOT_AVAILABLE => Remedy::Elsewhere,
        ErrorCode::REQUEST_TIMED_OUT if is_commit_of_offsets => Remedy::Elsewhere,
        ErrorCode::CONCURRENT_TRANSACTIONS => Remedy::RepeatSoon,
        code if code.is_retriable() => Remedy::Repeat,
        ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        | ErrorCode::CLUSTER_AUTHORIZATION_FAILED
        | ErrorCode::INVALID_TRANSACTION_TIMEOUT
            if is_first =>
        {
            Remedy::NotInitialized
        }
        ErrorCode::UNKNOWN_PRODUCER_ID if !is_init => Remedy::AbortAndRenew,
        ErrorCode::INVALID_PRODUCER_ID_MAPPING if !is_init => Remedy::Forgotten,
        ErrorCode::TRANSACTION_ABORTABLE
        | ErrorCode::TOPIC_AUTHORIZATION_FAILED
        | ErrorCode::GROUP_AUTHORIZATION_FAILED
        | ErrorCode::FENCED_INSTANCE_ID
        | ErrorCode::UNKNOWN_MEMBER_ID
        | ErrorCode::ILLEGAL_GENERATION
        | ErrorCode::STALE_MEMBER_EPOCH
        | ErrorCode::OFFSET_METADATA_TOO_LARGE
        | ErrorCode::INVALID_COMMIT_OFFSET_SIZE
        | ErrorCode::OPERATION_NOT_ATTEMPTED
            if !is_init =>
        {
            Remedy::Abort
        }
        _ => Remedy::Fatal,
    }
}

impl Request {
    /// Kafka's name of the request.
    pub fn name(&self) -> &'static str {
        match self {
            Self::InitProducerId(_) => "InitProducerId",
            Self::AddPartitions(_) => "AddPartitionsToTxn",
            Self::AddOffsets(_) => "AddOffsetsToTxn",
            Self::CommitOffsets(_) => "TxnOffsetCommit",
            Self::End(_) => "EndTxn",
        }
    }
}

impl<E: Clone> Machine<E> {
    /// Reports the coordinator, or why it was not found.
    pub fn found(
        &mut self,
        coordinator: Coordinator,
        found: Result<Node, Reply<E>>,
        now: Instant,
        unit: f64,
    ) {
        let reply = match found {
            Ok(node) => {
                self.coordinators.insert(coordinator, node);
                return;
            }
            Err(reply) => reply,
        };
        let reason = |code| Reason::Refused {
            request: "FindCoordinator",
            about: match &coordinator {
                Coordinator::Transaction => String::new(),
                Coordinator::Group(group) => format!("group '{group}'"),
            },
            code,
        };
        match reply {
            Reply::Impossible(error) => self.fatal(Reason::Reported(error)),
            Reply::Refused(code) if code.is_retriable() => self.repeat(reason(code), now, unit),
            Reply::Refused(
                code @ (ErrorCode::GROUP_AUTHORIZATION_FAILED | ErrorCode::TRANSACTION_ABORTABLE),
            ) => match self.phase {
                Phase::Open | Phase::Committing => self.abortable(reason(code)),
                // Without an open transaction, there is none to abort: the lookup is repeated after a backoff.
                _ => self.repeat(reason(code), now, unit),
            },
            Reply::Refused(code) if matches!(self.phase, Phase::Initializing) => {
                self.phase = Phase::New(Some(reason(code)));
            }
            Reply::Refused(code) => self.fatal(reason(code)),
            Reply::Lost(error) => self.repeat(Reason::Reported(error), now, unit),
            Reply::Identity(_) | Reply::Done | Reply::Each(_) => {}
        }
    }

    /// Reports the cluster's level of the feature `transaction.version`. The next transaction follows it.
    pub fn coordinator_speaks(&mut self, level: i16) {
        self.level = level;
    }

    /// Reports the outcome of a request from [`Machine::next`]. Returns the partitions that may be written to from
    /// now on. `unit` is a random draw from `[0, 1)`.
    pub fn answered(
        &mut self,
        coordinator: &Coordinator,
        request: &Request,
        reply: Reply<E>,
        now: Instant,
        unit: f64,
    ) -> Vec<Key> {
        match (request, reply) {
            (_, Reply::Lost(error)) => {
                self.doubt(request);
                self.coordinators.remove(coordinator);
                self.repeat(Reason::Reported(error), now, unit);
            }
            (_, Reply::Impossible(error)) => self.fatal(Reason::Reported(error)),
            (_, Reply::Refused(code)) => {
                self.refused(coordinator, request, String::new(), code, now, unit);
            }
            (Request::InitProducerId(_), Reply::Identity(identity)) => {
                self.identity = Some(identity);
                self.finish();
            }
            (Request::AddPartitions(_), Reply::Each(results)) => {
                return self.added(coordinator, request, results, now, unit);
            }
            (Request::AddOffsets(group), Reply::Done) => self.group_added(group),
            (Request::CommitOffsets(offsets), Reply::Each(results)) => {
                self.offsets_committed(coordinator, request, offsets, &results, now, unit);
            }
            (Request::End(outcome), Reply::Identity(identity)) => {
                self.identity = Some(identity);
                self.ended(*outcome);
            }
            (Request::End(outcome), Reply::Done) => self.ended(*outcome),
            // The caller cannot send these replies to these requests.
            (_, Reply::Identity(_) | Reply::Done | Reply::Each(_)) => {}
        }
        Vec::new()
    }

    fn added(
        &mut self,
        coordinator: &Coordinator,
        request: &Request,
        results: Vec<(Key, ErrorCode)>,
        now: Instant,
        unit: f64,
    ) -> Vec<Key> {
        // All partitions are added or none. The code of the one at fault is more specific than OPERATION_NOT_ATTEMPTED.
        let refused =
            |code: ErrorCode| code.is_error() && code != ErrorCode::OPERATION_NOT_ATTEMPTED;
        let worst = results.iter().find(|(_, code)| refused(*code));
        let worst = worst.or_else(|| results.iter().find(|(_, code)| code.is_error()));
        if let Some(((topic, index), code)) = worst {
            self.refused(coordinator, request, format!("{topic}-{index}"), *code, now, unit);
            return Vec::new();
        }
        let done: Vec<Key> =
            results.into_iter().map(|(key, _)| key).filter(|key| self.adding.remove(key)).collect();
        self.started = true;
        self.in_doubt = false;
        self.repeat_at_once();
        done
    }

    fn group_added(&mut self, group: &Arc<str>) {
        self.started = true;
        self.group_in_doubt = None;
        for pending in self.offsets.iter_mut().filter(|p| p.offsets.group == *group) {
            pending.group_added = true;
        }
        self.repeat_at_once();
    }

    fn offsets_committed(
        &mut self,
        coordinator: &Coordinator,
        request: &Request,
        offsets: &Arc<super::GroupOffsets>,
        results: &[(Key, ErrorCode)],
        now: Instant,
        unit: f64,
    ) {
        // After retriable errors the request is repeated as a whole: offsets committed twice are the same offsets.
        // Other errors decide.
        let failed = |passing: bool| {
            let matching = |code: ErrorCode| code.is_error() && code.is_retriable() == passing;
            results.iter().find(move |(_, code)| matching(*code))
        };
        if let Some(((topic, index), code)) = failed(false).or_else(|| failed(true)) {
            let about = format!("group '{}', {topic}-{index}", offsets.group);
            return self.refused(coordinator, request, about, *code, now, unit);
        }
        let is_front = self.offsets.front().is_some_and(|p| Arc::ptr_eq(&p.offsets, offsets));
        if is_front && let Some(pending) = self.offsets.pop_front() {
            self.offsets_done = pending.ticket;
        }
        self.repeat_at_once();
    }

    fn ended(&mut self, outcome: Outcome) {
        if outcome == Outcome::Abort && self.renew && self.protocol == Protocol::V1 {
            self.phase = Phase::Renewing;
            self.repeat_at_once();
            return;
        }
        self.finish();
    }

    fn refused(
        &mut self,
        coordinator: &Coordinator,
        request: &Request,
        about: String,
        code: ErrorCode,
        now: Instant,
        unit: f64,
    ) {
        if !proves_nothing_added(code) {
            self.doubt(request);
        }
        let reason = Reason::Refused { request: request.name(), about, code };
        match remedy(request, code) {
            Remedy::Repeat => self.repeat(reason, now, unit),
            Remedy::RepeatSoon => self.repeat_soon(reason, now, unit),
            Remedy::Elsewhere => {
                self.coordinators.remove(coordinator);
                self.repeat(reason, now, unit);
            }
            Remedy::NotInitialized => self.phase = Phase::New(Some(reason)),
            Remedy::Abort => self.abortable(reason),
            Remedy::AbortAndRenew => {
                self.renew = true;
                self.abortable(reason);
            }
            Remedy::Forgotten => {
                self.unknown_to_coordinator = true;
                self.abortable(reason);
            }
            // A partition that cannot be added concerns this transaction only, unless the code fences the producer.
            Remedy::Fatal
                if matches!(request, Request::AddPartitions(_)) && !is_fatal_to_producer(code) =>
            {
                self.abortable(reason);
            }
            Remedy::Fatal => self.fatal(reason),
        }
    }

    /// Records that this attempt may have been carried out. Only a success, the end of the transaction, or a coordinator
    /// that does not know the producer settles it: a later refusal is about the later attempt alone.
    fn doubt(&mut self, request: &Request) {
        match request {
            Request::AddPartitions(_) => self.in_doubt = true,
            Request::AddOffsets(group) => self.group_in_doubt = Some(group.clone()),
            Request::InitProducerId(_) | Request::CommitOffsets(_) | Request::End(_) => {}
        }
    }

    fn repeat(&mut self, reason: Reason<E>, now: Instant, unit: f64) {
        self.failures += 1;
        self.not_before = Some(now.later(self.backoff.after(self.failures, unit)));
        self.last = Some(reason);
    }

    fn repeat_soon(&mut self, reason: Reason<E>, now: Instant, unit: f64) {
        self.failures += 1;
        self.not_before = Some(now.later(self.backoff.brief().after(self.failures, unit)));
        self.last = Some(reason);
    }
}

/// Whether the coordinator sends this code before it changes the transaction. It also responds with NOT_COORDINATOR,
/// COORDINATOR_NOT_AVAILABLE and others when its own append fails, and that record may still be replicated.
fn proves_nothing_added(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::CONCURRENT_TRANSACTIONS
            | ErrorCode::COORDINATOR_LOAD_IN_PROGRESS
            | ErrorCode::TOPIC_AUTHORIZATION_FAILED
            | ErrorCode::GROUP_AUTHORIZATION_FAILED
            | ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            | ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode::INVALID_TOPIC_EXCEPTION
            | ErrorCode::OPERATION_NOT_ATTEMPTED
            | ErrorCode::TRANSACTION_ABORTABLE
            | ErrorCode::INVALID_PRODUCER_ID_MAPPING
            | ErrorCode::INVALID_PRODUCER_EPOCH
            | ErrorCode::PRODUCER_FENCED
            | ErrorCode::INVALID_TXN_STATE
            | ErrorCode::INVALID_REQUEST
            | ErrorCode::UNSUPPORTED_VERSION
    )
}

fn is_fatal_to_producer(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::PRODUCER_FENCED
            | ErrorCode::INVALID_PRODUCER_EPOCH
            | ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            | ErrorCode::INVALID_TXN_STATE
            | ErrorCode::UNSUPPORTED_VERSION
    )
}
