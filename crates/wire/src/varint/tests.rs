use super::*;
use proptest::prelude::*;

fn loop_len(mut value: u64) -> usize {
    let mut len = 1;
    while value >= 0x80 {
        value >>= 7;
        len += 1;
    }
    len
}

#[test]
fn computed_lengths_are_exact_at_every_power_of_two() {
    for bit in 0..64u32 {
        for value in [(1u64 << bit) - 1, 1 << bit, (1 << bit) + 1] {
            assert_eq!(len_u64(value), loop_len(value), "{value:#x}");
            if let Ok(small) = u32::try_from(value) {
                assert_eq!(len_u32(small), loop_len(value), "{value:#x}");
            }
        }
    }
    assert_eq!((len_u32(u32::MAX), len_u64(u64::MAX)), (5, 10));
}

#[test]
fn varints_encode_to_the_bytes_of_the_specification() {
    for (value, bytes) in [
        (0, &[0x00][..]),
        (-1, &[0x01]),
        (1, &[0x02]),
        (63, &[0x7e]),
        (-64, &[0x7f]),
        (64, &[0x80, 0x01]),
        (i32::MAX, &[0xfe, 0xff, 0xff, 0xff, 0x0f]),
        (i32::MIN, &[0xff, 0xff, 0xff, 0xff, 0x0f]),
    ] {
        let mut out = Vec::new();
        push_i32(&mut out, value);
        assert_eq!(out, bytes);
        let mut at = 0;
        assert_eq!(read_i32(bytes, &mut at), Ok(value));
        assert_eq!(at, bytes.len());
    }
}

#[test]
fn overlong_and_truncated_varints_are_refused() {
    let mut at = 0;
    assert_eq!(read_u32(&[0xff; 5], &mut at), Err(VarintError::Overlong));
    assert_eq!(
        read_u32(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x00], &mut at),
        Err(VarintError::Overlong)
    );
    assert_eq!(read_u32(&[0xff, 0xff, 0xff, 0xff, 0x10], &mut at), Err(VarintError::Overlong));
    assert_eq!(read_u32(&[0x80; 4], &mut at), Err(VarintError::Truncated));
    assert_eq!(read_u64(&[0xff; 10], &mut at), Err(VarintError::Overlong));
    assert_eq!(read_u64(&[0x80; 9], &mut at), Err(VarintError::Truncated));
    assert_eq!(read_u32(&[], &mut at), Err(VarintError::Truncated));
    assert_eq!(at, 0);
    assert_eq!(read_u32(&[], &mut usize::MAX.clone()), Err(VarintError::Truncated));
}

#[test]
fn varints_with_redundant_bytes_are_accepted() {
    let mut at = 0;
    assert_eq!(read_u32(&[0x83, 0x80, 0x00, 0x77], &mut at), Ok(3));
    assert_eq!(at, 3);
}

proptest! {
    #[test]
    fn varints_decode_to_the_encoded_values(
        a in any::<i32>(),
        b in any::<i64>(),
        c in any::<u32>(),
        shift in 0u32..64,
    ) {
        let (a, b, c) = (a >> (shift / 2), b >> shift, c >> (shift / 2));
        let mut out = Vec::new();
        push_i32(&mut out, a);
        prop_assert_eq!(out.len(), len_i32(a));
        push_i64(&mut out, b);
        prop_assert_eq!(out.len(), len_i32(a) + len_i64(b));
        push_u32(&mut out, c);
        let mut at = 0;
        prop_assert_eq!(read_i32(&out, &mut at), Ok(a));
        prop_assert_eq!(read_i64(&out, &mut at), Ok(b));
        prop_assert_eq!(read_u32(&out, &mut at), Ok(c));
        prop_assert_eq!(at, out.len());
    }

    #[test]
    fn reading_arbitrary_bytes_ends_within_them(
        bytes in proptest::collection::vec(any::<u8>(), 0..12),
        start in 0usize..14,
    ) {
        let (mut narrow, mut wide) = (start, start);
        if read_u32(&bytes, &mut narrow).is_err() {
            prop_assert_eq!(narrow, start);
        }
        if read_u64(&bytes, &mut wide).is_err() {
            prop_assert_eq!(wide, start);
        }
        prop_assert!(narrow.max(wide) <= bytes.len().max(start));
    }
}
