//! A transaction is committed although one of its records failed.
//!
//! - Client: Dekaf
//! - Threads: https://github.com/thomhurst/Dekaf/pull/3370
//! - Failure: the commit overwrote the abortable state, and the transaction committed without the failed record
//! - Promise: a commit that returns Ok has committed every record of the transaction

use curtail::{Record, TransactionalProducer};

use crate::stage::{Stage, TOPIC, ends, run};

#[test]
fn a_commit_fails_if_a_record_failed() {
    run(async {
        let stage = Stage::with(1, 1, |_| {}, &[("max.message.bytes", "1000")]).await;
        let config = stage.producer_config().transactional_id("museum");
        let mut producer = TransactionalProducer::with_env(config, &stage.env()).unwrap();
        ends("init", producer.init_transactions()).await.unwrap();
        let transaction = ends("begin", producer.begin_transaction()).await.unwrap();
        drop(transaction.send(Record::to(TOPIC).value("small")).await.unwrap());
        let large = "x".repeat(5000);
        let failed = transaction.send(Record::to(TOPIC).value(&large)).await.unwrap();
        ends("a delivery", failed).await.unwrap_err();
        ends("commit", transaction.commit()).await.unwrap_err();
        ends("abort", producer.abort_transaction()).await.unwrap();
        let transaction = ends("begin", producer.begin_transaction()).await.unwrap();
        drop(transaction.send(Record::to(TOPIC).value("after")).await.unwrap());
        ends("commit", transaction.commit()).await.unwrap();
        assert_eq!(stage.committed_values().await, ["after"]);
    });
}
