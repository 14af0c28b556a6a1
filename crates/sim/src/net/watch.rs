//! Observes the connections of a client from below: which requests have no response when the client closes one.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::Fabric;
use crate::{history::Disconnect, trace::now};

/// Key of ApiVersions, the first request of every connection.
const API_VERSIONS: i16 = 18;

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
}

impl Client {
    /// A running client with its `request.timeout.ms`.
    pub fn new(name: impl Into<String>, request_timeout: Duration) -> Self {
        let name = name.into();
        Self(Arc::new(Inner { name, request_timeout, leaving: AtomicBool::new(false) }))
    }

    /// From now on the client may close its connections: it is being closed, dropped or killed.
    pub fn leave(&self) {
        self.0.leaving.store(true, Ordering::Relaxed);
    }

    /// The client is present as long as the result lives.
    pub fn present(&self) -> Presence {
        Presence(self.clone())
    }

    fn is_leaving(&self) -> bool {
        self.0.leaving.load(Ordering::Relaxed)
    }
}

/// Cuts a stream of bytes into frames and keeps the first bytes of each.
#[derive(Debug, Default)]
struct Heads {
    head: Vec<u8>,
    /// Bytes of the frame, after its length, that are still to come.
    rest: Option<usize>,
}

impl Heads {
    /// Length field, API key, version and correlation id.
    const LEN: usize = 4 + 8;

    /// Takes the next bytes; returns the head of each frame that they complete.
    fn take(&mut self, mut bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut complete = Vec::new();
        while !bytes.is_empty() {
            let rest = match self.rest {
                Some(rest) => rest,
                None => {
                    let wanted = (4 - self.head.len()).min(bytes.len());
                    self.head.extend_from_slice(&bytes[..wanted]);
                    bytes = &bytes[wanted..];
                    let Ok(length) = <[u8; 4]>::try_from(&self.head[..]) else { break };
                    usize::try_from(i32::from_be_bytes(length)).unwrap_or(0)
                }
            };
            let taken = rest.min(bytes.len());
            let kept = taken.min(Self::LEN.saturating_sub(self.head.len()));
            self.head.extend_from_slice(&bytes[..kept]);
            bytes = &bytes[taken..];
            self.rest = Some(rest - taken);
            if rest == taken {
                complete.push(std::mem::take(&mut self.head));
                self.rest = None;
            }
        }
        complete
    }
}

/// A connection of a client.
#[derive(Debug)]
pub(super) struct Watch {
    client: Client,
    broker: String,
    written: Heads,
    read: Heads,
    api: Option<i16>,
    /// Requests without a response: correlation id, and when the last byte was written.
    open: VecDeque<(i32, Duration)>,
    failed: bool,
}

fn i32_at(head: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_be_bytes(head.get(at..at + 4)?.try_into().ok()?))
}

impl Watch {
    pub(super) fn new(client: Client, broker: String) -> Self {
        Self {
            client,
            broker,
            written: Heads::default(),
            read: Heads::default(),
            api: None,
            open: VecDeque::new(),
            failed: false,
        }
    }

    pub(super) fn wrote(&mut self, bytes: &[u8]) {
        for head in self.written.take(bytes) {
            let Some(api) = head.get(4..6) else { continue };
            let api = i16::from_be_bytes([api[0], api[1]]);
            if api != API_VERSIONS {
                self.api.get_or_insert(api);
            }
            if let Some(id) = i32_at(&head, 8) {
                self.open.push_back((id, now()));
            }
        }
    }

    /// A response answers its request and every earlier one: those before it that have none were sent with `acks=0`.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        for head in self.read.take(bytes) {
            let Some(id) = i32_at(&head, 4) else { continue };
            if let Some(at) = self.open.iter().position(|(open, _)| *open == id) {
                self.open.drain(..=at);
            }
        }
    }

    /// The peer or the network ended the connection.
    pub(super) fn failed(&mut self) {
        self.failed = true;
    }

    /// The client closes the connection.
    pub(super) fn closed(&self, fabric: &Fabric) {
        let Some(api) = self.api.filter(|_| !self.failed && !self.client.is_leaving()) else {
            return;
        };
        let at = now();
        fabric.add_disconnect(Disconnect {
            at,
            client: self.client.0.name.clone(),
            broker: self.broker.clone(),
            api,
            unanswered: self.open.front().map(|(_, written)| at.saturating_sub(*written)),
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
        frame(&[&api.to_be_bytes()[..], &[0, 9], &id.to_be_bytes(), b"and more"].concat())
    }

    #[test]
    fn requests_and_responses_are_matched_under_any_chunking() {
        let sent = [request(18, 0), request(0, 1), request(0, 2), request(0, 3)].concat();
        let received = [frame(&0i32.to_be_bytes()), frame(b"\0\0\0\x02answer")].concat();
        for chunk in 1..40 {
            let client = Client::new("client", Duration::from_secs(1));
            let mut watch = Watch::new(client, "broker".into());
            sent.chunks(chunk).for_each(|bytes| watch.wrote(bytes));
            received.chunks(chunk).for_each(|bytes| watch.read(bytes));
            let open: Vec<i32> = watch.open.iter().map(|(id, _)| *id).collect();
            assert_eq!((watch.api, open), (Some(0), vec![3]), "chunks of {chunk}");
        }
    }
}
