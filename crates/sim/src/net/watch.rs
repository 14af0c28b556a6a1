//! Observes the connections of a client from below: which requests have no response when the client closes one.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use curtail_wire::{ApiKey, frame::FrameSplitter, header};
use parking_lot::Mutex;

use super::{Fabric, leaders::Leaders};
use crate::{
    history::{Disconnect, StaleSend},
    trace::now,
};

/// A client whose connections are observed. Clones are handles to the same one.
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

/// Lets the client leave when it is dropped. Hold it in a field before the client itself.
#[derive(Debug)]
pub struct Presence(Client);

impl Drop for Presence {
    fn drop(&mut self) {
        self.0.leave();
    }
}

#[derive(Debug)]
struct Inner {
    name: String,
    request_timeout: Duration,
    leaving: AtomicBool,
    leaders: Mutex<Leaders>,
    /// Number of open connections, by broker and first API.
    connections: Mutex<BTreeMap<(String, i16), usize>>,
}

impl Client {
    /// A running client with its `request.timeout.ms`.
    pub fn new(name: impl Into<String>, request_timeout: Duration) -> Self {
        let name = name.into();
        let (leaving, leaders) = (AtomicBool::new(false), Mutex::default());
        let connections = Mutex::default();
        Self(Arc::new(Inner { name, request_timeout, leaving, leaders, connections }))
    }

    /// Allows the client to close its connections from now on: it is being closed, dropped or killed.
    pub fn leave(&self) {
        self.0.leaving.store(true, Ordering::Relaxed);
    }

    /// Keeps the client present as long as the result lives.
    pub fn present(&self) -> Presence {
        Presence(self.clone())
    }

    fn opens(&self, broker: &str, api: i16) {
        *self.0.connections.lock().entry((broker.to_owned(), api)).or_default() += 1;
    }

    /// Returns the number of connections left.
    fn closes(&self, broker: &str, api: i16) -> usize {
        let mut connections = self.0.connections.lock();
        let count = connections.entry((broker.to_owned(), api)).or_default();
        *count = count.saturating_sub(1);
        *count
    }

    fn is_leaving(&self) -> bool {
        self.0.leaving.load(Ordering::Relaxed)
    }
}

/// A request without a response.
#[derive(Debug)]
struct Open {
    id: i32,
    api: i16,
    version: i16,
    /// When its last byte was written.
    written: Duration,
}

/// A connection of a client.
#[derive(Debug)]
pub(super) struct Watch {
    client: Client,
    broker: String,
    /// Id of the broker, if it is one.
    id: Option<i32>,
    written: FrameSplitter,
    read: FrameSplitter,
    api: Option<i16>,
    open: VecDeque<Open>,
    /// Time of the last frame in either direction.
    used: Duration,
    failed: bool,
}

/// Adds bytes to a stream; returns the frames that they complete.
fn frames(stream: &mut FrameSplitter, bytes: &[u8]) -> Vec<Bytes> {
    stream.spare(bytes.len()).extend_from_slice(bytes);
    std::iter::from_fn(|| stream.next_frame().ok().flatten()).collect()
}

impl Watch {
    pub(super) fn new(client: Client, broker: String, id: Option<i32>) -> Self {
        Self {
            client,
            broker,
            id,
            written: FrameSplitter::default(),
            read: FrameSplitter::default(),
            api: None,
            open: VecDeque::new(),
            used: now(),
            failed: false,
        }
    }

    /// Returns the batches sent to a previous leader.
    pub(super) fn wrote(&mut self, bytes: &[u8]) -> Vec<StaleSend> {
        let mut stale = Vec::new();
        for frame in frames(&mut self.written, bytes) {
            let Ok((head, _)) = header::split_request(&frame) else { continue };
            let (api, version, id) = (head.api, head.version, head.correlation_id);
            if api != ApiKey::API_VERSIONS && self.api.is_none() {
                self.api = Some(api.0);
                self.client.opens(&self.broker, api.0);
            }
            self.used = now();
            self.open.push_back(Open { id, api: api.0, version, written: now() });
            if let Some(broker) = self.id.filter(|_| api == ApiKey::PRODUCE) {
                let client = &self.client.0;
                stale.extend(client.leaders.lock().check(broker, &frame, &client.name));
            }
        }
        stale
    }

    /// Removes the request of a response, and every earlier one: those without a response were sent with `acks=0`.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        for frame in frames(&mut self.read, bytes) {
            self.used = now();
            let Ok(id) = header::correlation_id(&frame) else { continue };
            let Some(at) = self.open.iter().position(|open| open.id == id) else { continue };
            let Some(request) = self.open.drain(..=at).next_back() else { continue };
            let mut leaders = self.client.0.leaders.lock();
            match ApiKey(request.api) {
                ApiKey::METADATA => leaders.learn(request.version, &frame),
                ApiKey::PRODUCE => leaders.learn_hints(request.version, &frame),
                _ => {}
            }
        }
    }

    /// Records that the peer or the network ended the connection.
    pub(super) fn failed(&mut self) {
        if let Some(api) = self.api.filter(|_| !self.failed) {
            self.client.closes(&self.broker, api);
        }
        self.failed = true;
    }

    /// Records that the client closes the connection.
    pub(super) fn closed(&self, fabric: &Fabric) {
        let Some(api) = self.api.filter(|_| !self.failed) else { return };
        let others = self.client.closes(&self.broker, api);
        if self.client.is_leaving() {
            return;
        }
        let at = now();
        fabric.add_disconnect(Disconnect {
            at,
            client: self.client.0.name.clone(),
            broker: self.broker.clone(),
            api,
            unanswered: self.open.front().map(|open| at.saturating_sub(open.written)),
            spare_for: (others > 0).then(|| at.saturating_sub(self.used)),
            request_timeout: self.client.0.request_timeout,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(body: &[u8]) -> Vec<u8> {
        [&(body.len() as i32).to_be_bytes()[..], body].concat()
    }

    fn request(api: i16, id: i32) -> Vec<u8> {
        frame(&[&api.to_be_bytes()[..], &[0, 3], &id.to_be_bytes(), b"\xff\xff\0\0more"].concat())
    }

    #[test]
    fn requests_and_responses_are_matched_under_any_chunking() {
        let sent = [request(18, 0), request(0, 1), request(0, 2), request(0, 3)].concat();
        let received = [frame(&0i32.to_be_bytes()), frame(b"\0\0\0\x02answer")].concat();
        for chunk in 1..40 {
            let client = Client::new("client", Duration::from_secs(1));
            let mut watch = Watch::new(client, "broker".into(), Some(1));
            sent.chunks(chunk).for_each(|bytes| drop(watch.wrote(bytes)));
            received.chunks(chunk).for_each(|bytes| watch.read(bytes));
            let open: Vec<i32> = watch.open.iter().map(|open| open.id).collect();
            assert_eq!((watch.api, open), (Some(0), vec![3]), "chunks of {chunk}");
        }
    }
}
