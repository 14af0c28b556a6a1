use super::*;

fn batch(base: i64, producer: i64, flags: &str) -> String {
    format!(
        "baseOffset: {base} lastOffset: {base} count: 1 baseSequence: 0 lastSequence: 0 producerId: {producer} \
         producerEpoch: 0 partitionLeaderEpoch: 0 {flags} deleteHorizonMs: OptionalLong.empty position: 0 \
         CreateTime: 1 size: 200 magic: 2 compresscodec: none crc: 1 isvalid: true\n"
    )
}

fn record(offset: i64, number: u64) -> String {
    let value = String::from_utf8(crate::kills::value(number)).unwrap();
    format!(
        "| offset: {offset} CreateTime: 1 keySize: -1 valueSize: 100 sequence: 0 headerKeys: [] payload: {value}\n"
    )
}

fn marker(offset: i64, producer: i64, kind: &str) -> String {
    let batch = batch(offset, producer, "isTransactional: true isControl: true");
    format!(
        "{batch}| offset: {offset} CreateTime: 1 keySize: 4 valueSize: 6 sequence: -1 headerKeys: [] \
         endTxnMarker: {kind} coordinatorEpoch: 0\n"
    )
}

const PLAIN: &str = "isTransactional: false isControl: false";
const TRANSACTIONAL: &str = "isTransactional: true isControl: false";

#[test]
fn records_have_their_offsets_and_numbers() {
    let dump = format!(
        "Dumping /data/t-0/00000000000000000000.log\nLog starting offset: 0\n{}{}{}{}",
        batch(0, 1, PLAIN),
        record(0, 7),
        batch(1, 1, PLAIN),
        record(1, 8)
    );
    assert_eq!(parse(&dump).unwrap(), [(0, 7), (1, 8)]);
}

#[test]
fn aborted_and_undecided_records_are_left_out() {
    let dump = [
        batch(0, 1, TRANSACTIONAL),
        record(0, 1),
        batch(1, 2, TRANSACTIONAL),
        record(1, 2),
        marker(2, 1, "ABORT"),
        marker(3, 2, "COMMIT"),
        batch(4, 1, TRANSACTIONAL),
        record(4, 3),
    ]
    .concat();
    assert_eq!(parse(&dump).unwrap(), [(1, 2)]);
}

#[test]
fn damaged_batches_and_unknown_payloads_are_errors() {
    let damaged = batch(0, 1, PLAIN).replace("isvalid: true", "isvalid: false");
    assert!(parse(&damaged).unwrap_err().to_string().contains("damaged"));
    let unknown = format!("{}| offset: 0 CreateTime: 1 payload: hello\n", batch(0, 1, PLAIN));
    assert!(parse(&unknown).unwrap_err().to_string().contains("cannot read"));
}
