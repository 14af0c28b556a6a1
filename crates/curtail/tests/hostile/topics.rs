//! Topics that lose partitions, or seem to: every accepted record for such a partition has an outcome.

use std::collections::VecDeque;

use curtail::{Delivery, Error, ErrorCode};
use curtail_wire::ApiKey;
use tokio::time::Instant;

use crate::{
    broker::{Act, Broker, TOPIC},
    pipe::{ADDRESS, PipeNet, Reach},
    *,
};

/// A producer for a topic with two partitions that refreshes its metadata continuously.
async fn two_partitions(delivery_timeout: Duration) -> (std::sync::Arc<Broker>, Producer) {
    let broker = Broker::honest().await;
    broker.model.lock().partitions = 2;
    let config = producer_config(&broker.address.to_string())
        .metadata_max_age(Duration::from_millis(5))
        .delivery_timeout(delivery_timeout)
        .batch_size(1);
    let producer = Producer::with_env(config, &broker.env()).unwrap();
    (broker, producer)
}

async fn send(producer: &Producer, partition: i32, value: &str) -> Result<Delivery, Error> {
    let record = Record::to(TOPIC).partition(partition).value(value);
    ends("send", producer.send(record)).await
}

async fn write(producer: &Producer, partition: i32, value: &str) {
    let delivery = send(producer, partition, value).await.unwrap();
    ends("delivery", delivery).await.unwrap();
}

/// Writes to `partition` until the producer has seen the broker's current description of the topic.
async fn refreshed(broker: &Broker, producer: &Producer, partition: i32) {
    // One response may be in flight with the previous description.
    let enough = broker.calls(ApiKey::METADATA) + 3;
    while broker.calls(ApiKey::METADATA) < enough {
        write(producer, partition, "on").await;
    }
}

fn log(broker: &Broker, partition: i32) -> Vec<String> {
    let log = broker.model.lock().log.get(&partition).cloned().unwrap_or_default();
    log.into_iter().map(|value| String::from_utf8(value).unwrap()).collect()
}

fn refuse(broker: &Broker, partition: i32, times: usize) {
    let refusals = VecDeque::from(vec![ErrorCode::NOT_ENOUGH_REPLICAS; times]);
    broker.model.lock().refusals.insert(partition, refusals);
}

/// Metadata responses omit partition 1, like those of a broker that lags behind the controller while the topic grows.
fn hide_partition(broker: &Broker) {
    let mut stale = broker.picture();
    stale.topics[0].partitions.truncate(1);
    broker.script(move |call, frame| match call.api {
        ApiKey::METADATA => Act::Send(crate::broker::metadata(call, &stale)),
        _ => Act::Send(frame),
    });
}

/// If it restarted at 0, the broker would take its records for duplicates and acknowledge them.
#[test]
fn a_partition_that_was_hidden_by_a_lagging_broker_keeps_its_sequence() {
    run(async {
        let (broker, producer) = two_partitions(Duration::from_millis(1500)).await;
        write(&producer, 1, "first").await;
        hide_partition(&broker);
        refreshed(&broker, &producer, 0).await;
        broker.script(|_, frame| Act::Send(frame));
        refreshed(&broker, &producer, 0).await;
        write(&producer, 1, "second").await;
        assert_eq!(log(&broker, 1), ["first", "second"]);
        ends("close", producer.close()).await.unwrap();
    });
}

#[test]
fn a_lagging_broker_hides_no_partition() {
    run(async {
        let (broker, producer) = two_partitions(Duration::from_millis(1500)).await;
        write(&producer, 1, "first").await;
        hide_partition(&broker);
        refreshed(&broker, &producer, 0).await;
        assert_eq!(ends("partitions", producer.partitions_for(TOPIC)).await.unwrap(), 2);
        write(&producer, 1, "second").await;
        assert_eq!(log(&broker, 1), ["first", "second"]);
    });
}

/// The topic is recreated with fewer partitions. A record of a missing partition waits for `delivery.timeout.ms`, as
/// in Java, and so do `flush` and `close`.
#[test]
fn flush_waits_for_a_record_whose_partition_is_missing() {
    run(async {
        let (broker, producer) = two_partitions(Duration::from_millis(1500)).await;
        write(&producer, 0, "before").await;
        refuse(&broker, 1, usize::from(u16::MAX));
        let queued = send(&producer, 1, "queued").await.unwrap();
        broker.model.lock().recreate(1);
        refreshed(&broker, &producer, 0).await;
        let refused = send(&producer, 1, "too late").await.unwrap_err();
        assert!(matches!(refused, Error::UnknownPartition { partitions: 1, .. }), "{refused}");
        assert!(queued.outcome().is_none(), "it may still be written");
        ends("flush", producer.flush()).await.unwrap();
        let error = queued.outcome().expect("an outcome after flush").unwrap_err();
        check_error(&error);
        let Error::NotAcknowledged { may_have_been_written: false, partition: 1, .. } = &error
        else {
            panic!("{error}")
        };
        assert!(error.report().to_string().contains("delivery.timeout.ms"), "{error}");
        ends("close", producer.close()).await.unwrap();
        assert_eq!(log(&broker, 1), [""; 0]);
    });
}

#[test]
fn record_of_a_missing_partition_is_written_once_the_topic_has_it_again() {
    run(async {
        let (broker, producer) = two_partitions(CALL).await;
        write(&producer, 0, "before").await;
        refuse(&broker, 1, usize::from(u16::MAX));
        let queued = send(&producer, 1, "queued").await.unwrap();
        broker.model.lock().recreate(1);
        refreshed(&broker, &producer, 0).await;
        refuse(&broker, 1, 0);
        broker.model.lock().partitions = 2;
        ends("delivery", queued).await.unwrap();
        assert_eq!(log(&broker, 1), ["queued"]);
        ends("close", producer.close()).await.unwrap();
    });
}

/// The brokers of the new topic do not know the producer: they would accept its second batch after a refusal of the
/// first.
#[test]
fn records_for_a_recreated_topic_do_not_overtake_each_other() {
    run(async {
        let (broker, producer) = two_partitions(Duration::from_millis(1500)).await;
        write(&producer, 1, "before").await;
        broker.model.lock().recreate(2);
        refreshed(&broker, &producer, 0).await;
        // The second attempt has the others after it.
        refuse(&broker, 1, 2);
        let mut sent = Vec::new();
        for value in ["first", "second", "third"] {
            sent.push(send(&producer, 1, value).await.unwrap());
        }
        for delivery in sent {
            ends("delivery", delivery).await.unwrap();
        }
        assert_eq!(log(&broker, 1), ["first", "second", "third"]);
    });
}

/// A lagging broker describes an expired topic: only the waiting record causes requests for the rest of it.
#[test]
fn a_record_for_a_partition_that_metadata_lacks_requests_a_refresh_until_it_is_named() {
    run_virtually(async {
        let (broker, env, _) = PipeNet::with(Reach::Open, |_, frame| Act::Send(frame));
        broker.model.lock().partitions = 2;
        let config = producer_config(&ADDRESS.to_string())
            .metadata_max_age(Duration::from_secs(300))
            .metadata_max_idle(Duration::from_secs(300))
            .delivery_timeout(Duration::from_secs(120));
        let producer = Producer::with_env(config, &env).unwrap();
        write(&producer, 0, "before").await;
        write(&producer, 1, "before").await;
        tokio::time::sleep(Duration::from_secs(1500)).await;
        let (asked, mut stale) = (broker.calls(ApiKey::METADATA), broker.picture());
        stale.topics[0].partitions.truncate(1);
        broker.script(move |call, frame| match call.api {
            ApiKey::METADATA if call.nth < asked + 5 => {
                Act::Send(crate::broker::metadata(call, &stale))
            }
            _ => Act::Send(frame),
        });
        let began = Instant::now();
        write(&producer, 0, "known").await;
        write(&producer, 1, "hidden").await;
        assert!(began.elapsed() < Duration::from_secs(1), "after {:?}", began.elapsed());
        assert_eq!(log(&broker, 1), ["before", "hidden"]);
        let asked = broker.calls(ApiKey::METADATA) - asked;
        assert_eq!(asked, 6, "one request per backoff");
    });
}
