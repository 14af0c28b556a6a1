//! Concurrent sends get the same sequence number.
//!
//! - Client: @platformatic/kafka
//! - Threads: https://github.com/platformatic/kafka/issues/326
//! - Failure: of 20 concurrent sends one record was written; all 20 were acknowledged with the same offset
//! - Promise: an acknowledged record is written once, at the offset reported

use std::collections::BTreeSet;

use crate::stage::{Stage, Work, ends, run};

#[test]
fn twenty_tasks_get_twenty_offsets() {
    run(async {
        let stage = Stage::new(1, 1).await;
        let producer = stage.producer(|config| config.batch_size(1));
        let tasks: Vec<_> = (0..20)
            .map(|n| {
                let producer = producer.clone();
                tokio::spawn(async move {
                    let value = n.to_string();
                    let sent = producer.send(None, &value).await;
                    (value, sent.unwrap())
                })
            })
            .collect();
        let mut sent = Vec::new();
        for task in tasks {
            sent.push(ends("a task", task).await.unwrap());
        }
        let mut offsets = BTreeSet::new();
        for (value, delivery) in sent {
            let mut work = Work::default();
            work.push(&value, delivery);
            let metadata = ends("a delivery", work.only()).await.unwrap();
            offsets.insert(metadata.offset);
        }
        assert_eq!(offsets.len(), 20);
        let written: BTreeSet<_> =
            stage.ledger().await.into_values().flatten().map(|(_, value)| value).collect();
        assert_eq!(written.len(), 20);
    });
}
