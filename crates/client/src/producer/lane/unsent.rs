//! Bytes that wait for the socket, and sent batches past `delivery.timeout.ms`.

use std::time::Instant as StdInstant;

use curtail_proto::later::Later;
use tokio::time::Instant;

use super::{Lane, Link, Request, Sent, Up};
use crate::producer::{settle, shared::Shared};

/// The newest request of a connection, until the socket has accepted all of it.
pub(super) struct Unsent {
    built: Instant,
    /// Whether the socket has accepted bytes of it.
    pub(super) is_begun: bool,
    /// Whether the socket was full since the request was built.
    pub(super) was_blocked: bool,
    /// With acks=0: the request, which does not count as in flight, and the deadline that closes the connection.
    unanswered: Option<(Request, StdInstant)>,
}

impl Unsent {
    /// For an in-flight request.
    pub(super) fn new(built: Instant) -> Self {
        Self { built, is_begun: false, was_blocked: false, unanswered: None }
    }

    /// For a request with acks=0.
    pub(super) fn unanswered(request: Request, deadline: StdInstant) -> Self {
        let built = request.written;
        Self { unanswered: Some((request, deadline)), ..Self::new(built) }
    }

    /// Deadline that closes the connection, with acks=0.
    pub(super) fn deadline(&self) -> Option<StdInstant> {
        self.unanswered.as_ref().map(|(_, deadline)| *deadline)
    }

    pub(super) fn into_unanswered(self) -> Option<Request> {
        self.unanswered.map(|(request, _)| request)
    }
}

/// Sent batches past `delivery.timeout.ms`.
#[derive(Default)]
pub(in crate::producer) struct Overdue {
    /// Some of their bytes were written: the broker may have them.
    pub(in crate::producer) perhaps_written: Vec<Sent>,
    /// No byte of this attempt was written.
    pub(in crate::producer) unwritten: Vec<Sent>,
    /// Expiry of the oldest remaining batch.
    pub(in crate::producer) next: Option<StdInstant>,
}

impl Up {
    /// Whether no byte of the newest request was written.
    fn is_untouched(&self) -> bool {
        self.unsent.as_ref().is_some_and(|unsent| !unsent.is_begun)
    }

    /// The newest request, if bytes of it wait for the socket.
    fn unsent_request(&self) -> Option<&Request> {
        let unsent = self.unsent.as_ref()?;
        unsent.unanswered.as_ref().map(|(request, _)| request).or_else(|| self.in_flight.newest())
    }

    /// Withdraws the newest request. The caller ensures that no byte of it was written.
    fn withdraw(&mut self) -> Option<Request> {
        let unsent = self.unsent.take()?;
        self.outgoing.clear();
        if let Some((request, _)) = unsent.unanswered {
            return Some(request);
        }
        let request = self.in_flight.withdraw()?;
        self.sent_bytes -= request.reserved;
        Some(request)
    }

    /// Every request with an open outcome.
    fn requests_mut(&mut self) -> impl Iterator<Item = &mut Request> {
        let unanswered = self.unsent.iter_mut().flat_map(|unsent| &mut unsent.unanswered);
        self.in_flight.iter_mut().chain(unanswered.map(|(request, _)| request))
    }

    /// Whether a request has exceeded its deadline, and what it waits for.
    pub(in crate::producer) fn overdue_request(&self, now: StdInstant) -> Option<Waits> {
        let is_over = |deadline: Option<StdInstant>| deadline.is_some_and(|at| at <= now);
        if !is_over(self.next_deadline()) {
            return None;
        }
        let for_socket = self.unsent.is_some() && self.in_flight.len() <= 1;
        Some(if for_socket { Waits::ForSocket } else { Waits::ForResponse })
    }
}

impl Lane {
    /// Records that the socket has accepted all bytes of a request.
    pub(super) fn written(&self, up: &mut Up, shared: &Shared, unsent: Unsent) {
        if self.stats.stamps() {
            self.stats.drained(unsent.built.elapsed());
        }
        if unsent.was_blocked {
            // `request.timeout.ms` counts from the write.
            let now = Instant::now().into_std();
            up.in_flight.written(now.later(shared.config.common.request_timeout));
        }
        if let Some(request) = unsent.into_unanswered() {
            settle::written_without_answer(shared, request);
        }
    }

    /// Removes batches past `delivery.timeout.ms`. Their requests stay in flight, and the matching parts of a
    /// response are ignored. If the socket has accepted no byte of a request, the request is rebuilt without them.
    pub(in crate::producer) fn take_overdue(&self, shared: &Shared, now: StdInstant) -> Overdue {
        let mut overdue = Overdue::default();
        let mut link = self.link();
        let Link::Up(up) = &mut *link else { return overdue };
        let timeout = shared.config.delivery_timeout;
        let is_over = |sent: &Sent| sent.batch.created.later(timeout) <= now;
        if up.is_untouched()
            && up.unsent_request().is_some_and(|request| request.batches.iter().any(is_over))
            && let Some(mut request) = up.withdraw()
        {
            overdue.unwritten = request.batches.extract_if(.., |sent| is_over(sent)).collect();
            if !request.batches.is_empty() {
                self.build(up, shared, request.batches, request.written);
                if let Some(unsent) = &mut up.unsent {
                    // The previous request has waited for the socket.
                    unsent.was_blocked = true;
                }
            }
            self.publish_load(up);
            // Another request may fit now.
            self.wake();
        }
        for request in up.requests_mut() {
            let before = overdue.perhaps_written.len();
            let over = request.batches.extract_if(.., |sent| is_over(sent));
            overdue.perhaps_written.extend(over);
            if overdue.perhaps_written.len() > before && request.stray.is_none() {
                request.stray = shared.identity.control().map(|control| control.strays.count());
            }
            let oldest = request.batches.iter().map(|sent| sent.batch.created.later(timeout)).min();
            overdue.next = super::earlier(overdue.next, oldest);
        }
        overdue
    }
}

/// The event that a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::producer) enum Waits {
    ForSocket,
    ForResponse,
}
