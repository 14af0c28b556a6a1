//! One client's connection and its connection to the cluster.
//!
//! Two loops in one task: requests to the cluster and responses to the client. Each holds at most one frame and
//! reads the next one after it has written, so that a side that does not read stops the other one. The queue
//! between them holds the proxy's own responses; the loop of requests waits while they are larger than a frame.
//!
//! # Invariants
//! - Responses have the order of their requests, also those that the proxy gives.
//! - A frame that no fault concerns and that names no address passes with its own bytes.

use std::{collections::VecDeque, net::IpAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use curtail_net::Socket;
use curtail_wire::{
    ApiKey, Reader,
    frame::FrameSplitter,
    header::{RequestHeader, correlation_id, response_body, split_request},
    metadata::MetadataResponse,
};
use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, sleep, timeout},
};

use super::{
    Shared, addresses,
    addresses::length,
    content::{self, Asked, Content},
    refuse::{self, Merge, Verdict},
    versions,
};
use crate::{
    broker::{Next, deliver, fill, write_all},
    faults::{Item, Line, Request},
    handlers,
    observer::HandledRequest,
};

/// Most requests without a response. Further ones are not read.
const MAX_IN_FLIGHT: usize = 1000;
/// Time in which the last responses of a connection must be written, and in which the cluster must take
/// [`TIMED_WRITE`] bytes of a request. Clients give up before: five minutes are the longest rebalance of a
/// consumer by default.
const PATIENCE: Duration = Duration::from_secs(5 * 60);
/// Bytes of a request that are written at once.
const TIMED_WRITE: usize = 1024 * 1024;

/// The two ends of a connection.
pub(super) struct Connection {
    pub(super) shared: Arc<Shared>,
    /// The broker at the other end, -1 if it is not known.
    pub(super) broker: i32,
    pub(super) peer: IpAddr,
    pub(super) line: Arc<Line>,
    pub(super) client: Box<dyn Socket>,
    pub(super) cluster: Box<dyn Socket>,
    pub(super) in_flight: InFlight,
}

/// The requests without a response, oldest first.
pub(super) struct InFlight {
    state: Mutex<Waiting>,
    /// More bytes than this in the queue leave no room.
    max_bytes: usize,
    /// A response of the proxy may be first, or no request follows.
    first: Notify,
    /// A request has left the queue.
    room: Notify,
}

#[derive(Default)]
struct Waiting {
    queue: VecDeque<Expected>,
    /// Bytes that the requests in the queue hold.
    bytes: usize,
    /// No request follows: the connection closes after the responses, with this reason.
    end: Option<Ended>,
}

/// Why a connection must be closed, if one side has broken the protocol.
type Ended = Result<(), String>;

/// A request whose response has not been written.
struct Expected {
    api: ApiKey,
    version: i16,
    correlation_id: i32,
    client_id: Arc<str>,
    /// Bytes of the request.
    received: usize,
    begun: Instant,
    from: Origin,
    /// Partitions that a request to Fetch names, while there are faults.
    asked: Vec<Asked>,
    /// Faults of requests with a part that this one has.
    named: Mutex<Vec<String>>,
}

/// The origin of a response.
enum Origin {
    Cluster,
    /// Of the cluster, without the refused parts.
    Both(Merge),
    /// This frame of the proxy.
    Proxy(Bytes),
}

/// What happens with a request.
enum Pass {
    /// It passes and has no response.
    Unanswered,
    /// It passes with these bytes.
    As(Bytes, Origin),
    /// The proxy responds.
    Answered(Bytes),
    Close,
}

impl Connection {
    /// Passes requests and responses until one side closes. Requests before the end get their responses, as
    /// from a broker, which handles one at a time.
    ///
    /// # Errors
    /// Why the connection must be closed, if one side has broken the protocol.
    pub(super) async fn converse(&self) -> Ended {
        let requests = async {
            let ended = self.requests().await;
            self.in_flight.end(ended);
            sleep(PATIENCE).await;
        };
        tokio::select! {
            biased;
            ended = self.responses() => ended,
            // The client may be gone, and the cluster silent.
            () = requests => self.in_flight.give_up(),
        }
    }

    async fn requests(&self) -> Ended {
        let mut frames = FrameSplitter::new(self.shared.max_frame);
        let mut out = Vec::with_capacity(2);
        let mut client_id: Arc<str> = "".into();
        loop {
            let frame = frames.next_frame().map_err(|error| format!("from the client: {error}"))?;
            let Some(frame) = frame else {
                match fill(self.client.as_ref(), &mut frames).await {
                    Ok(1..) => continue,
                    // It may still read.
                    Ok(0) => return Ok(()),
                    Err(_) => {
                        self.in_flight.abandon();
                        return Ok(());
                    }
                }
            };
            let Ok((header, body)) = split_request(&frame) else {
                return Err("malformed request header".to_owned());
            };
            let of = header.client_id.unwrap_or_default();
            self.line.identify(of);
            self.line.arrived().await;
            if *client_id != *of {
                client_id = of.into();
            }
            self.in_flight.has_room().await;
            let mut expected = Expected::new(&header, &client_id, frame.len());
            match self.take(&header, &frame, &body, &mut expected)? {
                Pass::Unanswered => self.forward(frame, &mut out).await?,
                Pass::As(bytes, from) => {
                    expected.from = from;
                    self.in_flight.push(expected);
                    self.forward(bytes, &mut out).await?;
                }
                Pass::Answered(bytes) => {
                    expected.from = Origin::Proxy(bytes);
                    self.in_flight.push(expected);
                }
                Pass::Close => return Ok(()),
            }
        }
    }

    /// Writes a request to the cluster. If the connection is broken, it does not return: the other loop
    /// passes the responses that have arrived, and then ends. The client's end is not noticed during a write, so a
    /// write that takes long fails.
    async fn forward(&self, mut frame: Bytes, out: &mut Vec<Bytes>) -> Ended {
        out.push(length(frame.len()));
        while !frame.is_empty() {
            out.push(frame.split_to(frame.len().min(TIMED_WRITE)));
            match timeout(PATIENCE, write_all(self.cluster.as_ref(), out)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => std::future::pending().await,
                Err(_) => return Err("the cluster takes no request".to_owned()),
            }
        }
        Ok(())
    }

    /// Decides about a request.
    fn take(
        &self,
        header: &RequestHeader<'_>,
        frame: &Bytes,
        body: &Bytes,
        expected: &mut Expected,
    ) -> Result<Pass, String> {
        let RequestHeader { api, version, .. } = *header;
        let faults = &self.shared.faults;
        let asked = self.as_faults_see_it(api, header.client_id.unwrap_or_default());
        let release = faults.release(&asked);
        if !versions::may_pass(api, version, release) {
            if api != ApiKey::API_VERSIONS {
                return Err(format!("{api} {version}: the proxy does not offer this version"));
            }
            let mut out = Vec::new();
            handlers::unsupported(header, release, &mut out)?;
            let frame = out.pop().unwrap_or_default();
            // The length is added when it is written.
            return Ok(Pass::Answered(frame.slice(4..)));
        }
        if faults.closes(&asked) {
            return Ok(Pass::Close);
        }
        let mut pass = Pass::As(frame.clone(), Origin::Cluster);
        if faults.is_active() {
            if api == ApiKey::FETCH {
                expected.asked = content::asked(version, body);
            }
            let mut ask = |item: Item<'_>| faults.error(&asked, item, &expected.named);
            match refuse::decide(header, body, &self.shared.directory, &mut ask) {
                Ok(Verdict::Forward) => {}
                // The cluster judges it.
                Err(reason) => {
                    let broker = self.broker;
                    tracing::warn!(broker, %api, version, reason, "passed without faults of its parts");
                }
                Ok(Verdict::Part { request, merge }) => {
                    pass = Pass::As(request, Origin::Both(merge));
                }
                Ok(Verdict::Refused(frame)) => return Ok(Pass::Answered(frame)),
                Ok(Verdict::Close) => return Ok(Pass::Close),
            }
        }
        match pass {
            Pass::As(..) if api == ApiKey::PRODUCE && !is_acknowledged(version, body) => {
                Ok(Pass::Unanswered)
            }
            pass => Ok(pass),
        }
    }

    fn as_faults_see_it<'a>(&self, api: ApiKey, client_id: &'a str) -> Request<'a> {
        Request { broker: self.broker, api, client_id }
    }

    async fn responses(&self) -> Ended {
        let mut frames = FrameSplitter::new(self.shared.max_frame);
        let mut out = Vec::with_capacity(4);
        let mut silent = false;
        loop {
            if let Some(ended) = self.in_flight.ended() {
                return ended;
            }
            let Some((expected, frame)) = self.next_response(&mut frames)? else {
                tokio::select! {
                    biased;
                    read = fill(self.cluster.as_ref(), &mut frames) => match read {
                        Ok(1..) => {}
                        Ok(0) | Err(_) => return Ok(()),
                    },
                    () = self.in_flight.first.notified() => {}
                }
                continue;
            };
            match self.answer(expected, frame, &mut out, silent).await? {
                Next::Continue => {}
                Next::Silence => silent = true,
                Next::Close => return Ok(()),
            }
        }
    }

    /// Returns the response to the oldest request, if it has arrived or is one of the proxy.
    fn next_response(
        &self,
        frames: &mut FrameSplitter,
    ) -> Result<Option<(Expected, Bytes)>, String> {
        if let Some(own) = self.in_flight.pop_own() {
            return Ok(Some(own));
        }
        let frame = frames.next_frame().map_err(|error| format!("from the cluster: {error}"))?;
        let Some(frame) = frame else { return Ok(None) };
        let Some(expected) = self.in_flight.pop() else {
            return Err("the cluster responds without a request".to_owned());
        };
        if correlation_id(&frame) != Ok(expected.correlation_id) {
            return Err("the cluster's response has another correlation id".to_owned());
        }
        Ok(Some((expected, frame)))
    }

    /// Writes a response, with its faults, unless the connection is silent.
    async fn answer(
        &self,
        mut expected: Expected,
        frame: Bytes,
        out: &mut Vec<Bytes>,
        silent: bool,
    ) -> Result<Next, String> {
        let from = std::mem::replace(&mut expected.from, Origin::Cluster);
        let failed = |reason| format!("{} {}: {reason}", expected.api, expected.version);
        out.clear();
        self.prepare(&expected, from, frame, out).await.map_err(failed)?;
        if silent {
            return Ok(Next::Continue);
        }
        let asked = self.as_faults_see_it(expected.api, &expected.client_id);
        let fate = self.shared.faults.fate(&asked, &expected.named);
        let delivered = deliver(self.client.as_ref(), out, fate).await;
        let Ok((next, bytes)) = delivered else { return Ok(Next::Close) };
        self.observe(&expected, bytes, matches!(next, Next::Close));
        Ok(next)
    }

    /// Appends the parts of the response to write.
    async fn prepare(
        &self,
        expected: &Expected,
        from: Origin,
        frame: Bytes,
        out: &mut Vec<Bytes>,
    ) -> Result<(), String> {
        let Expected { api, version, .. } = *expected;
        let faults = &self.shared.faults;
        let asked = self.as_faults_see_it(api, &expected.client_id);
        let frame = match from {
            Origin::Proxy(_) => frame,
            Origin::Cluster | Origin::Both(_) if api == ApiKey::API_VERSIONS => {
                let limited = versions::limited(version, &frame, faults.release(&asked));
                limited.map_err(|error| error.to_string())?
            }
            Origin::Cluster => self.localized(api, version, frame, out).await?,
            Origin::Both(merge) => {
                let frame = self.localized(api, version, frame, out).await?;
                merge(&joined(frame, out))?
            }
        };
        if faults.is_active() && is_changed_by_faults(api) {
            let frame = joined(frame, out);
            let content = Content {
                faults,
                directory: &self.shared.directory,
                request: &asked,
                named: &expected.named,
                version,
                correlation_id: expected.correlation_id,
            };
            content.change(&frame, &expected.asked, out);
            if out.is_empty() {
                out.extend([length(frame.len()), frame]);
            }
        } else if out.is_empty() {
            out.extend([length(frame.len()), frame]);
        }
        Ok(())
    }

    /// Replaces the addresses in a frame. The parts of the result, its length first, are in `out`, or
    /// there is nothing to replace and the frame is returned.
    async fn localized(
        &self,
        api: ApiKey,
        version: i16,
        frame: Bytes,
        out: &mut Vec<Bytes>,
    ) -> Result<Bytes, String> {
        if !addresses::are_in(api) {
            return Ok(frame);
        }
        let found = addresses::find(api, version, &frame).map_err(|error| error.to_string())?;
        if api == ApiKey::METADATA {
            let body = response_body(&frame, api, version).map_err(|error| error.to_string())?;
            if let Ok(metadata) = MetadataResponse::decode(version, &body) {
                self.shared.directory.learn(&metadata);
            }
        }
        if found.found.is_empty() {
            return Ok(frame);
        }
        let mut ports = Vec::with_capacity(found.found.len());
        for address in &found.found {
            ports.push(self.shared.port_of(address).await?);
        }
        if matches!(api, ApiKey::METADATA | ApiKey::DESCRIBE_CLUSTER) {
            let named = found.found.iter().map(|address| address.node).collect();
            self.shared.directory.has_only(&named);
        }
        let host = self.shared.directory.host();
        let places: Vec<_> = ports.into_iter().map(|port| (host, port)).collect();
        addresses::replace(&frame, api.encoding(version), &found, &places, out);
        Ok(Bytes::new())
    }

    fn observe(&self, expected: &Expected, sent: usize, closes: bool) {
        let observers = &self.shared.observers;
        if !observers.is_present() {
            return;
        }
        let handled = HandledRequest {
            broker: self.broker,
            peer: self.peer,
            client_id: &expected.client_id,
            api: expected.api,
            version: expected.version,
            received: expected.received,
            sent,
            time: expected.begun.elapsed(),
            closes,
        };
        observers.tell(|observer, _| observer.handled(&handled));
    }
}

/// Returns the frame in the parts of `out` after its length, or the frame if there are none.
fn joined(frame: Bytes, out: &mut Vec<Bytes>) -> Bytes {
    if out.is_empty() {
        return frame;
    }
    let joined = out[1..].concat();
    out.clear();
    joined.into()
}

fn is_changed_by_faults(api: ApiKey) -> bool {
    matches!(api, ApiKey::PRODUCE | ApiKey::FETCH | ApiKey::METADATA)
}

/// Returns whether a Produce request gets a response. A malformed one does not: the cluster closes the
/// connection.
fn is_acknowledged(version: i16, body: &Bytes) -> bool {
    let mut r = Reader::new(body, ApiKey::PRODUCE.encoding(version));
    if version >= 3 && r.nullable_string("transactional id").is_err() {
        return false;
    }
    r.i16("acks").is_ok_and(|acks| acks != 0)
}

impl Expected {
    fn new(header: &RequestHeader<'_>, client_id: &Arc<str>, received: usize) -> Self {
        Self {
            api: header.api,
            version: header.version,
            correlation_id: header.correlation_id,
            client_id: Arc::clone(client_id),
            received,
            begun: Instant::now(),
            from: Origin::Cluster,
            asked: Vec::new(),
            named: Mutex::default(),
        }
    }

    /// Returns the bytes that it keeps until its response is written.
    fn held(&self) -> usize {
        let of_response = match &self.from {
            Origin::Cluster => 0,
            // The results of the refused parts.
            Origin::Both(_) => self.received,
            Origin::Proxy(frame) => frame.len(),
        };
        of_response + self.asked.iter().map(Asked::held).sum::<usize>()
    }
}

impl InFlight {
    pub(super) fn new(max_bytes: usize) -> Self {
        let (first, room) = <(Notify, Notify)>::default();
        Self { state: Mutex::default(), max_bytes, first, room }
    }

    async fn has_room(&self) {
        while self.state.lock().is_full(self.max_bytes) {
            self.room.notified().await;
        }
    }

    fn push(&self, expected: Expected) {
        let is_own = matches!(expected.from, Origin::Proxy(_));
        let mut state = self.state.lock();
        state.bytes += expected.held();
        state.queue.push_back(expected);
        if is_own {
            self.first.notify_one();
        }
    }

    fn pop(&self) -> Option<Expected> {
        let mut state = self.state.lock();
        if state.is_full(self.max_bytes) {
            self.room.notify_one();
        }
        let expected = state.queue.pop_front()?;
        state.bytes -= expected.held();
        Some(expected)
    }

    /// Removes the oldest request if its response is one of the proxy.
    fn pop_own(&self) -> Option<(Expected, Bytes)> {
        let frame = match &self.state.lock().queue.front()?.from {
            Origin::Proxy(frame) => frame.clone(),
            Origin::Cluster | Origin::Both(_) => return None,
        };
        Some((self.pop()?, frame))
    }

    /// Forgets all requests, because the client no longer reads.
    fn abandon(&self) {
        let mut state = self.state.lock();
        state.queue.clear();
        state.bytes = 0;
    }

    /// Ends the queue: no request follows.
    fn end(&self, ended: Ended) {
        self.state.lock().end = Some(ended);
        self.first.notify_one();
    }

    /// Returns how the connection ends, once all responses are written.
    fn ended(&self) -> Option<Ended> {
        let mut state = self.state.lock();
        state.queue.is_empty().then(|| state.end.take()).flatten()
    }

    /// Returns how the connection ends, without its missing responses.
    fn give_up(&self) -> Ended {
        self.state.lock().end.take().unwrap_or(Ok(()))
    }
}

impl Waiting {
    fn is_full(&self, max_bytes: usize) -> bool {
        self.queue.len() >= MAX_IN_FLIGHT || self.bytes > max_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(bytes: usize) -> Expected {
        let header = RequestHeader {
            api: ApiKey::HEARTBEAT,
            version: 4,
            correlation_id: 1,
            client_id: None,
        };
        let mut expected = Expected::new(&header, &"".into(), 10);
        expected.from = Origin::Proxy(vec![0; bytes].into());
        expected
    }

    #[test]
    fn responses_of_the_proxy_that_are_larger_than_a_frame_leave_no_room() {
        let is_full = |in_flight: &InFlight| in_flight.state.lock().is_full(100);
        let in_flight = InFlight::new(100);
        in_flight.push(own(100));
        assert!(!is_full(&in_flight));
        in_flight.push(own(1));
        assert!(is_full(&in_flight));
        assert_eq!(in_flight.pop_own().map(|(_, frame)| frame.len()), Some(100));
        assert!(!is_full(&in_flight));
    }

    #[test]
    fn the_end_comes_after_the_responses() {
        let in_flight = InFlight::new(100);
        in_flight.push(own(1));
        in_flight.end(Err("broken".to_owned()));
        assert_eq!(in_flight.ended(), None);
        in_flight.pop_own();
        assert_eq!(in_flight.ended(), Some(Err("broken".to_owned())));
    }
}
