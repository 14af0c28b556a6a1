//! Addresses of brokers in responses: where they are, and their replacement.
//!
//! A response is searched, not decoded: all other bytes stay as they are, also fields that this code does
//! not know. From Kafka's message definitions up to 4.3. Responses of controllers to each other
//! (Vote, BeginQuorumEpoch, FetchSnapshot) name endpoints, too; clients do not receive them.

#[cfg(test)]
mod tests;

use std::ops::Range;

use bytes::{Buf, Bytes};
use curtail_wire::{ApiKey, DecodeError, Encoding, Reader, Writer, header::response_encoding};

/// The role of a node. Ids of brokers and of controllers are counted separately: a process with both
/// roles has two addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Node {
    Broker(i32),
    /// A voter of the metadata quorum.
    Controller(i32),
}

impl Node {
    pub(super) fn id(self) -> i32 {
        let (Self::Broker(id) | Self::Controller(id)) = self;
        id
    }
}

/// An address in a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) node: Node,
    pub(super) host: String,
    pub(super) port: u16,
    at: Range<usize>,
    /// Bytes of the port: 2 or 4.
    port_size: usize,
}

/// The addresses of a response, in their order.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    pub(super) found: Vec<Address>,
    /// The value of a tagged field that has all of them.
    field: Option<Range<usize>>,
}

type Found = Result<Addresses, DecodeError>;

/// Returns whether responses of the API may name addresses.
pub(super) fn are_in(api: ApiKey) -> bool {
    matches!(
        api,
        ApiKey::PRODUCE
            | ApiKey::FETCH
            | ApiKey::METADATA
            | ApiKey::FIND_COORDINATOR
            | ApiKey::DESCRIBE_QUORUM
            | ApiKey::DESCRIBE_CLUSTER
            | ApiKey::SHARE_FETCH
            | ApiKey::SHARE_ACKNOWLEDGE
    )
}

/// Finds the addresses in a response frame, which begins with the correlation id.
pub(super) fn find(api: ApiKey, version: i16, frame: &Bytes) -> Found {
    let may_have_any = match api {
        ApiKey::PRODUCE => version >= 10,
        ApiKey::FETCH => version >= 16,
        ApiKey::DESCRIBE_QUORUM => version >= 2,
        api => are_in(api),
    };
    if !may_have_any {
        return Ok(Addresses::default());
    }
    let mut r = Reader::new(frame, response_encoding(api, version));
    r.i32("correlation id")?;
    r.skip_tagged("response header")?;
    r.set_encoding(api.encoding(version));
    match api {
        ApiKey::PRODUCE => produce(version, &mut r),
        ApiKey::FETCH => fetch(&mut r),
        ApiKey::METADATA => metadata(version, &mut r),
        ApiKey::FIND_COORDINATOR => find_coordinator(version, &mut r),
        ApiKey::DESCRIBE_CLUSTER => describe_cluster(version, &mut r),
        ApiKey::DESCRIBE_QUORUM => describe_quorum(&mut r),
        ApiKey::SHARE_FETCH => share_fetch(&mut r),
        ApiKey::SHARE_ACKNOWLEDGE => share_acknowledge(version, &mut r),
        _ => Ok(Addresses::default()),
    }
}

impl Addresses {
    /// Adds the host and the port that follow. Responses without a node have an empty host, or -1 as the id
    /// or the port.
    fn add(&mut self, node: Node, r: &mut Reader<'_>, port_size: usize) -> Result<(), DecodeError> {
        let start = r.position();
        let host = r.string("host")?.to_owned();
        let port = match port_size {
            2 => Some(r.u16("port")?),
            _ => u16::try_from(r.i32("port")?).ok(),
        };
        let at = start..r.position();
        if let Some(port) = port.filter(|port| *port > 0 && !host.is_empty() && node.id() >= 0) {
            self.found.push(Address { node, host, port, at, port_size });
        }
        Ok(())
    }

    /// Adds an array of brokers with a rack.
    fn add_brokers(&mut self, r: &mut Reader<'_>) -> Result<(), DecodeError> {
        for _ in 0..r.array(11, "node endpoints")? {
            let node = Node::Broker(r.i32("node id")?);
            self.add(node, r, 4)?;
            r.nullable_string("rack")?;
            r.skip_tagged("node endpoint")?;
        }
        Ok(())
    }

    /// Adds the node endpoints (KIP-951) in the tagged fields that follow.
    fn add_tagged(&mut self, r: &mut Reader<'_>) -> Result<(), DecodeError> {
        r.tagged("response", |tag, value| {
            if tag == 0 {
                let start = value.position();
                self.add_brokers(value)?;
                self.field = Some(start..value.position());
            }
            Ok(())
        })
    }
}

fn skip(r: &mut Reader<'_>, bytes: usize) -> Result<(), DecodeError> {
    r.take(bytes, "fields").map(|_| ())
}

fn produce(version: i16, r: &mut Reader<'_>) -> Found {
    for _ in 0..r.array(3, "responses")? {
        match version {
            ..13 => r.string("name").map(|_| ())?,
            _ => skip(r, 16)?,
        }
        for _ in 0..r.array(22, "partition responses")? {
            // Index, error, base offset, append time, log start offset.
            skip(r, 4 + 2 + 8 + 8 + 8)?;
            for _ in 0..r.array(6, "record errors")? {
                skip(r, 4)?;
                r.nullable_string("record error")?;
                r.skip_tagged("record error")?;
            }
            r.nullable_string("error message")?;
            r.skip_tagged("partition response")?;
        }
        r.skip_tagged("response")?;
    }
    skip(r, 4)?;
    let mut found = Addresses::default();
    found.add_tagged(r)?;
    Ok(found)
}

/// From version 16.
fn fetch(r: &mut Reader<'_>) -> Found {
    // Throttle time, error, session id.
    skip(r, 4 + 2 + 4)?;
    for _ in 0..r.array(18, "responses")? {
        skip(r, 16)?;
        for _ in 0..r.array(37, "partitions")? {
            // Index, error, high watermark, last stable offset, log start offset.
            skip(r, 4 + 2 + 8 + 8 + 8)?;
            for _ in 0..r.nullable_array(17, "aborted transactions")?.unwrap_or(0) {
                skip(r, 16)?;
                r.skip_tagged("aborted transaction")?;
            }
            skip(r, 4)?;
            r.nullable_bytes("records")?;
            r.skip_tagged("partition")?;
        }
        r.skip_tagged("topic")?;
    }
    let mut found = Addresses::default();
    found.add_tagged(r)?;
    Ok(found)
}

fn metadata(version: i16, r: &mut Reader<'_>) -> Found {
    if version >= 3 {
        skip(r, 4)?;
    }
    let mut found = Addresses::default();
    for _ in 0..r.array(10, "brokers")? {
        let node = Node::Broker(r.i32("node id")?);
        found.add(node, r, 4)?;
        if version >= 1 {
            r.nullable_string("rack")?;
        }
        r.skip_tagged("broker")?;
    }
    Ok(found)
}

fn find_coordinator(version: i16, r: &mut Reader<'_>) -> Found {
    let mut found = Addresses::default();
    if version >= 1 {
        skip(r, 4)?;
    }
    if version < 4 {
        skip(r, 2)?;
        if version >= 1 {
            r.nullable_string("error message")?;
        }
        let node = Node::Broker(r.i32("node id")?);
        found.add(node, r, 4)?;
        return Ok(found);
    }
    for _ in 0..r.array(14, "coordinators")? {
        r.string("key")?;
        let node = Node::Broker(r.i32("node id")?);
        found.add(node, r, 4)?;
        skip(r, 2)?;
        r.nullable_string("error message")?;
        r.skip_tagged("coordinator")?;
    }
    Ok(found)
}

/// The endpoint type of controllers (KIP-919).
const CONTROLLERS: i8 = 2;

fn describe_cluster(version: i16, r: &mut Reader<'_>) -> Found {
    skip(r, 4 + 2)?;
    r.nullable_string("error message")?;
    let of_controllers = version >= 1 && r.i8("endpoint type")? == CONTROLLERS;
    r.string("cluster id")?;
    skip(r, 4)?;
    let mut found = Addresses::default();
    for _ in 0..r.array(11, "brokers")? {
        let id = r.i32("broker id")?;
        let node = if of_controllers { Node::Controller(id) } else { Node::Broker(id) };
        found.add(node, r, 4)?;
        r.nullable_string("rack")?;
        if version >= 2 {
            skip(r, 1)?;
        }
        r.skip_tagged("broker")?;
    }
    Ok(found)
}

/// From version 2.
fn describe_quorum(r: &mut Reader<'_>) -> Found {
    skip(r, 2)?;
    r.nullable_string("error message")?;
    for _ in 0..r.array(3, "topics")? {
        r.string("topic name")?;
        for _ in 0..r.array(26, "partitions")? {
            skip(r, 4 + 2)?;
            r.nullable_string("error message")?;
            skip(r, 4 + 4 + 8)?;
            for replicas in ["current voters", "observers"] {
                for _ in 0..r.array(45, replicas)? {
                    // Id, directory id, log end offset, two timestamps.
                    skip(r, 4 + 16 + 8 + 8 + 8)?;
                    r.skip_tagged(replicas)?;
                }
            }
            r.skip_tagged("partition")?;
        }
        r.skip_tagged("topic")?;
    }
    let mut found = Addresses::default();
    for _ in 0..r.array(6, "nodes")? {
        let node = Node::Controller(r.i32("node id")?);
        for _ in 0..r.array(5, "listeners")? {
            r.string("listener name")?;
            found.add(node, r, 2)?;
            r.skip_tagged("listener")?;
        }
        r.skip_tagged("node")?;
    }
    Ok(found)
}

fn share_fetch(r: &mut Reader<'_>) -> Found {
    skip(r, 4 + 2)?;
    r.nullable_string("error message")?;
    skip(r, 4)?;
    for _ in 0..r.array(18, "responses")? {
        skip(r, 16)?;
        for _ in 0..r.array(21, "partitions")? {
            skip(r, 4 + 2)?;
            r.nullable_string("error message")?;
            skip(r, 2)?;
            r.nullable_string("acknowledge error message")?;
            leader(r)?;
            r.nullable_bytes("records")?;
            for _ in 0..r.array(19, "acquired records")? {
                skip(r, 8 + 8 + 2)?;
                r.skip_tagged("acquired records")?;
            }
            r.skip_tagged("partition")?;
        }
        r.skip_tagged("topic")?;
    }
    let mut found = Addresses::default();
    found.add_brokers(r)?;
    Ok(found)
}

fn share_acknowledge(version: i16, r: &mut Reader<'_>) -> Found {
    skip(r, 4 + 2)?;
    r.nullable_string("error message")?;
    if version >= 2 {
        skip(r, 4)?;
    }
    for _ in 0..r.array(18, "responses")? {
        skip(r, 16)?;
        for _ in 0..r.array(17, "partitions")? {
            skip(r, 4 + 2)?;
            r.nullable_string("error message")?;
            leader(r)?;
            r.skip_tagged("partition")?;
        }
        r.skip_tagged("topic")?;
    }
    let mut found = Addresses::default();
    found.add_brokers(r)?;
    Ok(found)
}

fn leader(r: &mut Reader<'_>) -> Result<(), DecodeError> {
    skip(r, 8)?;
    r.skip_tagged("current leader")
}

/// Appends the parts of the frame with other addresses, its length first. `places` has the new host and
/// port of each address, in their order.
pub(super) fn replace(
    frame: &Bytes,
    encoding: Encoding,
    addresses: &Addresses,
    places: &[(&str, u16)],
    out: &mut Vec<Bytes>,
) {
    let encoded: Vec<Bytes> = addresses
        .found
        .iter()
        .zip(places)
        .map(|(address, (host, port))| {
            let mut w = Writer::with_capacity(host.len() + 8);
            w.set_encoding(encoding);
            w.string(host);
            match address.port_size {
                2 => w.u16(*port),
                _ => w.i32(i32::from(*port)),
            }
            w.into_bytes()
        })
        .collect();
    let mut edits: Vec<(Range<usize>, Bytes)> =
        addresses.found.iter().map(|address| address.at.clone()).zip(encoded).collect();
    if let Some(value) = &addresses.field {
        let grown: isize = edits.iter().map(|(at, new)| difference(at, new)).sum();
        let size = value.len().saturating_add_signed(grown);
        let mut w = Writer::with_capacity(5);
        // A frame is far below 4 GiB.
        w.uvarint(size as u32);
        edits.insert(0, (size_before(frame, value.start), w.into_bytes()));
    }
    let grown: isize = edits.iter().map(|(at, new)| difference(at, new)).sum();
    out.push(length(frame.len().saturating_add_signed(grown)));
    let mut rest = frame.clone();
    let mut taken = 0;
    for (at, new) in edits {
        let mut before = rest.split_to(at.end - taken);
        before.truncate(before.len() - at.len());
        out.extend([before, new]);
        taken = at.end;
    }
    if rest.has_remaining() {
        out.push(rest);
    }
}

fn difference(at: &Range<usize>, new: &Bytes) -> isize {
    new.len() as isize - at.len() as isize
}

/// The length before a frame.
pub(super) fn length(bytes: usize) -> Bytes {
    // Frames are limited to far less than 2 GiB.
    Bytes::copy_from_slice(&(bytes as u32).to_be_bytes())
}

/// Returns the place of the varint that ends at `end`. The byte before it ends another varint, the tag.
fn size_before(frame: &Bytes, end: usize) -> Range<usize> {
    let mut start = end - 1;
    while start > 0 && frame[start - 1] & 0x80 != 0 {
        start -= 1;
    }
    start..end
}
