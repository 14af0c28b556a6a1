//! Batches written by Apache Kafka 4.3.0 (its `MemoryRecordsBuilder`), one for each codec.
//!
//! Each holds one record: key `k0`, value `value 0 of <codec> 0`, headers `h` = `x` and `h` = null, at
//! 1,700,000,000,000 ms; producer id 9, epoch 2, leader epoch 4; base offset and sequence are equal.

use super::*;

const WRITTEN: [(Codec, i32, &str); 5] = [
    (
        Codec::None,
        0,
        "0000000000000000000000520000000402d79875d90000000000000000018bcfe568000000018bcf\
         e5680000000000000000090002000000000000000140000000046b302276616c75652030206f6620\
         6e6f6e6520300402680278026801",
    ),
    (
        Codec::Gzip,
        3001,
        "0000000000000bb90000006600000004027d5079240001000000000000018bcfe568000000018bcf\
         e568000000000000000009000200000bb9000000011f8b08000000000000ff7360606060c936502a\
         4bcc294d553050c84f5348afca2c50306061ca60aa60ca60040009137e6421000000",
    ),
    (
        Codec::Snappy,
        6002,
        "00000000000017720000006a000000040274a49cab0002000000000000018bcfe568000000018bcf\
         e5680000000000000000090002000017720000000182534e41505059000000000100000001000000\
         25238844000000046b302676616c75652030206f6620736e6170707920300402680278026801",
    ),
    (
        Codec::Lz4,
        9003,
        "000000000000232b000000600000000402dc882f130003000000000000018bcfe568000000018bcf\
         e56800000000000000000900020000232b0000000104224d18604082200000803e000000046b3020\
         76616c75652030206f66206c7a342030040268027802680100000000",
    ),
    (
        Codec::Zstd,
        12004,
        "0000000000002ee40000005e00000004021d407c090004000000000000018bcfe568000000018bcf\
         e568000000000000000009000200002ee40000000128b52ffd005808010040000000046b30227661\
         6c75652030206f66207a73746420300402680278026801010000",
    ),
];

fn unhex(text: &str) -> Vec<u8> {
    let digit = |at| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digit).collect()
}

fn expected(codec: Codec) -> Sample {
    let mut sample = Sample::new("k0", &format!("value 0 of {codec} 0"), 1_700_000_000_000);
    sample.headers = vec![("h".into(), Some(b"x".to_vec())), ("h".into(), None)];
    sample
}

#[test]
fn its_batches_are_read() {
    for (codec, base, text) in WRITTEN {
        let batch = Batch::parse(unhex(text).into()).unwrap();
        batch.verify_crc().unwrap();
        let header = batch.header;
        assert_eq!(header.compression(), Ok(codec));
        assert_eq!((header.base_offset, header.base_sequence), (i64::from(base), base));
        assert_eq!((header.producer_id, header.producer_epoch), (9, 2));
        assert_eq!(header.partition_leader_epoch, 4);
        let records = read(&batch, &DecompressLimit::default()).unwrap();
        assert_eq!(records[0].offset, i64::from(base));
        let samples: Vec<_> = records.into_iter().map(Sample::from).collect();
        assert_eq!(samples, [expected(codec)], "{codec}");
    }
}

/// Gzip and zstd data differ by the version of the library; everything else must not.
#[test]
fn the_same_bytes_are_written() {
    for (codec, base, text) in WRITTEN {
        if matches!(codec, Codec::Gzip | Codec::Zstd) {
            continue;
        }
        let mut batch = encode(&[expected(codec)], codec);
        stamp(&mut batch, ProducerStamp { producer_id: 9, producer_epoch: 2, base_sequence: base });
        set_base_offset_and_epoch(&mut batch, base.into(), 4);
        assert_eq!(batch, unhex(text), "{codec}");
    }
}
