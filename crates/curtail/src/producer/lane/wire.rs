//! The bytes of a connection: requests are encoded and written here.

use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    sync::Arc,
};

use bytes::{Buf, Bytes, BytesMut};
use curtail_net::Socket;
use curtail_proto::plant::{Plant, planted};
use curtail_wire::produce::{OutBatch, RequestHead};

use super::{Envelope, LaneLink, Pumped, Sent};
use crate::{
    producer::{shared::Shared, turnstile::Armed},
    span::Span,
};

/// Slices for one vectored write.
const MAX_SLICES: usize = 64;

/// An open connection.
pub(in crate::producer) struct Wire {
    socket: Arc<dyn Socket>,
    version: i16,
    /// Bytes of requests that the socket has not accepted yet, in order.
    outgoing: VecDeque<Bytes>,
    glue: BytesMut,
    /// When the driver's timer fires. A caller with an earlier deadline wakes the driver.
    pub(in crate::producer) armed: Armed,
}

impl Wire {
    pub(super) fn new(socket: Arc<dyn Socket>, version: i16) -> Self {
        let (outgoing, glue) = (VecDeque::new(), BytesMut::new());
        Self { socket, version, outgoing, glue, armed: Armed::default() }
    }

    /// Builds a request and queues its bytes for the socket. Returns what to keep with it, and the number of its bytes.
    pub(super) fn encode(
        &mut self,
        link: &LaneLink,
        shared: &Shared,
        batches: &[Sent],
    ) -> (Envelope, usize) {
        let config = &shared.config;
        let out: Vec<OutBatch<'_>> = batches
            .iter()
            .map(|sent| OutBatch {
                topic: &sent.partition.topic,
                topic_id: sent.topic_id,
                partition: sent.partition.index,
                payload: match sent.batch.attempts > 1 && planted(Plant::BufferReused) {
                    true => batches[0].batch.payload(),
                    false => sent.batch.payload(),
                },
            })
            .collect();
        let timeout = config.common.request_timeout;
        let (transactional_id, version) = shared.identity.head(self.version);
        let head = RequestHead {
            version,
            correlation_id: link.next_correlation_id(),
            client_id: Some(&config.common.client_id),
            transactional_id,
            acks: config.acks.code(),
            timeout_ms: i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX),
        };
        let mut frame = Vec::with_capacity(2 * out.len() + 1);
        head.encode_frame(&out, &mut self.glue, &mut frame);
        let bytes = frame.iter().map(Bytes::len).sum();
        self.outgoing.extend(frame);
        let span = Span::produce(
            &config.common.client_id,
            || self.socket.peer_addr(),
            || batches.iter().map(|sent| u64::from(sent.batch.records)).sum(),
        );
        (Envelope { version, stray: None, span }, bytes)
    }

    /// Writes as much as the socket accepts.
    pub(super) fn flush(&mut self, link: &mut LaneLink) -> io::Result<Pumped> {
        while !self.outgoing.is_empty() {
            let slices = self.outgoing.len().min(MAX_SLICES);
            let mut io = [IoSlice::new(&[]); MAX_SLICES];
            for (slot, bytes) in io.iter_mut().zip(&self.outgoing) {
                *slot = IoSlice::new(bytes);
            }
            match self.socket.try_write_vectored(&io[..slices]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    link.handle_begun();
                    self.consume(written);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    link.handle_blocked();
                    return Ok(Pumped::Blocked);
                }
                Err(e) => return Err(e),
            }
        }
        Ok(Pumped::Done)
    }

    fn consume(&mut self, mut written: usize) {
        while let Some(front) = self.outgoing.front_mut() {
            if written < front.len() {
                front.advance(written);
                return;
            }
            written -= front.len();
            self.outgoing.pop_front();
        }
    }

    /// Drops the bytes of the newest request. None may have been written.
    pub(super) fn drop_unsent(&mut self) {
        self.outgoing.clear();
    }
}
