//! Produce requests as frames for one vectored write, without copying the batches.

use bytes::{BufMut, Bytes, BytesMut};

use super::VERSIONS;
use super::codec::TOPIC_IDS;
use crate::primitives::{put_count, put_string};
use crate::{ApiKey, Encoding, Uuid};

/// A batch to send.
#[derive(Clone, Copy, Debug)]
pub struct OutBatch<'a> {
    /// Topic name.
    pub topic: &'a str,
    /// Topic id, which version 13 sends in place of the name.
    pub topic_id: Uuid,
    /// Partition index.
    pub partition: i32,
    /// The whole batch.
    pub payload: &'a Bytes,
}

impl OutBatch<'_> {
    fn same_topic(&self, other: &Self) -> bool {
        self.topic_id == other.topic_id && self.topic == other.topic
    }
}

/// A Produce request without its batches.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'a> {
    /// Version of the request, in [`VERSIONS`].
    pub version: i16,
    /// Repeated in the response.
    pub correlation_id: i32,
    /// Name that the client gives itself.
    pub client_id: Option<&'a str>,
    /// `None` outside transactions.
    pub transactional_id: Option<&'a str>,
    /// 0, 1 or -1 (all in-sync replicas).
    pub acks: i16,
    /// How long the leader may wait for its followers, in milliseconds.
    pub timeout_ms: i32,
}

impl RequestHead<'_> {
    /// Appends to `out` the parts of the whole frame, its length first, in order: pieces of `glue` and the payloads
    /// themselves. `glue` is emptied and can be reused for the next frame. Returns the number of bytes in all parts.
    ///
    /// `batches` are in sending order; batches of one topic are adjacent. Together they stay below the largest frame,
    /// 2³¹ bytes.
    pub fn encode_frame(
        &self,
        batches: &[OutBatch<'_>],
        glue: &mut BytesMut,
        out: &mut Vec<Bytes>,
    ) -> usize {
        debug_assert!(VERSIONS.contains(&self.version));
        let encoding = ApiKey::PRODUCE.encoding(self.version);
        glue.clear();
        // At most one allocation; 32 bytes hold the fixed fields of a topic and of a partition.
        let names: usize = batches.iter().map(|batch| batch.topic.len() + 32).sum();
        let ids = self.client_id.map_or(0, str::len) + self.transactional_id.map_or(0, str::len);
        glue.reserve(names + ids + 64);
        glue.put_i32(0);
        self.put_fields(encoding, glue);

        let is_same: fn(&OutBatch<'_>, &OutBatch<'_>) -> bool = |a, b| a.same_topic(b);
        put_count(glue, encoding, Some(batches.chunk_by(is_same).count()));
        let first = out.len();
        let mut head = None;
        let mut length = 0;
        for topic in batches.chunk_by(is_same) {
            self.put_topic_key(encoding, &topic[0], glue);
            put_count(glue, encoding, Some(topic.len()));
            for batch in topic {
                glue.put_i32(batch.partition);
                put_count(glue, encoding, Some(batch.payload.len()));
                let piece = glue.split();
                length += piece.len() + batch.payload.len();
                // The piece with the frame's length is filled in when the length is known.
                match head {
                    None => {
                        head = Some(piece);
                        out.push(Bytes::new());
                    }
                    Some(_) => out.push(piece.freeze()),
                }
                out.push(batch.payload.clone());
                put_no_tags(encoding, glue);
            }
            put_no_tags(encoding, glue);
        }
        put_no_tags(encoding, glue);
        let tail = glue.split();
        length += tail.len();
        let mut head = match head {
            Some(head) => {
                if !tail.is_empty() {
                    out.push(tail.freeze());
                }
                head
            }
            None => {
                out.push(Bytes::new());
                tail
            }
        };
        head[..4].copy_from_slice(&((length - 4) as i32).to_be_bytes());
        out[first] = head.freeze();
        length
    }

    fn put_fields(&self, encoding: Encoding, glue: &mut BytesMut) {
        glue.put_i16(ApiKey::PRODUCE.0);
        glue.put_i16(self.version);
        glue.put_i32(self.correlation_id);
        // Classic in flexible headers too, see RequestHeader::encode.
        put_string(glue, Encoding::Classic, self.client_id);
        put_no_tags(encoding, glue);
        put_string(glue, encoding, self.transactional_id);
        glue.put_i16(self.acks);
        glue.put_i32(self.timeout_ms);
    }

    fn put_topic_key(&self, encoding: Encoding, batch: &OutBatch<'_>, glue: &mut BytesMut) {
        if self.version >= TOPIC_IDS {
            glue.put_slice(&batch.topic_id.0);
        } else {
            put_string(glue, encoding, Some(batch.topic));
        }
    }
}

fn put_no_tags(encoding: Encoding, glue: &mut BytesMut) {
    if encoding == Encoding::Flexible {
        glue.put_u8(0);
    }
}
