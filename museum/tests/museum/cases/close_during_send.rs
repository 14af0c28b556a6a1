//! A producer is closed while another task sends.
//!
//! - Client: kafka-go
//! - Threads: https://github.com/segmentio/kafka-go/issues/1307, https://github.com/segmentio/kafka-go/pull/1312
//! - Failure: a send that had passed the check for closing added a writer after the close had collected them, and the close waited indefinitely
//! - Promise: close returns, and each record sent before it has an outcome

use curtail_wire::ApiKey;

use crate::stage::{Gate, Stage, Step, Work, ends, run};

#[test]
fn close_returns_and_every_send_has_an_outcome() {
    run(async {
        let stage = Stage::new(1, 2).await;
        let gate = Gate::closed();
        let held = gate.clone();
        stage.script(move |request| match request.api {
            ApiKey::METADATA => Step::Hold(held.clone(), Box::new(Step::Pass)),
            _ => Step::Pass,
        });
        let producer = stage.producer(|config| config.batch_size(1));
        let tasks: Vec<_> = (0..50)
            .map(|n| {
                let producer = producer.clone();
                tokio::spawn(async move {
                    let value = n.to_string();
                    let sent = producer.send(Some(n % 2), &value).await;
                    (value, sent)
                })
            })
            .collect();
        stage.arrived(ApiKey::METADATA, 1).await;
        let closing = tokio::spawn(producer.close());
        tokio::task::yield_now().await;
        gate.open();
        let _ = ends("close", closing).await.unwrap();
        let mut sent = Vec::new();
        for task in tasks {
            let (value, outcome) = ends("a send", task).await.unwrap();
            sent.extend(outcome.ok().map(|delivery| (value, delivery)));
        }
        // Tasks do not begin in the order of their numbers, so only the count is compared.
        let mut acknowledged = 0;
        for (value, delivery) in sent {
            let mut work = Work::default();
            work.push(&value, delivery);
            acknowledged += usize::from(ends("a delivery", work.only()).await.is_ok());
        }
        let written: usize = stage.ledger().await.values().map(Vec::len).sum();
        assert_eq!(written, acknowledged);
    });
}
