//! Frames under arbitrary chunking: the splitter returns the frames of the stream, however it is cut.

use bytes::Bytes;
use curtail_wire::frame::{DEFAULT_LIMIT, FrameError, FrameSplitter, UNAUTHENTICATED_LIMIT};

use crate::{Input, Target, memory};

pub(super) const TARGET: Target = Target { name: "frames", run, seeds, cases: 20_000 };

/// Space that the splitter reserves for a frame before its bytes arrive.
const EAGER: usize = 2 * 1024 * 1024;

fn run(input: &[u8]) {
    let mut input = Input::new(input);
    let limit = *input.pick(&[UNAUTHENTICATED_LIMIT, DEFAULT_LIMIT, 16]);
    let chunks = input.section();
    let stream = input.rest();
    let expected = frames(stream, limit);
    // A buffer that moves exists twice, and frames that were returned keep theirs.
    let cap = EAGER + 8 * stream.len() + memory::SLACK;
    let got = memory::within("the frame splitter", cap, || split(stream, chunks, limit));
    assert_eq!(got.0, expected.0, "frames");
    assert_eq!(got.1.is_some(), expected.1, "an error in the same place");
}

/// Splits the stream in chunks of the given sizes, and returns how it ended.
fn split(stream: &[u8], chunks: &[u8], limit: usize) -> (Vec<Bytes>, Option<FrameError>) {
    let mut splitter = FrameSplitter::new(limit);
    let mut frames = Vec::new();
    let mut sizes = chunks.iter().cycle().map(|&size| usize::from(size).max(1));
    let mut rest = stream;
    loop {
        loop {
            match splitter.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(splitter.next_frame(), Err(error), "an error is final");
                    return (frames, Some(error));
                }
            }
        }
        if rest.is_empty() {
            let left: usize =
                stream.len() - frames.iter().map(|frame| 4 + frame.len()).sum::<usize>();
            assert_eq!(splitter.is_between_frames(), left == 0);
            return (frames, None);
        }
        let size = sizes.next().unwrap_or(64 * 1024).min(rest.len());
        let (chunk, after) = rest.split_at(size);
        let spare = splitter.spare(16 * 1024);
        assert!(spare.capacity() > spare.len(), "a read needs room");
        spare.extend_from_slice(chunk);
        rest = after;
    }
}

/// The frames of the stream read at once, and whether an impossible length ends it.
fn frames(mut stream: &[u8], limit: usize) -> (Vec<Bytes>, bool) {
    let mut frames = Vec::new();
    while let Some((prefix, rest)) = stream.split_first_chunk::<4>() {
        let length = u32::from_be_bytes(*prefix) as usize;
        let is_foreign = length > DEFAULT_LIMIT && frames.is_empty();
        if length > limit || is_foreign {
            return (frames, true);
        }
        let Some((frame, rest)) = rest.split_at_checked(length) else { break };
        frames.push(Bytes::copy_from_slice(frame));
        stream = rest;
    }
    (frames, false)
}

fn seeds() -> Vec<Vec<u8>> {
    let stream = b"\0\0\0\x05hello\0\0\0\0\0\0\0\x03abc\0\0\0\x10";
    let seed = |chunks: &[u8], stream: &[u8]| {
        [&[1][..], &(chunks.len() as u16).to_be_bytes(), chunks, stream].concat()
    };
    vec![
        seed(&[], stream),
        seed(&[1], stream),
        seed(&[3, 7, 1], stream),
        seed(&[], b"HTTP/1.1 400 Bad Request"),
        seed(&[2], b"\x15\x03\x03\0\x02\x02\x28"),
        seed(&[9], b"\x06\x40\0\0 an eager claim"),
    ]
}
