//! Decoding returns what was encoded, in one batch or many.

use super::*;

#[test]
fn nulls_and_empty_values_differ() {
    let none = Sample { key: None, value: None, headers: vec![], timestamp: 0 };
    let empty = Sample { key: Some(vec![]), value: Some(vec![]), headers: vec![], timestamp: 0 };
    let records = decode(&encode(&[none, empty], Codec::None));
    assert_eq!((&records[0].key, &records[0].value), (&None, &None));
    assert_eq!((&records[1].key, &records[1].value), (&Some(Bytes::new()), &Some(Bytes::new())));
}

#[test]
fn repeated_headers_keep_their_order() {
    let mut sample = Sample::new("k", "v", 0);
    sample.headers = vec![
        ("b".into(), Some(b"1".to_vec())),
        ("a".into(), Some(b"2".to_vec())),
        ("b".into(), None),
        (String::new(), Some(vec![])),
    ];
    let record = decode(&encode(&[sample], Codec::None)).remove(0);
    assert_eq!(record.headers.len(), 4);
    let found: Vec<_> = record.headers.iter().collect();
    assert_eq!(found, [("b", Some(&b"1"[..])), ("a", Some(b"2")), ("b", None), ("", Some(b""))]);
}

/// Without compression every field lies within the bytes that were given.
#[test]
fn uncompressed_records_are_not_copied() {
    let mut sample = Sample::new("key", "value", 0);
    sample.headers = vec![("name".into(), Some(b"x".to_vec()))];
    let data = Bytes::from(encode(&[sample], Codec::None));
    let within = |part: &[u8]| data.as_ptr_range().contains(&part.as_ptr());
    let batch = batches(data.clone()).next().unwrap().unwrap();
    let record = batch.records(&DecompressLimit { max_bytes: 0 }).unwrap().next().unwrap().unwrap();
    assert!(within(record.key.as_deref().unwrap()));
    assert!(within(record.value.as_deref().unwrap()));
    let (name, value) = record.headers.iter().next().unwrap();
    assert!(within(name.as_bytes()) && within(value.unwrap()));
}

#[test]
fn batches_in_a_row_are_read_up_to_the_first_incomplete_one() {
    let one = encode(&[Sample::new("a", "1", 0)], Codec::None);
    let two = encode(&[Sample::new("b", "2", 0), Sample::new("c", "3", 0)], Codec::Gzip);
    let all = [&one[..], &two, &one].concat();
    for cut in 0..=all.len() {
        let mut split = batches(Bytes::copy_from_slice(&all[..cut]));
        let sizes: Vec<_> = split.by_ref().map(|batch| batch.unwrap().raw().len()).collect();
        let mut expected = vec![one.len(), two.len(), one.len()];
        while expected.iter().sum::<usize>() > cut {
            expected.pop();
        }
        assert_eq!(sizes, expected, "cut at {cut}");
        assert_eq!(split.remaining(), cut - expected.iter().sum::<usize>());
    }
}

/// Compaction removes records from a batch but keeps its last offset.
#[test]
fn offsets_may_have_gaps() {
    let samples: Vec<_> = (0..10).map(|n| Sample::new("k", &n.to_string(), n)).collect();
    let whole = encode(&samples, Codec::None);
    let mut ends = vec![BATCH_HEADER_LEN];
    while let Some(&len) = whole.get(*ends.last().unwrap()) {
        ends.push(ends.last().unwrap() + 1 + usize::from(len / 2));
    }
    let kept = [&whole[ends[2]..ends[3]], &whole[ends[7]..ends[8]]].concat();
    let mut batch = wrap(&kept, 2, 9, 0).raw().to_vec();
    set_base_offset_and_epoch(&mut batch, 100, 0);
    let offsets: Vec<_> = decode(&batch).iter().map(|record| record.offset).collect();
    assert_eq!(offsets, [102, 107]);
    assert_eq!(BatchHeader::parse(&batch).unwrap().last_offset(), 109);
}

/// Names that are not UTF-8 are shown as Java shows them, and the other headers are untouched.
#[test]
fn header_names_that_are_not_text_are_shown_as_in_java() {
    let mut sample = Sample::new("k", "v", 0);
    sample.headers = vec![("!!".into(), Some(b"one".to_vec())), ("two".into(), None)];
    let mut batch = encode(&[sample.clone(), sample], Codec::None);
    let at = batch.windows(2).position(|pair| pair == b"!!").unwrap();
    batch[at] = 0xff;
    stamp(&mut batch, ProducerStamp::NONE);
    let records = decode(&batch);
    let first: Vec<_> = records[0].headers.iter().collect();
    assert_eq!(first, [("\u{fffd}!", Some(&b"one"[..])), ("two", None)]);
    let second: Vec<_> = records[1].headers.iter().collect();
    assert_eq!(second, [("!!", Some(&b"one"[..])), ("two", None)]);
}

#[test]
fn owned_and_borrowed_reads_of_one_batch_can_be_mixed() {
    let samples: Vec<_> = (0..6).map(|n| Sample::new("k", &n.to_string(), n)).collect();
    let batch = Batch::parse(encode(&samples, Codec::Lz4).into()).unwrap();
    let mut records = batch.records(&DecompressLimit::default()).unwrap();
    for offset in 0..6 {
        if offset % 2 == 0 {
            assert_eq!(records.next().unwrap().unwrap().offset, offset);
        } else {
            assert_eq!(records.next_ref().unwrap().unwrap().offset, offset);
        }
    }
    assert!(records.next().is_none() && records.next_ref().is_none());
}

proptest! {
    #[test]
    fn decoded_records_equal_the_encoded_ones_with_every_codec(
        samples in proptest::collection::vec(any_sample(), 0..40),
        codec in proptest::sample::select(&Codec::ALL[..]),
    ) {
        let batch = encode(&samples, codec);
        prop_assert_eq!(BatchHeader::parse(&batch).unwrap().compression(), Ok(codec));
        let records = decode(&batch);
        prop_assert!(records.iter().map(|record| record.offset).eq(0..samples.len() as i64));
        let back: Vec<Sample> = records.into_iter().map(Sample::from).collect();
        prop_assert_eq!(back, samples);
    }
}
