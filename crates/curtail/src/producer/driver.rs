//! A lane's task: connects, reads responses, writes ready requests and keeps request deadlines.

use std::{
    collections::BTreeSet,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::{Arc, Weak},
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use curtail_net::{ReadSide, Socket};
use curtail_proto::{
    accumulator::Branch,
    backoff::Backoff,
    link::{Reason, State},
    path::Trouble,
};
use curtail_wire::{
    ApiKey,
    frame::FrameSplitter,
    header,
    produce::{self, ProduceResponse},
};
use tokio::{
    io::AsyncReadExt as _,
    time::{Instant, Sleep, sleep, sleep_until, timeout},
};

use super::{
    lane::{Lane, Pumped, Suspected},
    renewal::Renewal,
    settle,
    shared::{Shared, address_of},
    trace, transaction,
};
use crate::{
    Error, Result,
    conn::{
        Connection, Parts, READ_HINT, connection_error, frame_error, protocol_error, socket_error,
    },
};

/// While a broker is unreachable, interval between lookups of its partitions' leaders.
const LOOKUP_PAUSE: Duration = Duration::from_millis(100);

/// Every this many lookups, topics without waiting records are looked up too, if keyless records avoid some of their
/// partitions. The cluster may have removed the broker for which they are avoided.
const LOOKUPS_PER_REVIEW: u32 = 10;

/// Why batches leave an unresponsive broker.
const DESERTED: &str = "no response, and the partition has a new leader";

/// Responses handled before other tasks run.
const ANSWERS_A_TURN: usize = 32;

/// Drives a lane until its producer is dropped.
pub(super) async fn run(lane: Arc<Lane>, shared: Weak<Shared>) {
    let mut failures = 0;
    loop {
        match lane.branch {
            Branch::Side => lane.work_queued().await,
            // A main lane connects before its first record.
            Branch::Main => lane.needed().await,
        }
        let Some(strong) = shared.upgrade() else { return };
        let connected = looking_elsewhere(&lane, &shared, connect(&lane, &strong)).await;
        match connected {
            Ok(mut session) => {
                strong.progress.notify_waiters();
                lane.stats.connected();
                trace::connection(&lane, None);
                let error = poll_fn(|cx| session.poll(cx, &lane, &strong)).await;
                lane.stats.disconnected();
                trace::connection(&lane, Some(&error));
                tracing::debug!(broker = lane.broker, error = %error.report(), "produce connection lost");
                if lane.branch == Branch::Side {
                    // Without a connection it says nothing about the broker.
                    lane.gate.set_trouble(Trouble::Fine);
                    strong.notice(&lane);
                } else if !session.is_given_up {
                    lane.gate.set_unreachable();
                    strong.notice(&lane);
                }
                settle::connection_lost(&strong, lane.broker, lane.take_down(), &error);
                if session.is_unused && lane.branch == Branch::Main {
                    lane.rest();
                    strong.progress.notify_waiters();
                }
                if !session.is_given_up && !session.proven {
                    strong.close_side(&lane);
                }
                give_up_late(&lane, &strong, &error);
                // A connection that has worked is replaced at once. A broker that only completes handshakes causes a
                // backoff.
                failures = if session.proven || session.is_unused { 0 } else { failures + 1 };
            }
            Err(error) => {
                tracing::debug!(broker = lane.broker, error = %error.report(), "cannot connect");
                if lane.branch == Branch::Side {
                    strong.close_side(&lane);
                    continue;
                }
                lane.gate.set_unreachable();
                strong.notice(&lane);
                failures += 1;
                if error.needs_other_settings() || matches!(error, Error::UnsupportedVersion(_)) {
                    refuse(&lane, &strong, &error);
                }
                give_up_late(&lane, &strong, &error);
            }
        }
        if failures > 0 {
            let common = &strong.config.common;
            let backoff =
                Backoff { initial: common.reconnect_backoff, max: common.reconnect_backoff_max };
            let pause = backoff.after(failures, strong.env.entropy.unit());
            drop(strong);
            let pause = async {
                tokio::select! {
                    biased;
                    () = lane.work_expected() => {}
                    () = sleep(pause) => {}
                }
            };
            looking_elsewhere(&lane, &shared, pause).await;
        }
    }
}

/// Waits for `step`. While the broker is unresponsive or unreachable, repeatedly looks up the leaders of its waiting
/// partitions, which may have moved.
async fn looking_elsewhere<S: Future>(lane: &Lane, shared: &Weak<Shared>, step: S) -> S::Output {
    let mut step = pin!(step);
    let mut lookups = 0u32;
    loop {
        tokio::select! {
            biased;
            done = &mut step => return done,
            () = sleep(LOOKUP_PAUSE) => {}
        }
        if lane.gate.is_fine() {
            continue;
        }
        let Some(shared) = shared.upgrade() else { continue };
        look_up(lane, &shared);
        lookups = lookups.wrapping_add(1);
        if lookups.is_multiple_of(LOOKUPS_PER_REVIEW) {
            look_up_avoided(lane, &shared);
        }
    }
}

/// Looks up the leaders of the lane's waiting partitions through another broker.
fn look_up(lane: &Lane, shared: &Shared) {
    let topics: BTreeSet<Arc<str>> =
        lane.waiting().into_iter().map(|partition| partition.topic.clone()).collect();
    for topic in topics {
        shared.metadata.request_refresh_avoiding(Some(&topic), lane.broker);
    }
}

/// Looks up topics of which keyless records avoid some partitions.
fn look_up_avoided(lane: &Lane, shared: &Shared) {
    let topics = shared.topics.load();
    for topic in topics.values().filter(|topic| topic.routes.load().avoid_some()) {
        shared.metadata.request_refresh_avoiding(Some(&topic.name), lane.broker);
    }
}

/// Without a connection: fails overdue records, and looks up the leaders of the rest.
fn give_up_late(lane: &Lane, shared: &Shared, error: &Error) {
    for partition in lane.waiting() {
        shared.expire(&partition, Some(error));
    }
    look_up(lane, shared);
    look_up_avoided(lane, shared);
}

/// Fails the records for a broker that refuses this client whatever it sends.
fn refuse(lane: &Lane, shared: &Shared, error: &Error) {
    for partition in lane.waiting() {
        shared.refuse(&partition, error);
    }
}

async fn connect(lane: &Lane, shared: &Shared) -> Result<Session> {
    let Some((host, port)) = address_of(shared, lane.broker) else {
        return Err(connection_error(
            &format!("broker {}", lane.broker).into(),
            "its address is not known",
        ));
    };
    let open = Connection::open_for_produce(&shared.env, &shared.config.common, &host, port);
    let mut open = pin!(open);
    let connection = tokio::select! {
        biased;
        opened = &mut open => opened?,
        () = sleep(lane.patience()) => {
            if lane.branch == Branch::Side {
                let reason = "the second connection takes too long";
                return Err(connection_error(&format!("{host}:{port}").into(), reason));
            }
            // Placement of records need not wait for socket.connection.setup.timeout.ms to learn of it.
            lane.gate.set_unreachable();
            shared.notice(lane);
            open.await?
        }
    };
    let version = connection.negotiate(ApiKey::PRODUCE, produce::VERSIONS)?;
    let Parts { socket, splitter, peer, session, request_timeout } = connection.into_parts();
    let renewal =
        session.map(|session| Renewal::new(session, socket.clone(), peer.clone(), request_timeout));
    lane.open(socket.clone(), version);
    lane.gate.set_trouble(Trouble::Fine);
    shared.notice(lane);
    let timer = Box::pin(sleep_until(Instant::now()));
    Ok(Session {
        socket,
        splitter,
        peer,
        proven: false,
        is_given_up: false,
        is_unused: false,
        timer,
        renewal,
    })
}

/// Applies the broker's throttle time, which the broker would otherwise enforce itself (KIP-219). Limited to
/// `request.timeout.ms`.
fn throttle(lane: &Lane, shared: &Shared, asked: Duration) {
    lane.stats.throttled(asked);
    let throttle = asked.min(shared.config.common.request_timeout);
    lane.line().link.handle_throttle(throttle, Instant::now().into_std());
}

/// Checks whether a late broker completes a handshake. If not, it is unresponsive, and not only busy or waiting for
/// others.
async fn knock(lane: Arc<Lane>, shared: Weak<Shared>, limit: Duration) {
    let Some(strong) = shared.upgrade() else { return };
    let Some((host, port)) = address_of(&strong, lane.broker) else { return };
    let (env, common) = (strong.env.clone(), strong.config.common.clone());
    drop(strong);
    if !matches!(timeout(limit, Connection::open(&env, &common, &host, port)).await, Ok(Ok(_))) {
        lane.mark_unreachable();
    }
}

/// The reading side of an open connection, and its timer.
struct Session {
    socket: Arc<dyn Socket>,
    splitter: FrameSplitter,
    peer: Arc<str>,
    /// Whether the broker has responded to a request.
    proven: bool,
    /// Whether the connection ends although the broker works: it waits for another one ([`Self::look_into`]), or the
    /// lane has nothing more to send.
    is_given_up: bool,
    /// Whether the connection ends because the lane has sent nothing for a while.
    is_unused: bool,
    timer: Pin<Box<Sleep>>,
    /// With SASL only.
    renewal: Option<Renewal>,
}

impl Session {
    /// Runs until the connection is unusable. Returns the reason.
    fn poll(&mut self, cx: &mut Context<'_>, lane: &Arc<Lane>, shared: &Shared) -> Poll<Error> {
        // Registered first: work submitted from here on wakes this task again.
        lane.register(cx.waker());
        loop {
            if let Err(error) = self.poll_answers(cx, lane, shared) {
                return Poll::Ready(error);
            }
            shared.notice(lane);
            if let Err(error) = self.follow_leaders(lane, shared) {
                return Poll::Ready(error);
            }
            if let Err(error) = self.poll_writes(cx, lane, shared) {
                return Poll::Ready(socket_error(&self.peer, error));
            }
            match self.poll_renewal(cx, lane) {
                // Requests held back by the renewal can be sent.
                Poll::Ready(Ok(())) => continue,
                Poll::Ready(Err(error)) => return Poll::Ready(error),
                Poll::Pending => {}
            }
            match ready!(self.poll_deadlines(cx, lane, shared)) {
                Ok(()) => {}
                Err(error) => return Poll::Ready(error),
            }
        }
    }

    fn poll_answers(&mut self, cx: &mut Context<'_>, lane: &Lane, shared: &Shared) -> Result<()> {
        for _ in 0..ANSWERS_A_TURN {
            if let Some(frame) =
                self.splitter.next_frame().map_err(|e| frame_error(&self.peer, e))?
            {
                self.answer(&frame, lane, shared)?;
                continue;
            }
            let mut side = ReadSide(&*self.socket);
            let spare = self.splitter.spare(READ_HINT);
            match pin!(side.read_buf(spare)).poll(cx) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Ok(0)) => {
                    return Err(connection_error(&self.peer, "closed by the broker"));
                }
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(e)) => return Err(socket_error(&self.peer, e)),
            }
        }
        cx.waker().wake_by_ref();
        Ok(())
    }

    fn answer(&mut self, frame: &Bytes, lane: &Lane, shared: &Shared) -> Result<()> {
        if let Some(renewal) = &self.renewal
            && lane.is_renewing()
        {
            renewal.answered(frame);
            return Ok(());
        }
        let broken = |reason: String| protocol_error(&self.peer, reason);
        let id = header::correlation_id(frame).map_err(|e| broken(e.to_string()))?;
        let now = Instant::now();
        let request = lane.answered(id, frame.len(), now).map_err(|e| broken(e.to_string()))?;
        let version = request.envelope.version;
        let answer = header::response_body(frame, ApiKey::PRODUCE, version)
            .and_then(|body| ProduceResponse::decode(version, &body));
        match answer {
            Ok(answer) => {
                self.proven = true;
                let pause = u64::try_from(answer.throttle_time_ms).unwrap_or(0);
                if pause > 0 {
                    throttle(lane, shared, Duration::from_millis(pause));
                }
                trace::answered(lane, id, &request, &answer);
                request.envelope.span.refused(|| settle::refusal(&answer, &request.batches));
                settle::answered(shared, lane.broker, request, &answer, now);
                Ok(())
            }
            Err(error) => {
                let error = broken(error.to_string());
                settle::connection_lost(shared, lane.broker, vec![request], &error);
                Err(error)
            }
        }
    }

    /// Handles a late broker. Its partitions may have new leaders, so they are looked up. If the broker only waits
    /// for an unresponsive replica, the connection is closed. Kafka serves one request of a connection at a time, and
    /// later requests could be acknowledged. It is also closed if the request may wait for a replaced coordinator of
    /// the transaction, unless expired batches of it may still be appended ([`transaction::Strays`]).
    fn look_into(
        &mut self,
        suspected: &Suspected,
        lane: &Arc<Lane>,
        shared: &Shared,
    ) -> Result<()> {
        for topic in &suspected.topics {
            shared.metadata.request_refresh_avoiding(Some(topic), lane.broker);
        }
        // On the side lane only other batches that may wait are behind it.
        let protects = lane.branch == Branch::Main;
        if protects && shared.is_stuck_behind_replica(lane.broker, &suspected.oldest) {
            return Err(self.give_up(Reason::Stuck, lane, shared));
        }
        if let Some(control) = shared.identity.control() {
            if !suspected.has_stray && control.succession.concerns(suspected.written) {
                return Err(self.give_up(Reason::Unverified, lane, shared));
            }
            transaction::look_for_successor(shared, control);
        }
        if suspected.is_new {
            shared.runtime.spawn(knock(lane.clone(), shared.me(), suspected.limit));
        }
        Ok(())
    }

    /// Closes the connection to a broker that works.
    fn give_up(&mut self, reason: Reason, lane: &Lane, shared: &Shared) -> Error {
        lane.line().link.close(reason);
        self.closes(reason, shared)
    }

    /// The error for a connection that the link closes.
    fn closes(&mut self, reason: Reason, shared: &Shared) -> Error {
        self.is_given_up = matches!(reason, Reason::Unused | Reason::Stuck | Reason::Unverified);
        self.is_unused = reason == Reason::Unused;
        let limit = shared.config.common.request_timeout.as_millis();
        let within = |what: &str| format!("{what} within request.timeout.ms={limit}");
        let text = match reason {
            Reason::NoResponse => within("no response"),
            Reason::SocketFull => within("the broker does not read: a request was not written"),
            Reason::Unused => "it was not used for a while (connections.max.idle.ms)".into(),
            Reason::Deserted => DESERTED.into(),
            Reason::Stuck => {
                "it waits for an unresponsive replica and blocks other partitions".into()
            }
            Reason::Unverified => {
                "it may wait for a replaced coordinator of the transaction".into()
            }
        };
        connection_error(&self.peer, text)
    }

    /// Moves batches that wait for this broker's response to the leaders that have replaced it.
    fn follow_leaders(&mut self, lane: &Lane, shared: &Shared) -> Result<()> {
        let (moved, dead) = lane.take_moved(shared);
        if !moved.is_empty() {
            settle::follow_leader(shared, moved, &connection_error(&self.peer, DESERTED));
        }
        dead.map_or(Ok(()), |reason| Err(self.closes(reason, shared)))
    }

    fn poll_writes(
        &self,
        cx: &mut Context<'_>,
        lane: &Lane,
        shared: &Shared,
    ) -> std::io::Result<()> {
        while lane.transmit(shared)? == Pumped::Blocked {
            match self.socket.poll_write_ready(cx) {
                Poll::Pending => break,
                Poll::Ready(ready) => ready?,
            }
        }
        Ok(())
    }

    /// Ready when the SASL session has been renewed.
    fn poll_renewal(&mut self, cx: &mut Context<'_>, lane: &Lane) -> Poll<Result<()>> {
        let Some(renewal) = &mut self.renewal else { return Poll::Pending };
        if let Poll::Ready(due) = renewal.poll_due(cx) {
            due?;
            let mut line = lane.line();
            line.link.handle_hold();
            if !line.link.is_flushed() {
                return Poll::Pending;
            }
            drop(line);
            renewal.begin();
        }
        ready!(renewal.poll(cx))?;
        lane.line().link.handle_release();
        Poll::Ready(Ok(()))
    }

    /// Ready when a deadline has passed: with an error for a request's deadline, and otherwise because a partition is
    /// due.
    fn poll_deadlines(
        &mut self,
        cx: &mut Context<'_>,
        lane: &Arc<Lane>,
        shared: &Shared,
    ) -> Poll<Result<()>> {
        {
            let mut line = lane.line();
            let next = lane.next_deadline(&mut line);
            let is_held = matches!(line.link.state(), State::Held { .. });
            let renewal = self.renewal.as_ref().filter(|_| !is_held);
            let renew_at = renewal.and_then(Renewal::at).map(Instant::into_std);
            let Some(wire) = &mut line.wire else { return Poll::Ready(Err(Error::Closed)) };
            let Some(next) = next.into_iter().chain(renew_at).min() else {
                // An unneeded timer fires once. Only then must it be reset for the next request.
                if self.timer.is_elapsed() {
                    wire.armed.fired();
                }
                return Poll::Pending;
            };
            if wire.armed.arm(next) {
                self.timer.as_mut().reset(Instant::from_std(next));
            }
        }
        ready!(self.timer.as_mut().poll(cx));
        let (suspected, dead) = lane.timed_out(Instant::now().into_std());
        if let Some(suspected) = suspected {
            self.look_into(&suspected, lane, shared)?;
        }
        Poll::Ready(dead.map_or(Ok(()), |reason| Err(self.closes(reason, shared))))
    }
}
