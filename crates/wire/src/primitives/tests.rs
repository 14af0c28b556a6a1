use bytes::Bytes;
use proptest::prelude::*;

use super::*;

const WHAT: &str = "field";

fn read<T>(
    bytes: &'static [u8],
    encoding: Encoding,
    field: impl FnOnce(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<T, DecodeError> {
    let source = Bytes::from_static(bytes);
    field(&mut Reader::new(&source, encoding))
}

#[test]
fn ids_print_as_kafka_prints_them() {
    // org.apache.kafka.common.Uuid.METADATA_TOPIC_ID is the id with only the last bit set.
    assert_eq!(Uuid(1_u128.to_be_bytes()).to_string(), "AAAAAAAAAAAAAAAAAAAAAQ");
    assert_eq!(Uuid::ZERO.to_string(), "AAAAAAAAAAAAAAAAAAAAAA");
    assert_eq!(Uuid([0xff; 16]).to_string(), "_____________________w");
    assert!(Uuid::ZERO.is_zero());
    assert!(!Uuid(1_u128.to_be_bytes()).is_zero());
}

#[test]
fn text_that_is_no_id_is_refused() {
    for text in
        ["", "AAAA", "AAAAAAAAAAAAAAAAAAAAA+", "AAAAAAAAAAAAAAAAAAAAAB", "é".repeat(11).as_str()]
    {
        assert_eq!(text.parse::<Uuid>(), Err(ParseUuidError), "{text}");
    }
    assert_eq!("AAAAAAAAAAAAAAAAAAAAAQ==".parse(), Ok(Uuid(1_u128.to_be_bytes())));
}

#[test]
fn varints_are_the_protocols() {
    let cases: [(&[u8], u32); 5] = [
        (&[0], 0),
        (&[0x7f], 127),
        (&[0x80, 1], 128),
        (&[0xac, 2], 300),
        (&[0xff, 0xff, 0xff, 0xff, 0x0f], u32::MAX),
    ];
    for (bytes, value) in cases {
        assert_eq!(read(bytes, Encoding::Flexible, |r| r.uvarint(WHAT)), Ok(value));
        let mut w = Writer::default();
        w.uvarint(value);
        assert_eq!(w.as_slice(), bytes);
    }
    assert_eq!(read(&[1], Encoding::Flexible, |r| r.varint(WHAT)), Ok(-1));
    assert_eq!(
        read(&[0xff, 0xff, 0xff, 0xff, 0x0f], Encoding::Flexible, |r| r.varint(WHAT)),
        Ok(i32::MIN)
    );
}

#[test]
fn varints_that_do_not_end_are_refused() {
    let too_long = Err(DecodeError::VarintTooLong { what: WHAT });
    let truncated = Err(DecodeError::Truncated { what: WHAT });
    let read32 = |bytes| read(bytes, Encoding::Flexible, |r| r.uvarint(WHAT));
    let read64 = |bytes| read(bytes, Encoding::Flexible, |r| r.varlong(WHAT)).map(|_| 0);
    assert_eq!(read32(&[0xff, 0xff, 0xff, 0xff, 0x1f]), too_long);
    assert_eq!(read32(&[0x80, 0x80, 0x80, 0x80, 0x80, 0]), too_long);
    assert_eq!(read32(&[0x80, 0x80]), truncated);
    assert_eq!(read64(&[0xff; 11]), too_long);
    assert_eq!(read64(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]), too_long);
    assert_eq!(read64(&[0xff; 9]), truncated);
}

#[test]
fn strings_and_bytes_are_checked() {
    use Encoding::{Classic, Flexible};
    let string = |bytes, encoding| read(bytes, encoding, |r| r.string(WHAT).map(str::to_owned));
    let nullable = |bytes, encoding| {
        read(bytes, encoding, |r| Ok(r.nullable_string(WHAT)?.map(str::to_owned)))
    };
    assert_eq!(string(&[0, 2, b'h', b'i'], Classic), Ok("hi".to_owned()));
    assert_eq!(string(&[3, b'h', b'i'], Flexible), Ok("hi".to_owned()));
    assert_eq!(nullable(&[0xff, 0xff], Classic), Ok(None));
    assert_eq!(nullable(&[0], Flexible), Ok(None));
    assert_eq!(string(&[0xff, 0xff], Classic), Err(DecodeError::UnexpectedNull { what: WHAT }));
    assert_eq!(string(&[0], Flexible), Err(DecodeError::UnexpectedNull { what: WHAT }));
    let negative = DecodeError::NegativeLength { what: WHAT, length: -2 };
    assert_eq!(string(&[0xff, 0xfe], Classic), Err(negative));
    assert_eq!(string(&[0, 3, b'h', b'i'], Classic), Err(DecodeError::Truncated { what: WHAT }));
    assert_eq!(string(&[2, 0xff], Flexible), Err(DecodeError::InvalidUtf8 { what: WHAT }));
    let large = DecodeError::LengthTooLarge { what: WHAT, length: 0x8000, limit: 0x7fff };
    assert_eq!(string(&[0x81, 0x80, 0x02, 0], Flexible), Err(large));
    let bytes = |bytes, encoding| read(bytes, encoding, |r| r.bytes(WHAT));
    let large = DecodeError::LengthTooLarge { what: WHAT, length: i32::MAX as u64, limit: 1 };
    assert_eq!(bytes(&[0x7f, 0xff, 0xff, 0xff, 0], Classic), Err(large));
    assert_eq!(bytes(&[0], Flexible), Err(DecodeError::UnexpectedNull { what: WHAT }));
}

#[test]
fn array_lengths_are_checked_against_the_smallest_element() {
    use Encoding::{Classic, Flexible};
    assert_eq!(read(&[0, 0, 0, 2, 1, 2, 3, 4], Classic, |r| r.array(2, WHAT)), Ok(2));
    let large = |length, limit| Err(DecodeError::LengthTooLarge { what: WHAT, length, limit });
    assert_eq!(read(&[0, 0, 0, 2, 1, 2, 3], Classic, |r| r.array(2, WHAT)), large(2, 1));
    assert_eq!(
        read(&[0xff, 0xff, 0xff, 0xff, 0x0f, 0], Flexible, |r| r.array(1, WHAT)),
        large(u64::from(u32::MAX) - 1, 1)
    );
    assert_eq!(
        read(&[0x80, 0, 0, 0], Classic, |r| r.array(1, WHAT)),
        Err(DecodeError::NegativeLength { what: WHAT, length: i32::MIN.into() })
    );
    assert_eq!(
        read(&[0xff, 0xff, 0xff, 0xff], Classic, |r| r.array(1, WHAT)),
        Err(DecodeError::UnexpectedNull { what: WHAT })
    );
    assert_eq!(read(&[0], Flexible, |r| r.nullable_array(1, WHAT)), Ok(None));
}

#[test]
fn tagged_fields_are_visited_and_unknown_ones_skipped() {
    let mut w = Writer::default();
    w.set_encoding(Encoding::Flexible);
    w.tag_count(3);
    w.tag(0, |w| w.i32(7));
    w.tag(5, |w| w.raw(&[1; 200]));
    w.tag(300, |w| w.string("end"));
    w.i8(9);
    let source = w.into_bytes();
    let mut r = Reader::new(&source, Encoding::Flexible);
    let (mut number, mut string, mut tags) = (0, "", Vec::new());
    r.tagged(WHAT, |tag, r| {
        tags.push((tag, r.remaining()));
        match tag {
            0 => number = r.i32(WHAT)?,
            300 => string = r.string(WHAT)?,
            _ => {}
        }
        Ok(())
    })
    .unwrap();
    assert_eq!((number, string), (7, "end"));
    assert_eq!(tags, [(0, 4), (5, 200), (300, 4)]);
    assert_eq!(r.i8(WHAT), Ok(9));
    assert_eq!(r.finish(WHAT), Ok(()));
}

#[test]
fn tagged_fields_are_checked() {
    let skip = |bytes| read(bytes, Encoding::Flexible, |r| r.skip_tagged(WHAT));
    assert_eq!(skip(&[0]), Ok(()));
    assert_eq!(skip(&[2, 1, 0, 2, 0]), Ok(()));
    assert_eq!(skip(&[2, 1, 0, 1, 0]), Err(DecodeError::TagOrder { what: WHAT, tag: 1 }));
    assert_eq!(skip(&[2, 1, 0, 0, 0]), Err(DecodeError::TagOrder { what: WHAT, tag: 0 }));
    assert_eq!(
        skip(&[0xff, 0xff, 0xff, 0xff, 0x0f]),
        Err(DecodeError::TooManyTags { what: WHAT, count: u32::MAX })
    );
    assert_eq!(skip(&[1, 0, 5, 1]), Err(DecodeError::Truncated { what: WHAT }));
    let visit =
        read(&[1, 0, 2, 1, 2], Encoding::Flexible, |r| r.tagged(WHAT, |_, r| r.i8(WHAT).map(drop)));
    assert_eq!(visit, Err(DecodeError::TrailingBytes { what: WHAT, count: 1 }));
    let visit = read(&[1, 0, 1, 1, 2], Encoding::Flexible, |r| {
        r.tagged(WHAT, |_, r| r.i16(WHAT).map(drop))
    });
    assert_eq!(visit, Err(DecodeError::Truncated { what: WHAT }), "a value ends where it says");
    assert_eq!(read(&[], Encoding::Classic, |r| r.skip_tagged(WHAT)), Ok(()));
}

#[test]
fn strings_too_long_to_write_are_cut_at_a_character() {
    let long = "é".repeat(20_000);
    for encoding in [Encoding::Classic, Encoding::Flexible] {
        let mut w = Writer::default();
        w.set_encoding(encoding);
        w.string(&long);
        let source = w.into_bytes();
        let mut r = Reader::new(&source, encoding);
        assert_eq!(r.string(WHAT), Ok(&long[..MAX_STRING - 1]));
        assert_eq!(r.finish(WHAT), Ok(()));
    }
}

#[test]
fn lengths_can_be_patched() {
    let mut w = Writer::append_to(vec![1]);
    w.i32(0);
    w.i16(2);
    w.patch_i32(1, -2);
    assert_eq!(w.into_vec(), [1, 0xff, 0xff, 0xff, 0xfe, 0, 2]);
}

proptest! {
    #[test]
    fn ids_survive_text(bytes: [u8; 16]) {
        let id = Uuid(bytes);
        let text = id.to_string();
        prop_assert_eq!(text.len(), 22);
        prop_assert_eq!(text.parse::<Uuid>(), Ok(id));
    }

    #[test]
    fn every_primitive_reads_back(
        a: i8, b: i16, c: u16, d: i32, e: u32, f: i64, g: bool, id: [u8; 16],
        varint: i32, varlong: i64, uvarint: u32, string: Option<String>,
        bytes: Option<Vec<u8>>, flexible: bool,
    ) {
        let encoding = if flexible { Encoding::Flexible } else { Encoding::Classic };
        let mut w = Writer::default();
        w.set_encoding(encoding);
        w.i8(a);
        w.i16(b);
        w.u16(c);
        w.i32(d);
        w.u32(e);
        w.i64(f);
        w.bool(g);
        w.uuid(Uuid(id));
        w.varint(varint);
        w.varlong(varlong);
        w.uvarint(uvarint);
        w.nullable_string(string.as_deref());
        w.nullable_bytes(bytes.as_deref());
        w.no_tags();
        let source = w.into_bytes();
        let mut r = Reader::new(&source, encoding);
        prop_assert_eq!(r.i8(WHAT), Ok(a));
        prop_assert_eq!(r.i16(WHAT), Ok(b));
        prop_assert_eq!(r.u16(WHAT), Ok(c));
        prop_assert_eq!(r.i32(WHAT), Ok(d));
        prop_assert_eq!(r.u32(WHAT), Ok(e));
        prop_assert_eq!(r.i64(WHAT), Ok(f));
        prop_assert_eq!(r.bool(WHAT), Ok(g));
        prop_assert_eq!(r.uuid(WHAT), Ok(Uuid(id)));
        prop_assert_eq!(r.varint(WHAT), Ok(varint));
        prop_assert_eq!(r.varlong(WHAT), Ok(varlong));
        prop_assert_eq!(r.uvarint(WHAT), Ok(uvarint));
        prop_assert_eq!(r.nullable_string(WHAT), Ok(string.as_deref()));
        prop_assert_eq!(r.nullable_bytes(WHAT), Ok(bytes.map(Bytes::from)));
        r.skip_tagged(WHAT).unwrap();
        prop_assert_eq!(r.finish(WHAT), Ok(()));
    }
}
