//! `delivery.timeout.ms` limits every record, whatever the broker does. Only `request.timeout.ms` closes a
//! connection. In virtual time.

use std::sync::Arc;

use curtail::{Env, ErrorCode, config::Acks};
use curtail_wire::ApiKey;
use proptest::prelude::*;
use tokio::time::Instant;

use crate::{
    broker::{Act, Call, produce, produce_of},
    pipe::{ADDRESS, PipeNet, Reach, Valve},
    *,
};

const DELIVERY: Duration = Duration::from_secs(10);
pub(crate) const REQUEST: Duration = Duration::from_secs(6);

pub(crate) fn config() -> ProducerConfig {
    producer_config(&ADDRESS.to_string())
        .max_block(BLOCK)
        .request_timeout(REQUEST)
        .delivery_timeout(DELIVERY)
}

fn start(config: ProducerConfig, env: &Env) -> Producer {
    Producer::with_env(config, env).unwrap()
}

fn values_of(broker: &Broker, partition: i32) -> Vec<String> {
    let model = broker.model.lock();
    let log = model.log.get(&partition).cloned().unwrap_or_default();
    log.into_iter().map(|value| String::from_utf8(value).unwrap()).collect()
}

/// A response with an error for every partition, after which certainly nothing is written.
pub(crate) fn refused(call: &Call, frame: &[u8]) -> Act {
    let mut answer = produce_of(call, frame);
    for partition in answer.topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
        partition.error = ErrorCode::NOT_ENOUGH_REPLICAS;
        partition.base_offset = -1;
    }
    Act::Send(produce(call, &answer))
}

/// Refuses Produce for 8 s after the start, before any batch is appended. After that `then` decides.
fn refusing_at_first(
    mut then: impl FnMut(&Call, Vec<u8>) -> Act + Send + 'static,
) -> impl FnMut(&Call, Vec<u8>) -> Act + Send + 'static {
    let until = Instant::now() + Duration::from_secs(8);
    move |call, frame| {
        if call.api == ApiKey::PRODUCE && Instant::now() < until {
            return refused(call, &frame);
        }
        then(call, frame)
    }
}

fn is_perhaps_written(error: &Error) -> bool {
    matches!(error, Error::NotAcknowledged { may_have_been_written: true, .. })
}

#[test]
fn a_batch_that_expires_in_flight_leaves_its_connection_open() {
    run_virtually(async {
        let pause = Duration::from_secs(4);
        let (broker, env, _) = PipeNet::with(
            Reach::Open,
            refusing_at_first(move |call, frame| match call.api {
                ApiKey::PRODUCE => Act::Later(pause, frame),
                _ => Act::Send(frame),
            }),
        );
        broker.model.lock().partitions = 2;
        broker.model.lock().appends_only_after(Instant::now() + Duration::from_secs(8));
        let producer = start(config(), &env);
        let began = Instant::now();
        let late = producer.send(record("late")).await.unwrap();
        tokio::time::sleep(Duration::from_secs(9)).await;
        let neighbour = Record::to(broker::TOPIC).partition(1).value("neighbour");
        let neighbour = producer.send(neighbour).await.unwrap();
        let error = late.await.unwrap_err();
        check_error(&error);
        assert!(is_perhaps_written(&error), "{error}");
        assert!(error.report().to_string().contains("delivery.timeout.ms"), "{error}");
        assert!(began.elapsed() < DELIVERY + Duration::from_millis(100), "{:?}", began.elapsed());
        let after = producer.send(record("after")).await.unwrap();
        neighbour.await.unwrap();
        after.await.unwrap();
        assert_eq!(values_of(&broker, 0), ["late", "after"]);
        assert_eq!(values_of(&broker, 1), ["neighbour"]);
        assert_eq!(broker.model.lock().produced_on.len(), 1, "one connection lasts");
        producer.close().await.unwrap();
    });
}

#[test]
fn a_request_without_response_closes_its_connection_after_the_request_timeout() {
    run_virtually(async {
        let (broker, env, _) =
            PipeNet::with(Reach::Open, |call, frame| match (call.api, call.nth) {
                (ApiKey::PRODUCE, 0) => Act::Swallow,
                _ => Act::Send(frame),
            });
        let producer = start(config(), &env);
        let began = Instant::now();
        producer.send(record("again")).await.unwrap().await.unwrap();
        assert!((REQUEST..REQUEST + Duration::from_millis(100)).contains(&began.elapsed()));
        assert_eq!(values_of(&broker, 0), ["again"]);
        assert_eq!(broker.model.lock().produced_on.len(), 2);
    });
}

/// Sends until the socket is full of records for a peer that reads nothing.
async fn fill(producer: &Producer) -> Vec<(Instant, curtail::Delivery)> {
    let value = "x".repeat(1000);
    let mut sent = Vec::new();
    for _ in 0..20 {
        sent.push((Instant::now(), producer.send(record(&value)).await.unwrap()));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    sent
}

fn a_peer_that_stops_reading(acks: Acks) {
    run_virtually(async move {
        let (_broker, env, _) = PipeNet::with(Reach::Open, |call, frame| match call.api {
            ApiKey::PRODUCE => Act::Mute,
            _ => Act::Send(frame),
        });
        let config = config().acks(acks).idempotence(acks == Acks::All);
        let producer = start(config, &env);
        let sent = fill(&producer).await;
        producer.flush().await.unwrap();
        for (n, (at, delivery)) in sent.into_iter().enumerate() {
            assert!(delivery.outcome().is_some(), "record {n}");
            assert!(at.elapsed() <= DELIVERY + Duration::from_secs(3), "record {n}");
            if let Err(error) = delivery.await {
                check_error(&error);
            }
        }
        assert_eq!(producer.available_memory(), ProducerConfig::new("x").get_buffer_memory());
        producer.close().await.unwrap();
    });
}

#[test]
fn flush_with_acks_0_ends_though_the_peer_stops_reading() {
    a_peer_that_stops_reading(Acks::None);
}

#[test]
fn flush_with_acks_1_ends_though_the_peer_stops_reading() {
    a_peer_that_stops_reading(Acks::Leader);
}

#[test]
fn flush_with_acks_all_ends_though_the_peer_stops_reading() {
    a_peer_that_stops_reading(Acks::All);
}

/// CVE-2026-35554: a batch expired after the socket had accepted part of it. Its buffer was refilled with other
/// records, which were sent under the old header.
#[test]
fn the_buffer_of_a_batch_that_expires_during_a_stalled_write_is_not_reused() {
    run_virtually(async {
        let stalled_at = Arc::new(parking_lot::Mutex::new(None::<Valve>));
        let script = {
            let (valve, until) = (stalled_at.clone(), Instant::now() + Duration::from_secs(8));
            move |call: &Call, frame: Vec<u8>| {
                if call.api != ApiKey::PRODUCE || Instant::now() > until + Duration::from_secs(1) {
                    return Act::Send(frame);
                }
                if Instant::now() >= until
                    && let Some(valve) = valve.lock().take()
                {
                    valve.shut();
                }
                refused(call, &frame)
            }
        };
        let (broker, env, valve) = PipeNet::with(Reach::Open, script);
        broker.model.lock().appends_only_after(Instant::now() + Duration::from_secs(9));
        *stalled_at.lock() = Some(valve.clone());
        let producer = start(config(), &env);
        let value = "a".repeat(12_000);
        let expired = producer.send(record(&value)).await.unwrap();
        let error = expired.await.unwrap_err();
        assert!(is_perhaps_written(&error), "{error}");
        // Buffers of the same size, filled during the stalled write.
        let others: Vec<String> = (0..4u8).map(|n| char::from(b'b' + n).to_string()).collect();
        let others: Vec<String> = others.iter().map(|letter| letter.repeat(12_000)).collect();
        let mut sent = Vec::new();
        for other in &others {
            sent.push(producer.send(record(other)).await.unwrap());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        valve.open();
        for delivery in sent {
            delivery.await.unwrap();
        }
        // The broker checks the CRC of each batch.
        let written = values_of(&broker, 0);
        let mut expected = vec![value];
        expected.extend(others);
        assert!(written == expected, "{:?}", written.iter().map(|v| &v[..1]).collect::<Vec<_>>());
        assert_eq!(broker.model.lock().produced_on.len(), 1, "one connection lasts");
    });
}

/// A request is rebuilt without expired batches if the socket has accepted none of its bytes.
#[test]
fn a_batch_that_expires_before_the_socket_takes_a_byte_is_not_written() {
    run_virtually(async {
        let jammed_at = Arc::new(parking_lot::Mutex::new(None::<Valve>));
        let script = {
            let (valve, until) = (jammed_at.clone(), Instant::now() + Duration::from_secs(8));
            move |call: &Call, frame: Vec<u8>| {
                if call.api != ApiKey::PRODUCE || Instant::now() > until + Duration::from_secs(1) {
                    return Act::Send(frame);
                }
                if Instant::now() >= until
                    && let Some(valve) = valve.lock().take()
                {
                    valve.jam();
                }
                refused(call, &frame)
            }
        };
        let (broker, env, valve) = PipeNet::with(Reach::Open, script);
        broker.model.lock().partitions = 2;
        broker.model.lock().appends_only_after(Instant::now() + Duration::from_secs(9));
        *jammed_at.lock() = Some(valve.clone());
        let producer = start(config(), &env);
        let overdue = producer.send(record("overdue")).await.unwrap();
        let error = overdue.await.unwrap_err();
        check_error(&error);
        assert!(!is_perhaps_written(&error), "{error}");
        let neighbour = Record::to(broker::TOPIC).partition(1).value("neighbour");
        let neighbour = producer.send(neighbour).await.unwrap();
        let after = producer.send(record("after")).await.unwrap();
        tokio::time::sleep(Duration::from_millis(500)).await;
        valve.open();
        neighbour.await.unwrap();
        after.await.unwrap();
        assert_eq!(values_of(&broker, 0), ["after"]);
        assert_eq!(values_of(&broker, 1), ["neighbour"]);
        assert_eq!(broker.model.lock().produced_on.len(), 1, "one connection lasts");
    });
}

/// Behaviour of the peer from its `nth` Produce request on.
#[derive(Clone, Copy, Debug)]
enum Peer {
    Works,
    StopsReading {
        nth: usize,
    },
    StopsAnswering {
        nth: usize,
    },
    AnswersHalf {
        nth: usize,
    },
    Cuts {
        nth: usize,
    },
    Refuses {
        nth: usize,
    },
    AnswersLate {
        nth: usize,
        pause: Duration,
    },
    Throttles {
        nth: usize,
    },
    GivesNoMetadata,
    /// Responds to no Metadata request before this time, and to no Produce request.
    GivesMetadataAfter(Duration),
    GivesNoProducerId,
    CannotBeReached(Reach),
}

fn peers() -> impl Strategy<Value = Peer> {
    let nth = || 0..4usize;
    let millis = |most: u64| (0..most).prop_map(Duration::from_millis);
    prop_oneof![
        Just(Peer::Works),
        nth().prop_map(|nth| Peer::StopsReading { nth }),
        nth().prop_map(|nth| Peer::StopsAnswering { nth }),
        nth().prop_map(|nth| Peer::AnswersHalf { nth }),
        nth().prop_map(|nth| Peer::Cuts { nth }),
        nth().prop_map(|nth| Peer::Refuses { nth }),
        (nth(), millis(4_000)).prop_map(|(nth, pause)| Peer::AnswersLate { nth, pause }),
        nth().prop_map(|nth| Peer::Throttles { nth }),
        Just(Peer::GivesNoMetadata),
        millis(3_000).prop_map(Peer::GivesMetadataAfter),
        Just(Peer::GivesNoProducerId),
        Just(Peer::CannotBeReached(Reach::Refused)),
        Just(Peer::CannotBeReached(Reach::BlackHole)),
    ]
}

impl Peer {
    fn reach(self) -> Reach {
        match self {
            Self::CannotBeReached(reach) => reach,
            _ => Reach::Open,
        }
    }

    fn act(self, began: Instant, call: &Call, frame: Vec<u8>) -> Act {
        let from = |nth| call.api == ApiKey::PRODUCE && call.nth >= nth;
        match self {
            Self::StopsReading { nth } if from(nth) => Act::Mute,
            Self::StopsAnswering { nth } if from(nth) => Act::Swallow,
            Self::AnswersHalf { nth } if from(nth) => Act::Stall(frame[..frame.len() / 2].to_vec()),
            Self::Cuts { nth } if from(nth) => Act::Cut(Vec::new()),
            Self::Refuses { nth } if from(nth) => refused(call, &frame),
            Self::AnswersLate { nth, pause } if from(nth) => Act::Later(pause, frame),
            Self::Throttles { nth } if from(nth) => {
                let mut answer = produce_of(call, &frame);
                answer.throttle_time_ms = i32::MAX;
                Act::Send(produce(call, &answer))
            }
            Self::GivesNoMetadata if call.api == ApiKey::METADATA => Act::Swallow,
            Self::GivesMetadataAfter(pause) => match call.api {
                ApiKey::METADATA if began.elapsed() < pause => Act::Swallow,
                ApiKey::PRODUCE => Act::Swallow,
                _ => Act::Send(frame),
            },
            Self::GivesNoProducerId if call.api == ApiKey::INIT_PRODUCER_ID => Act::Swallow,
            _ => Act::Send(frame),
        }
    }
}

/// A record to send: delay, partition, size, and whether the send waits for metadata and memory.
type Sending = (u64, i32, usize, bool);

fn outcomes_come_in_time(peer: Peer, acks: Acks, linger: u64, sendings: Vec<Sending>) {
    const DELIVERY: Duration = Duration::from_secs(3);
    run_virtually(async move {
        let began = Instant::now();
        let script = move |call: &Call, frame| peer.act(began, call, frame);
        let (broker, env, _) = PipeNet::with(peer.reach(), script);
        broker.model.lock().partitions = 3;
        let config = producer_config(&ADDRESS.to_string())
            .request_timeout(Duration::from_millis(1_500))
            .delivery_timeout(DELIVERY)
            .max_block(DELIVERY)
            .linger(Duration::from_millis(linger))
            .acks(acks)
            .idempotence(acks == Acks::All);
        let buffer_memory = config.get_buffer_memory();
        let producer = start(config, &env);
        let mut outcomes = Vec::new();
        for (pause, partition, size, waits) in sendings {
            tokio::time::sleep(Duration::from_millis(pause)).await;
            let value = "x".repeat(size);
            let record = Record::to(broker::TOPIC).value(&value);
            let record = if partition < 3 { record.partition(partition) } else { record };
            let sent = match waits {
                true => producer.send(record).await,
                false => producer.try_send(record),
            };
            let at = Instant::now();
            if let Ok(delivery) = sent {
                outcomes.push(tokio::spawn(async move {
                    let outcome = delivery.await;
                    (at.elapsed(), outcome)
                }));
            }
        }
        producer.flush().await.unwrap();
        for outcome in outcomes {
            let (after, outcome) = outcome.await.unwrap();
            assert!(after <= DELIVERY + Duration::from_secs(1), "{after:?}: {outcome:?}");
            if matches!(peer, Peer::Works) {
                outcome.unwrap();
            } else if let Err(error) = outcome {
                check_error(&error);
            }
        }
        assert_eq!(producer.available_memory(), buffer_memory, "every batch returns its memory");
        producer.close().await.unwrap();
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Every record has its outcome within a second after `delivery.timeout.ms`, whatever the peer does.
    #[test]
    fn every_record_has_its_outcome_in_time(
        peer in peers(),
        acks in prop::sample::select(vec![Acks::None, Acks::Leader, Acks::All]),
        linger in prop::sample::select(vec![0, 20, 1_500]),
        sendings in prop::collection::vec(
            (0..1_200u64, 0..4i32, 0..9_000usize, prop::bool::ANY), 1..12),
    ) {
        outcomes_come_in_time(peer, acks, linger, sendings);
    }
}
