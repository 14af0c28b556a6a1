//! The client's work, and the verdict on it: reported outcomes against the brokers' ledger.

use std::{collections::BTreeMap, time::Duration};

use super::{Consumer, Delivery, Outcome, Producer, Stage, ends, is_peer};

/// Records sent, in order. Values are unique.
#[derive(Default)]
pub(crate) struct Work(Vec<(String, Delivery)>);

/// Outcomes by value.
pub(crate) type Outcomes = BTreeMap<String, Outcome>;

impl Work {
    pub(crate) async fn send(&mut self, producer: &Producer, index: i32, value: &str) {
        let delivery = ends("send", producer.send(Some(index), value)).await.unwrap();
        self.0.push((value.to_owned(), delivery));
    }

    /// Sends a record that no partition was chosen for.
    pub(crate) async fn send_anywhere(&mut self, producer: &Producer, value: &str) {
        let delivery = ends("send", producer.send(None, value)).await.unwrap();
        self.0.push((value.to_owned(), delivery));
    }

    /// Sends a record and awaits its acknowledgement.
    pub(crate) async fn deliver(&mut self, producer: &Producer, index: i32, value: &str) {
        self.send(producer, index, value).await;
        let delivery = &mut self.0.last_mut().unwrap().1;
        ends("a delivery", delivery).await.unwrap();
    }

    /// Adds the records of other work after these.
    pub(crate) fn append(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    /// Adds a record that was sent elsewhere.
    pub(crate) fn push(&mut self, value: &str, delivery: Delivery) {
        self.0.push((value.to_owned(), delivery));
    }

    /// The outcome of the only record.
    pub(crate) async fn only(mut self) -> Outcome {
        assert_eq!(self.0.len(), 1);
        self.0.remove(0).1.await
    }

    /// Awaits every outcome, then compares them with the ledger.
    ///
    /// An acknowledged record is written once, at its offset. A record reported as not written is not in the log. A record
    /// in doubt is written at most once. Each partition keeps the order of sends.
    pub(crate) async fn verdict(self, stage: &Stage) -> Outcomes {
        let mut order = Vec::new();
        let mut outcomes = Outcomes::new();
        for (value, mut delivery) in self.0 {
            let outcome = ends("a delivery", &mut delivery).await;
            order.push(value.clone());
            assert!(outcomes.insert(value, outcome).is_none(), "values are unique");
        }
        let ledger = stage.ledger().await;
        for (value, outcome) in &outcomes {
            let written = ledger.values().flatten().filter(|(_, found)| found == value).count();
            let short = &value[..value.len().min(40)];
            match outcome {
                Ok(reported) => {
                    assert_eq!(written, 1, "{short:?} was acknowledged");
                    // Some peers do not know the offset when the broker takes a retry for a duplicate.
                    let Some(offset) = reported.offset else {
                        assert!(is_peer(), "acknowledged records have offsets");
                        continue;
                    };
                    let at = ledger[&reported.partition].iter().find(|(at, _)| *at == offset);
                    assert_eq!(at.map(|(_, found)| found), Some(value), "at offset {offset}");
                }
                Err(failure) if failure.may_have_been_written => {
                    assert!(written <= 1, "{short:?} was written {written} times");
                }
                Err(failure) => assert_eq!(written, 0, "{short:?} failed: {}", failure.text),
            }
        }
        for (index, written) in &ledger {
            let sent_as = |value: &String| order.iter().position(|sent| sent == value);
            let numbers: Vec<_> = written.iter().map(|(_, value)| sent_as(value)).collect();
            assert!(numbers.iter().all(Option::is_some), "partition {index} has other values");
            assert!(numbers.is_sorted(), "partition {index} is out of order: {numbers:?}");
        }
        outcomes
    }

    /// As [`Self::verdict`] where every record must have been acknowledged.
    pub(crate) async fn all_acknowledged(self, stage: &Stage) {
        for (value, outcome) in self.verdict(stage).await {
            if let Err(failure) = outcome {
                panic!("{value:?} failed: {}", failure.text);
            }
        }
    }
}

/// Offsets and numbers that one poll returns.
pub(crate) async fn poll_values(consumer: &mut Consumer, wait: Duration) -> Vec<(i64, u32)> {
    let records = ends("poll", consumer.poll(wait)).await.unwrap();
    records.into_iter().map(|record| (record.offset, record.value.parse().unwrap())).collect()
}

/// Whether offsets are consecutive, begin at `first`, and each has the number of its offset.
pub(crate) fn is_consecutive(records: &[(i64, u32)], first: i64) -> bool {
    let expected = (first..).map(|offset| (offset, offset as u32));
    expected.zip(records).all(|(expected, found)| expected == *found)
}
