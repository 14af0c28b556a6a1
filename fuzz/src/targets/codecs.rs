//! Compression: arbitrary bytes decompress within the limit or fail, and every round trip is exact.

use curtail_wire::compression::{Codec, Compression, DecompressError, DecompressLimit, decompress};

use crate::{Input, Target, memory};

pub(super) const TARGET: Target = Target { name: "codecs", run, seeds, cases: 3_000 };

/// Memory of a decompressor besides its output: the blocks of an LZ4 frame are up to 8 MiB.
const WINDOW: usize = 20 * 1024 * 1024;

fn run(input: &[u8]) {
    let mut input = Input::new(input);
    let codec = *input.pick(&Codec::ALL);
    let limit = DecompressLimit { max_bytes: usize::from(input.u16()) * 32 };
    if input.flag() {
        round_trip(codec, input.rest());
    } else {
        hostile(codec, input.rest(), limit);
    }
}

fn hostile(codec: Codec, bytes: &[u8], limit: DecompressLimit) {
    // A growing buffer exists twice.
    let cap = 2 * limit.max_bytes + 8 * bytes.len() + WINDOW + memory::SLACK;
    let what = format!("decompression of {codec}");
    let out = memory::within(&what, cap, || decompress(codec, bytes, &limit));
    if let Ok(out) = out {
        assert!(out.len() <= limit.max_bytes, "{codec}: more than the limit");
    }
}

fn round_trip(codec: Codec, bytes: &[u8]) {
    let mut packed = Vec::new();
    Compression::from(codec).compress(bytes, &mut packed).expect("any bytes can be compressed");
    let limit = |max_bytes| DecompressLimit { max_bytes };
    let exact = decompress(codec, &packed, &limit(bytes.len()));
    assert_eq!(exact.as_deref(), Ok(bytes), "{codec}: a limit of exactly the size suffices");
    if let Some(less) = bytes.len().checked_sub(1) {
        let refused = decompress(codec, &packed, &limit(less));
        assert_eq!(refused, Err(DecompressError::TooLarge { limit: less }), "{codec}");
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let text = b"a record, a record, and a longer record that repeats: record record record";
    let zeros = vec![0; 100_000];
    let mut seeds = Vec::new();
    for (i, codec) in Codec::ALL.into_iter().enumerate() {
        let mut head = vec![i as u8, 0x20, 0, 1];
        head.extend_from_slice(text);
        seeds.push(head);
        for content in [&text[..], &zeros] {
            let mut seed = vec![i as u8, 0x08, 0, 0];
            Compression::from(codec).compress(content, &mut seed).expect("plain bytes");
            seed.truncate(4_000);
            seeds.push(seed);
        }
    }
    seeds
}
