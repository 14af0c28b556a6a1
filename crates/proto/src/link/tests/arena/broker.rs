//! The brokers' side.

use super::*;

/// The bytes of a request: its correlation id, and the payload of each partition.
pub(super) type Bytesful = (i32, Vec<(usize, Bytes)>);

/// A partition's log, which follows the leadership. It checks sequences as Kafka's leaders do.
#[derive(Default)]
pub(super) struct Log {
    pub(super) numbers: Vec<u32>,
    producer: Option<(i16, i32)>,
    recent: VecDeque<(i16, i32)>,
}

impl Log {
    pub(super) fn append(&mut self, bytes: &Bytes) -> ErrorCode {
        let batch = records::Batch::parse(bytes.clone()).expect("exactly one batch");
        let header = batch.header;
        let at = (header.producer_epoch, header.base_sequence);
        if self.recent.contains(&at) {
            return ErrorCode::NONE;
        }
        match self.producer {
            Some((epoch, _)) if at.0 < epoch => return ErrorCode::INVALID_PRODUCER_EPOCH,
            Some((epoch, next)) if at.1 != if at.0 > epoch { 0 } else { next } => {
                return ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER;
            }
            _ => {}
        }
        if self.producer.is_some_and(|(epoch, _)| epoch != at.0) {
            self.recent.clear();
        }
        self.producer = Some((at.0, at.1 + header.record_count));
        self.recent.push_back(at);
        if self.recent.len() > 5 {
            self.recent.pop_front();
        }
        let records = batch.records(&DecompressLimit::default()).expect("our own records");
        self.numbers.extend(records.map(|record| {
            let value = record.expect("our own record").value.expect("a value");
            u32::from_be_bytes(*value.first_chunk().expect("a number first"))
        }));
        ErrorCode::NONE
    }
}

impl World {
    pub(super) fn serve(&mut self, broker: usize, connection: u64, (id, payloads): Bytesful) {
        let mut results = Vec::new();
        for (index, payload) in payloads {
            let has_faults = self.has_faults && !self.is_over;
            let draw = if has_faults { self.random.below(400) } else { usize::MAX };
            let partition = &mut self.partitions[index];
            let is_leader = partition.elected == broker;
            let append = if is_leader { Append::Possible } else { Append::Excluded };
            let error = match draw {
                _ if !is_leader => ErrorCode::NOT_LEADER_OR_FOLLOWER,
                0..5 => ErrorCode::NOT_ENOUGH_REPLICAS,
                5..8 => match partition.log.append(&payload) {
                    ErrorCode::NONE => ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                    error => error,
                },
                8..10 => ErrorCode::MESSAGE_TOO_LARGE,
                10 => ErrorCode::INVALID_RECORD,
                // It loses the leadership, and regains it at once.
                11..14 => match partition.log.append(&payload) {
                    ErrorCode::NONE => ErrorCode::NOT_LEADER_OR_FOLLOWER,
                    error => error,
                },
                _ => partition.log.append(&payload),
            };
            results.push((index, (error, append)));
        }
        let throttles = self.has_faults && self.random.one_in(50);
        let throttle = if throttles { 10 * MS } else { Duration::ZERO };
        self.plan(self.network, Happens::Answers { broker, connection, id, results, throttle });
    }
}
