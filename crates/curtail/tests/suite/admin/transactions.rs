//! Producers and their transactions.

use std::time::Duration;

use curtail::{
    Error, ErrorCode, ProducerConfig, Record, TransactionalProducer,
    admin::{AbortTransaction, OffsetSpec, TransactionFilter},
    config::IsolationLevel,
};

use super::{Backend, admin, at, code, only, until};

pub(super) async fn are_found_and_aborted(backend: &Backend) {
    let admin = admin(backend);
    backend.create_topic("held", 2, 3).await;
    let initialized = async || {
        let config = ProducerConfig::new(backend.bootstrap()).transactional_id("holder");
        let mut producer = TransactionalProducer::new(config).unwrap();
        producer.init_transactions().await.unwrap();
        producer
    };
    // It leaves behind an epoch that is too old for any write.
    drop(initialized().await);
    let mut producer = initialized().await;
    let transaction = producer.begin_transaction().await.unwrap();
    let record = Record::to("held").partition(1).value("x");
    transaction.send(record).await.unwrap().await.unwrap();

    let found = only(admin.describe_transactions(&["holder"]).await.unwrap()).unwrap();
    assert_eq!(found.state, "Ongoing");
    assert_eq!(found.partitions, [at("held", 1)]);
    assert_eq!(found.timeout, Duration::from_secs(60));
    assert!(found.started.is_some());
    let missing = only(admin.describe_transactions(&["nobody"]).await.unwrap());
    assert_eq!(code(&missing), ErrorCode::TRANSACTIONAL_ID_NOT_FOUND);

    let listed = async |filter: TransactionFilter| {
        let mut ids = Vec::new();
        for (_, found) in admin.list_transactions(&filter).await.unwrap() {
            ids.extend(found.unwrap().into_iter().map(|found| found.transactional_id));
        }
        ids
    };
    let of_state = |state: &str| TransactionFilter {
        states: vec![state.to_owned()],
        ..TransactionFilter::default()
    };
    assert_eq!(listed(TransactionFilter::default()).await, ["holder"]);
    assert_eq!(listed(of_state("Ongoing")).await, ["holder"]);
    assert_eq!(listed(of_state("PrepareAbort")).await, [""; 0]);
    let of_others = TransactionFilter {
        producer_ids: vec![found.producer_id + 1],
        ..TransactionFilter::default()
    };
    assert_eq!(listed(of_others).await, [""; 0]);
    let for_an_hour = TransactionFilter {
        open_for: Some(Duration::from_secs(3600)),
        ..TransactionFilter::default()
    };
    assert_eq!(listed(for_an_hour).await, [""; 0]);

    let asked = [at("held", 1), at("held", 0), at("held", 9)];
    let producers = admin.describe_producers(&asked).await.unwrap();
    let [held] = &producers[0].1.as_ref().unwrap()[..] else { panic!("{producers:?}") };
    assert_eq!(held.producer_id, found.producer_id);
    assert_eq!((held.transaction_start, held.last_sequence), (Some(0), Some(0)));
    assert!(producers[1].1.as_ref().unwrap().is_empty(), "{producers:?}");
    assert!(matches!(producers[2].1, Err(Error::UnknownPartition { .. })), "{producers:?}");

    // The last stable offset stays before the open transaction, until the admin client aborts it.
    let stable = async || {
        let end = [(at("held", 1), OffsetSpec::Latest)];
        let listed = admin.list_offsets(&end, IsolationLevel::ReadCommitted).await.unwrap();
        only(listed).unwrap().offset.unwrap()
    };
    assert_eq!(stable().await, 0);
    let abort = AbortTransaction::of(at("held", 1), held);
    let zombie = AbortTransaction { producer_epoch: held.producer_epoch - 1, ..abort.clone() };
    let refused = admin.abort_transaction(&zombie).await;
    assert_eq!(code(&refused), ErrorCode::INVALID_PRODUCER_EPOCH);
    admin.abort_transaction(&abort).await.unwrap();
    // The record and the marker.
    until(stable, |end| *end == 2).await;
}

pub(super) async fn producers_are_fenced(backend: &Backend) {
    let admin = admin(backend);
    backend.create_topic("fenced", 1, 3).await;
    let config = ProducerConfig::new(backend.bootstrap()).transactional_id("replaced");
    let mut producer = TransactionalProducer::new(config).unwrap();
    producer.init_transactions().await.unwrap();
    let transaction = producer.begin_transaction().await.unwrap();
    let record = Record::to("fenced").partition(0).value("x");
    transaction.send(record).await.unwrap().await.unwrap();
    let before = only(admin.describe_transactions(&["replaced"]).await.unwrap()).unwrap();

    let fenced = admin.fence_producers(&["replaced", "never-used"]).await.unwrap();
    let replaced = fenced[0].1.as_ref().unwrap();
    assert_eq!(replaced.producer_id, before.producer_id);
    assert!(replaced.producer_epoch > before.producer_epoch, "{replaced:?} {before:?}");
    assert_eq!(fenced[1].1.as_ref().unwrap().producer_epoch, 0);
    let error = transaction.commit().await.unwrap_err();
    assert!(error.is_fatal(), "{error}");
    let after = only(admin.describe_transactions(&["replaced"]).await.unwrap()).unwrap();
    assert!(after.partitions.is_empty(), "{after:?}");
}
