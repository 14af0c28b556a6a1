//! A broker lists aborted transactions out of the order of their offsets.
//!
//! - Client: franz-go; Redpanda is a cluster that answers so
//! - Threads: https://github.com/twmb/franz-go/pull/1348
//! - Failure: the list was taken for sorted, so records of aborted transactions were returned with read_committed
//! - Promise: with read_committed no record of an aborted transaction is returned

use curtail::{Record, TransactionalProducer, config::IsolationLevel};
use curtail_wire::ApiKey;

use crate::stage::{Stage, Step, TOPIC, ends, run};

#[test]
pub(crate) fn aborted_records_stay_hidden() {
    run(async {
        let stage = Stage::new(1, 1).await;
        let mut expected = Vec::new();
        for id in ["a", "b"] {
            let config = stage.producer_config().transactional_id(id);
            let mut producer = TransactionalProducer::new(config).unwrap();
            ends("init", producer.init_transactions()).await.unwrap();
            for n in 0..6 {
                let transaction = ends("begin", producer.begin_transaction()).await.unwrap();
                let value = format!("{id}{n}");
                let sent = transaction.send(Record::to(TOPIC).value(&value)).await.unwrap();
                ends("a delivery", sent).await.unwrap();
                if n % 2 == 0 {
                    ends("abort", transaction.abort()).await.unwrap();
                } else {
                    ends("commit", transaction.commit()).await.unwrap();
                    expected.push(value);
                }
            }
        }
        // The response to the last commit precedes its marker.
        assert_eq!(stage.committed_values().await, expected);
        let lists = std::sync::Arc::new(parking_lot::Mutex::new(0));
        let longest = std::sync::Arc::clone(&lists);
        stage.script(move |request| {
            let longest = std::sync::Arc::clone(&longest);
            match request.api {
                ApiKey::FETCH => request.edit_fetch(move |response| {
                    for partition in response.topics.iter_mut().flat_map(|t| &mut t.partitions) {
                        if let Some(aborted) = &mut partition.aborted_transactions {
                            aborted.reverse();
                            let mut longest = longest.lock();
                            *longest = aborted.len().max(*longest);
                        }
                    }
                }),
                _ => Step::Pass,
            }
        });
        let mut consumer =
            stage.reader(|config| config.isolation_level(IsolationLevel::ReadCommitted)).await;
        let mut values = Vec::new();
        while values.len() < expected.len() {
            let wait = std::time::Duration::from_millis(100);
            let polled = ends("poll", consumer.poll(wait)).await.unwrap();
            values.extend(polled.into_iter().map(|record| record.value));
        }
        assert_eq!(values, expected);
        assert!(*lists.lock() > 1, "a list of one is sorted");
        consumer.close().await;
    });
}
