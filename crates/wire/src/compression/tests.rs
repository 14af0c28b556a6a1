use super::*;
use proptest::prelude::*;

fn pack(codec: Codec, input: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    Compression::from(codec).compress(input, &mut out).unwrap();
    out
}

/// Ordinary text, so that every codec finds something to shorten.
fn text(len: usize) -> Vec<u8> {
    (0..)
        .flat_map(|n: u32| format!("line {n} of {}; ", n * 7919 % 1000).into_bytes())
        .take(len)
        .collect()
}

/// Bytes without any structure.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn codecs_are_found_by_name_and_by_id() {
    for (id, codec) in Codec::ALL.into_iter().enumerate() {
        assert_eq!(usize::from(codec.id()), id);
        assert_eq!(Codec::from_id(codec.id()), Some(codec));
        assert_eq!(codec.to_string().parse(), Ok(codec));
    }
    assert_eq!(Codec::from_id(5), None);
    assert!("GZIP".parse::<Codec>().unwrap_err().to_string().contains("\"GZIP\""));
}

#[test]
fn levels_outside_the_codecs_range_are_refused() {
    for (codec, good, bad) in [
        (Codec::Gzip, &[-1, 1, 9][..], &[-2, 0, 10][..]),
        (Codec::Lz4, &[1, 9, 17], &[0, 18]),
        (Codec::Zstd, &[-131_072, -1, 0, 3, 19], &[-131_073, 23]),
        (Codec::Snappy, &[], &[0, 1]),
        (Codec::None, &[], &[0, 1]),
    ] {
        for &level in good {
            let compression = Compression::new(codec, Some(level)).unwrap();
            let mut out = Vec::new();
            compression.compress(&text(5000), &mut out).unwrap();
            assert_eq!(decompress(codec, &out, &DecompressLimit::default()).unwrap(), text(5000));
        }
        for &level in bad {
            let refused = CompressError::Level { codec, level };
            assert_eq!(Compression::new(codec, Some(level)), Err(refused.clone()));
            let unchecked = Compression { codec, level: Some(level) };
            assert_eq!(unchecked.compress(b"x", &mut Vec::new()), Err(refused));
        }
    }
}

#[test]
fn higher_levels_shorten_the_output() {
    for (codec, low, high) in [(Codec::Gzip, 1, 9), (Codec::Zstd, -100, 19)] {
        let len = |level| {
            let mut out = Vec::new();
            Compression { codec, level: Some(level) }.compress(&text(200_000), &mut out).unwrap();
            out.len()
        };
        assert!(len(high) < len(low), "{codec}");
    }
}

#[test]
fn compression_appends_after_existing_bytes() {
    for codec in Codec::ALL {
        let mut out = b"front".to_vec();
        Compression::from(codec).compress(&text(70_000), &mut out).unwrap();
        assert_eq!(&out[..5], b"front");
        assert_eq!(out[5..], pack(codec, &text(70_000)), "{codec}");
    }
}

/// Sizes around the block borders of snappy (32 KiB) and lz4 (64 KiB), twice each so that the kept
/// state of a codec is used again.
#[test]
fn decompression_restores_inputs_of_sizes_at_block_borders() {
    let sizes = [0, 1, 12, 13, 32_767, 32_768, 32_769, 65_535, 65_536, 65_537, 200_000];
    for codec in Codec::ALL {
        for size in sizes.into_iter().chain(sizes) {
            for input in [text(size), noise(size), vec![0; size]] {
                let packed = pack(codec, &input);
                let exact = DecompressLimit { max_bytes: size };
                assert_eq!(
                    decompress(codec, &packed, &exact).as_ref(),
                    Ok(&input),
                    "{codec} {size}"
                );
                if size > 0 {
                    let limit = size - 1;
                    assert_eq!(
                        decompress(codec, &packed, &DecompressLimit { max_bytes: limit }),
                        Err(DecompressError::TooLarge { limit }),
                        "{codec} {size}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_bomb_stops_at_the_limit() {
    let limit = 1 << 20;
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let bomb = pack(codec, &vec![0; 64 << 20]);
        assert_eq!(
            decompress(codec, &bomb, &DecompressLimit { max_bytes: limit }),
            Err(DecompressError::TooLarge { limit }),
            "{codec}"
        );
    }
}

/// The buffer never has more room than the limit and the byte that tells "full" from "too large".
#[test]
fn the_buffer_stays_within_the_limit() {
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        for input in [text(200_000), vec![0; 200_000], noise(200_000)] {
            let limit = DecompressLimit { max_bytes: 200_001 };
            let out = decompress(codec, &pack(codec, &input), &limit).unwrap();
            assert!(out.capacity() <= limit.max_bytes + 1, "{codec}: {}", out.capacity());
        }
    }
}

#[test]
fn lz4_frames_have_independent_blocks_and_no_checksum() {
    let packed = pack(Codec::Lz4, &text(100));
    assert_eq!(packed[..4], 0x184d_2204_u32.to_le_bytes());
    assert_eq!(packed[4], 0b0110_0000, "version 1, independent blocks, nothing else");
    assert_eq!(packed[5], 4 << 4, "blocks of 64 KiB");
    assert_eq!(packed[packed.len() - 4..], [0; 4], "end mark and no checksum after it");

    let stored = pack(Codec::Lz4, &noise(1000));
    assert_eq!(stored[7..11], (1000u32 | 1 << 31).to_le_bytes());
    assert_eq!(stored.len(), 7 + 4 + 1000 + 4);
}

/// Frames with linked blocks, checksums and content size, as other clients may write them.
#[test]
fn lz4_frames_of_other_clients_are_decompressed() {
    use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
    use std::io::Write;
    for mode in [BlockMode::Independent, BlockMode::Linked] {
        for block in [BlockSize::Max64KB, BlockSize::Max256KB, BlockSize::Max4MB] {
            let info = FrameInfo::new()
                .block_mode(mode)
                .block_size(block)
                .block_checksums(true)
                .content_checksum(true)
                .content_size(Some(300_000));
            let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
            encoder.write_all(&text(300_000)).unwrap();
            let packed = encoder.finish().unwrap();
            let limit = DecompressLimit { max_bytes: 300_000 };
            assert_eq!(decompress(Codec::Lz4, &packed, &limit).unwrap(), text(300_000));
        }
    }
}

#[test]
fn snappy_output_is_framed_as_in_java() {
    let packed = pack(Codec::Snappy, &text(40_000));
    assert_eq!(packed[..16], *b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01");
    let first = u32::from_be_bytes(packed[16..20].try_into().unwrap()) as usize;
    assert_eq!(snap::raw::decompress_len(&packed[20..20 + first]).unwrap(), 32 * 1024);
    let second = u32::from_be_bytes(packed[20 + first..24 + first].try_into().unwrap()) as usize;
    assert_eq!(24 + first + second, packed.len());

    let limit = DecompressLimit::default();
    for cut in [7, 12, 18, 30, packed.len() - 1] {
        let error = decompress(Codec::Snappy, &packed[..cut], &limit).unwrap_err();
        assert!(matches!(error, DecompressError::Invalid { .. }), "{cut}: {error}");
    }
}

#[test]
fn snappy_blocks_without_framing_are_decompressed() {
    let bare = snap::raw::Encoder::new().compress_vec(&text(100_000)).unwrap();
    let limit = DecompressLimit { max_bytes: 100_000 };
    assert_eq!(decompress(Codec::Snappy, &bare, &limit).unwrap(), text(100_000));
    assert_eq!(
        decompress(Codec::Snappy, &bare, &DecompressLimit { max_bytes: 99_999 }),
        Err(DecompressError::TooLarge { limit: 99_999 })
    );
}

/// A length of 100 MB in front of a few bytes is refused before anything is allocated.
#[test]
fn snappy_blocks_that_claim_a_false_length_are_refused() {
    let mut bytes = Vec::new();
    crate::varint::push_u32(&mut bytes, 100_000_000);
    bytes.extend_from_slice(&[0x00; 50]);
    let error = decompress(Codec::Snappy, &bytes, &DecompressLimit::default()).unwrap_err();
    assert!(error.to_string().contains("more than it can hold"), "{error}");
}

/// The Java client streams, so that its frames do not state their size.
#[test]
fn zstd_frames_without_a_size_and_in_a_row_are_decompressed() {
    let streamed = zstd_stream(&text(300_000), 3);
    assert_eq!(::zstd::zstd_safe::get_frame_content_size(&streamed).unwrap(), None);
    let limit = DecompressLimit { max_bytes: 300_000 };
    assert_eq!(decompress(Codec::Zstd, &streamed, &limit).unwrap(), text(300_000));
    let below = DecompressLimit { max_bytes: 299_999 };
    assert_eq!(
        decompress(Codec::Zstd, &streamed, &below),
        Err(DecompressError::TooLarge { limit: 299_999 })
    );

    let twice = [pack(Codec::Zstd, b"one"), pack(Codec::Zstd, b"two")].concat();
    assert_eq!(decompress(Codec::Zstd, &twice, &limit).unwrap(), b"onetwo");
}

fn zstd_stream(input: &[u8], level: i32) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = ::zstd::stream::write::Encoder::new(Vec::new(), level).unwrap();
    encoder.write_all(input).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn gzip_members_in_a_row_are_decompressed() {
    let twice = [pack(Codec::Gzip, b"one"), pack(Codec::Gzip, b"two")].concat();
    let limit = DecompressLimit::default();
    assert_eq!(decompress(Codec::Gzip, &twice, &limit).unwrap(), b"onetwo");
}

#[test]
fn no_compression_obeys_the_limit() {
    let limit = DecompressLimit { max_bytes: 3 };
    assert_eq!(decompress(Codec::None, b"abc", &limit).unwrap(), b"abc");
    assert_eq!(
        decompress(Codec::None, b"abcd", &limit),
        Err(DecompressError::TooLarge { limit: 3 })
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn decompression_restores_the_input_of_every_codec(
        input in proptest::collection::vec(any::<u8>(), 0..3000),
        fold in 1u8..=255,
    ) {
        let input: Vec<u8> = input.into_iter().map(|byte| byte % fold).collect();
        for codec in Codec::ALL {
            let packed = pack(codec, &input);
            prop_assert_eq!(&decompress(codec, &packed, &DecompressLimit::default()).unwrap(), &input);
        }
    }

    #[test]
    fn arbitrary_bytes_end_in_a_result(
        input in proptest::collection::vec(any::<u8>(), 0..300),
        head in 0usize..5,
    ) {
        let limit = DecompressLimit { max_bytes: 1000 };
        let head = pack(Codec::ALL[head], b"");
        for front in [&head[..], &head[..head.len() / 2]] {
            let bytes = [front, &input].concat();
            for codec in Codec::ALL {
                if let Ok(out) = decompress(codec, &bytes, &limit) {
                    prop_assert!(out.len() <= limit.max_bytes);
                }
            }
        }
    }

    #[test]
    fn changed_bytes_end_in_a_result(at in any::<prop::sample::Index>(), flip in 1u8..=255) {
        let limit = DecompressLimit { max_bytes: 4000 };
        for codec in Codec::ALL {
            let mut packed = pack(codec, &text(2000));
            let at = at.index(packed.len());
            packed[at] ^= flip;
            if let Ok(out) = decompress(codec, &packed, &limit) {
                prop_assert!(out.len() <= limit.max_bytes);
            }
            let _ = decompress(codec, &packed[..at], &limit);
        }
    }
}
