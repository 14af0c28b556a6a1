//! One Metadata request over a plain socket: which brokers does this broker know as alive?

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

const METADATA: i16 = 3;
/// The oldest version in which an empty topic list requests no topic.
const VERSION: i16 = 1;
const CLIENT_ID: &[u8] = b"curtail-apache";
const LARGEST_ANSWER: usize = 1 << 20;

/// The node ids that the broker at `port` lists.
pub(crate) fn live_brokers(port: u16, deadline: Instant) -> io::Result<Vec<i32>> {
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut socket = TcpStream::connect_timeout(&address, left)?;
    socket.set_read_timeout(Some(left))?;
    socket.set_write_timeout(Some(left))?;
    socket.write_all(&request())?;
    let mut size = [0; 4];
    socket.read_exact(&mut size)?;
    let size = usize::try_from(i32::from_be_bytes(size)).unwrap_or(usize::MAX);
    if size > LARGEST_ANSWER {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "response too large"));
    }
    let mut answer = vec![0; size];
    socket.read_exact(&mut answer)?;
    parse(&answer).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "response cut short"))
}

fn request() -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(METADATA.to_be_bytes());
    body.extend(VERSION.to_be_bytes());
    body.extend(0_i32.to_be_bytes()); // correlation id
    body.extend((CLIENT_ID.len() as i16).to_be_bytes());
    body.extend(CLIENT_ID);
    body.extend(0_i32.to_be_bytes()); // no topics
    let mut frame = (body.len() as i32).to_be_bytes().to_vec();
    frame.extend(body);
    frame
}

fn parse(mut answer: &[u8]) -> Option<Vec<i32>> {
    take(&mut answer, 4)?; // correlation id
    let count = i32::from_be_bytes(take(&mut answer, 4)?.try_into().ok()?);
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(i32::from_be_bytes(take(&mut answer, 4)?.try_into().ok()?));
        skip_string(&mut answer)?; // host
        take(&mut answer, 4)?; // port
        skip_string(&mut answer)?; // rack
    }
    Some(ids)
}

fn skip_string(bytes: &mut &[u8]) -> Option<()> {
    let length = i16::from_be_bytes(take(bytes, 2)?.try_into().ok()?);
    take(bytes, usize::try_from(length).unwrap_or(0))?;
    Some(())
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (head, tail) = bytes.split_at_checked(count)?;
    *bytes = tail;
    Some(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_lists_its_brokers_and_a_truncated_one_is_refused() {
        let mut answer = vec![0, 0, 0, 0, 0, 0, 0, 2];
        for id in [1_i32, 3] {
            answer.extend(id.to_be_bytes());
            answer.extend([0, 2, b'h', b'i', 0, 0, 1, 1, 0xff, 0xff]);
        }
        assert_eq!(parse(&answer), Some(vec![1, 3]));
        for cut in 0..answer.len() {
            assert_eq!(parse(&answer[..cut]), None, "cut at {cut}");
        }
    }
}
