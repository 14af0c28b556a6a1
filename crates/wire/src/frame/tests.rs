use proptest::prelude::*;

use super::*;

fn framed(body: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(body.len()).unwrap().to_be_bytes().to_vec();
    frame.extend_from_slice(body);
    frame
}

fn feed(splitter: &mut FrameSplitter, bytes: &[u8]) {
    splitter.spare(1024).extend_from_slice(bytes);
}

/// Reads the way a socket does: never more than there is room for.
fn feed_as_room_allows(splitter: &mut FrameSplitter, mut bytes: &[u8], hint: usize) -> usize {
    let mut most = 0;
    while !bytes.is_empty() {
        let buffer = splitter.spare(hint);
        let room = buffer.capacity() - buffer.len();
        assert!(room > 0);
        most = most.max(buffer.capacity());
        let (now, later) = bytes.split_at(room.min(bytes.len()));
        buffer.extend_from_slice(now);
        bytes = later;
        while splitter.next_frame().unwrap().is_some() {}
    }
    most
}

#[test]
fn frames_may_be_empty() {
    let mut splitter = FrameSplitter::default();
    feed(&mut splitter, &framed(b""));
    assert!(!splitter.is_between_frames());
    assert_eq!(splitter.next_frame().unwrap().unwrap(), "");
    assert_eq!(splitter.next_frame(), Ok(None));
    assert!(splitter.is_between_frames());
}

#[test]
fn a_stream_may_end_only_between_frames() {
    let mut splitter = FrameSplitter::default();
    assert!(splitter.is_between_frames());
    for byte in &framed(b"xy")[..5] {
        feed(&mut splitter, &[*byte]);
        assert_eq!(splitter.next_frame(), Ok(None));
        assert!(!splitter.is_between_frames());
    }
    feed(&mut splitter, b"y");
    assert_eq!(splitter.next_frame().unwrap().unwrap(), "xy");
    assert!(splitter.is_between_frames());
}

#[test]
fn frames_share_the_buffer_they_arrived_in() {
    let mut splitter = FrameSplitter::default();
    let mut stream = framed(b"one");
    stream.extend(framed(b"two"));
    let buffer = splitter.spare(1024);
    buffer.extend_from_slice(&stream);
    let start = buffer.as_ptr() as usize;
    let one = splitter.next_frame().unwrap().unwrap();
    let two = splitter.next_frame().unwrap().unwrap();
    assert_eq!(one.as_ptr() as usize, start + 4);
    assert_eq!(two.as_ptr() as usize, start + 11);
}

#[test]
fn the_limit_holds_and_can_be_raised() {
    let mut splitter = FrameSplitter::new(10);
    feed(&mut splitter, &framed(&[7; 10]));
    assert_eq!(splitter.next_frame().unwrap().unwrap().len(), 10);
    splitter.set_limit(11);
    feed(&mut splitter, &framed(&[7; 11]));
    assert_eq!(splitter.next_frame().unwrap().unwrap().len(), 11);
    feed(&mut splitter, &framed(&[7; 12]));
    let error = Err(FrameError::TooLarge { length: 12, limit: 11 });
    assert_eq!(splitter.next_frame(), error);
    feed(&mut splitter, &framed(b"fine"));
    assert_eq!(splitter.next_frame(), error, "a broken stream stays broken");
}

#[test]
fn negative_lengths_are_refused() {
    let mut splitter = FrameSplitter::default();
    feed(&mut splitter, &[0xff, 0xff, 0xff, 0xfe]);
    assert_eq!(splitter.next_frame(), Err(FrameError::NegativeLength { length: -2 }));
}

#[test]
fn other_protocols_are_named() {
    let cases: [(&[u8], &str); 5] = [
        (b"HTTP/1.1 400 Bad Request\r\n", "HTTP"),
        (b"GET / HTTP/1.1\r\n", "HTTP request"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH"),
        (&[0x16, 0x03, 0x01, 0x02, 0x00, 0x01], "TLS"),
        (&[0x15, 0x03, 0x03, 0x00, 0x02, 0x02], "TLS"),
    ];
    for (bytes, expected) in cases {
        // The bytes are recognized even if the frame limit allows the length that they encode.
        for limit in [UNAUTHENTICATED_LIMIT, DEFAULT_LIMIT, usize::MAX] {
            let mut splitter = FrameSplitter::new(limit);
            feed(&mut splitter, bytes);
            let Err(FrameError::NotKafka { hint }) = splitter.next_frame() else {
                panic!("{expected} is not recognized");
            };
            assert!(hint.contains(expected), "{hint}");
        }
    }
}

#[test]
fn memory_follows_the_data_and_not_the_claim() {
    let mut splitter = FrameSplitter::default();
    feed(&mut splitter, &(DEFAULT_LIMIT as u32).to_be_bytes());
    assert_eq!(splitter.next_frame(), Ok(None));
    assert!(splitter.spare(64 * 1024).capacity() <= 2 * EAGER);
    let most = feed_as_room_allows(&mut splitter, &vec![1; 3 * EAGER], 64 * 1024);
    assert!(most <= 6 * EAGER, "{most}");
}

/// A connection that announces a large frame and sends one byte at a time holds the room for the first bytes of it, once.
#[test]
fn a_claimed_length_is_allocated_for_once() {
    let mut splitter = FrameSplitter::default();
    feed(&mut splitter, &(DEFAULT_LIMIT as u32).to_be_bytes());
    assert_eq!(splitter.next_frame(), Ok(None));
    for _ in 0..10 {
        let buffer = splitter.spare(64 * 1024);
        assert!(buffer.capacity() <= EAGER + 2 * LOW_WATER, "{}", buffer.capacity());
        buffer.extend_from_slice(&[1]);
    }
}

#[test]
fn a_frame_of_a_mebibyte_gets_its_room_at_once() {
    let body = vec![9; 1024 * 1024];
    let frame = framed(&body);
    let mut splitter = FrameSplitter::default();
    feed(&mut splitter, &frame[..100]);
    assert_eq!(splitter.next_frame(), Ok(None));
    let buffer = splitter.spare(64 * 1024);
    let room = buffer.as_ptr();
    assert!(buffer.capacity() >= body.len());
    for chunk in frame[100..].chunks(50_000) {
        splitter.spare(64 * 1024).extend_from_slice(chunk);
    }
    let whole = splitter.next_frame().unwrap().unwrap();
    assert_eq!(whole.as_ptr(), room, "nothing moved");
    assert_eq!(whole, body);
}

#[test]
fn a_large_buffer_is_freed_with_its_frame() {
    let mut splitter = FrameSplitter::default();
    let mut stream = framed(&vec![3; 10 * EAGER]);
    stream.extend(framed(b"next"));
    let (now, later) = stream.split_at(stream.len() - 2);
    feed(&mut splitter, now);
    assert_eq!(splitter.next_frame().unwrap().unwrap().len(), 10 * EAGER);
    assert_eq!(splitter.next_frame(), Ok(None));
    assert!(splitter.spare(64 * 1024).capacity() < EAGER);
    feed(&mut splitter, later);
    assert_eq!(splitter.next_frame().unwrap().unwrap(), "next");
}

#[test]
fn small_frames_do_not_each_cost_a_buffer() {
    let mut splitter = FrameSplitter::default();
    let mut buffers = std::collections::BTreeSet::new();
    let mut kept = Vec::new();
    for _ in 0..600 {
        feed_as_room_allows(&mut splitter, &framed(&[5; 96])[..4], 64 * 1024);
        splitter.spare(64 * 1024).extend_from_slice(&[5; 96]);
        let frame = splitter.next_frame().unwrap().unwrap();
        buffers.insert(frame.as_ptr() as usize & !0xffff);
        kept.push(frame);
    }
    // 60 kB of frames that are all still alive, in a few buffers of 64 KiB.
    assert!(buffers.len() <= 4, "{}", buffers.len());
}

proptest! {
    #[test]
    fn any_chunking_returns_the_same_frames(
        bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..20),
        cuts in prop::collection::vec(1_usize..90, 1..50),
        hint in 0_usize..300,
    ) {
        let stream: Vec<u8> = bodies.iter().flat_map(|body| framed(body)).collect();
        let mut splitter = FrameSplitter::default();
        let mut frames = Vec::new();
        let mut rest = stream.as_slice();
        for size in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (now, later) = rest.split_at((*size).min(rest.len()));
            splitter.spare(hint).extend_from_slice(now);
            rest = later;
            while let Some(frame) = splitter.next_frame().unwrap() {
                frames.push(frame.to_vec());
            }
        }
        prop_assert_eq!(frames, bodies);
        prop_assert!(splitter.is_between_frames());
    }

    #[test]
    fn no_stream_is_trusted(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut splitter = FrameSplitter::new(100);
        feed(&mut splitter, &bytes);
        let mut taken = 0;
        while let Ok(Some(frame)) = splitter.next_frame() {
            prop_assert!(frame.len() <= 100);
            taken += frame.len() + 4;
        }
        prop_assert!(taken <= bytes.len());
    }
}
