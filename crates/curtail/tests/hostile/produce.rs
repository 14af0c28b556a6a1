//! Brokers with invalid responses to Produce, and the outcomes of the records.

use curtail::{Error, ErrorCode};
use curtail_wire::{
    ApiKey,
    produce::{LeaderIdAndEpoch, NodeEndpoint, ProducePartitionResponse, ProduceTopicResponse},
};

use crate::{
    broker::{Act, Broker, EPOCH, TOPIC, TOPIC_ID, produce, produce_of, producer_id},
    *,
};

fn values(broker: &Broker) -> Vec<String> {
    let model = broker.model.lock();
    let log = model.log.get(&0).cloned().unwrap_or_default();
    log.into_iter().map(|value| String::from_utf8(value).unwrap()).collect()
}

/// Replaces the next response to Produce.
fn first_answer(broker: &Broker, mut change: impl FnMut(&[u8]) -> Act + Send + 'static) {
    let first = broker.calls(ApiKey::PRODUCE);
    broker.script(move |call, frame| {
        if call.api == ApiKey::PRODUCE && call.nth == first {
            return change(&frame);
        }
        Act::Send(frame)
    });
}

#[test]
fn response_reset_at_any_byte_writes_once() {
    run(async {
        let broker = Broker::honest().await;
        let producer = producer(&broker);
        assert_eq!(deliver(&producer, "first").await.unwrap(), Some(0));
        let length = {
            let answer = produce_of_default();
            produce(&answer.0, &answer.1).len()
        };
        let mut expected = vec!["first".to_owned()];
        for n in 0..=length {
            first_answer(&broker, move |frame| Act::Cut(frame[..n.min(frame.len())].to_vec()));
            let (one, two) = (format!("{n}a"), format!("{n}b"));
            let a = ends("send", producer.send(record(&one))).await.unwrap();
            let b = ends("send", producer.send(record(&two))).await.unwrap();
            let at = expected.len() as i64;
            assert_eq!(ends("delivery", a).await.unwrap().offset, Some(at), "cut at {n}");
            assert_eq!(ends("delivery", b).await.unwrap().offset, Some(at + 1), "cut at {n}");
            expected.extend([one, two]);
        }
        assert_eq!(values(&broker), expected);
        ends("close", producer.close()).await.unwrap();
    });
}

/// A response of this broker's usual size.
fn produce_of_default() -> (crate::broker::Call, curtail_wire::produce::ProduceResponse) {
    let call = crate::broker::Call { api: ApiKey::PRODUCE, version: 13, correlation_id: 0, nth: 0 };
    let partitions = vec![ProducePartitionResponse::default()];
    let topics = vec![ProduceTopicResponse { name: String::new(), topic_id: TOPIC_ID, partitions }];
    (call, curtail_wire::produce::ProduceResponse { topics, ..Default::default() })
}

#[test]
fn shortened_response_writes_once() {
    run(async {
        let broker = Broker::honest().await;
        let producer = producer(&broker);
        let (call, answer) = produce_of_default();
        let length = produce(&call, &answer).len();
        let mut expected = Vec::new();
        for n in 4..length {
            first_answer(&broker, move |frame| {
                let n = n.min(frame.len());
                Act::Send([&((n - 4) as i32).to_be_bytes(), &frame[4..n]].concat())
            });
            let value = n.to_string();
            let at = expected.len() as i64;
            assert_eq!(deliver(&producer, &value).await.unwrap(), Some(at), "cut at {n}");
            expected.push(value);
        }
        assert_eq!(values(&broker), expected);
    });
}

#[test]
fn batch_missing_in_the_response_is_retried() {
    run(async {
        let broker = Broker::honest().await;
        let producer = producer(&broker);
        for (n, variant) in ["no topics", "no partitions", "others"].into_iter().enumerate() {
            let first = broker.calls(ApiKey::PRODUCE);
            broker.script(move |call, frame| {
                if call.api != ApiKey::PRODUCE || call.nth != first {
                    return Act::Send(frame);
                }
                let mut answer = produce_of(call, &frame);
                match variant {
                    "no topics" => answer.topics.clear(),
                    "no partitions" => answer.topics[0].partitions.clear(),
                    _ => {
                        let partitions = &mut answer.topics[0].partitions;
                        partitions[0].index = 999;
                        let mut second = partitions[0].clone();
                        second.index = -7;
                        partitions.push(second);
                    }
                }
                Act::Send(produce(call, &answer))
            });
            assert_eq!(deliver(&producer, variant).await.unwrap(), Some(n as i64), "{variant}");
        }
        assert_eq!(values(&broker), ["no topics", "no partitions", "others"]);
    });
}

#[test]
fn batch_missing_in_every_response_fails_with_one_error() {
    run(async {
        let broker = Broker::start(|call, frame| match call.api {
            ApiKey::PRODUCE => {
                let mut answer = produce_of(call, &frame);
                answer.topics.clear();
                Act::Send(produce(call, &answer))
            }
            _ => Act::Send(frame),
        })
        .await;
        let producer = producer(&broker);
        let error = deliver(&producer, "x").await.unwrap_err();
        check_error(&error);
        assert!(
            matches!(&error, Error::NotAcknowledged { may_have_been_written: true, .. }),
            "{error}"
        );
        assert!(error.report().to_string().contains("omits a batch"), "{error}");
    });
}

/// A leader of a lower or the same epoch is ignored; a leader of a newer epoch is followed.
#[test]
fn a_stale_leader_is_not_followed() {
    run(async {
        let other = Broker::honest().await;
        let broker = Broker::honest().await;
        let net = crate::broker::OnlyTo(vec![broker.address, other.address]);
        let env = curtail::Env { net: std::sync::Arc::new(net), ..broker.env() };
        let config = producer_config(&broker.address.to_string());
        let producer = Producer::with_env(config, &env).unwrap();
        deliver(&producer, "before").await.unwrap();
        let port = i32::from(other.address.port());
        for epoch in [-1, 0, EPOCH - 1, EPOCH] {
            let first = broker.calls(ApiKey::PRODUCE);
            broker.script(move |call, frame| {
                if call.api != ApiKey::PRODUCE || call.nth != first {
                    return Act::Send(frame);
                }
                let mut answer = produce_of(call, &frame);
                let partition = &mut answer.topics[0].partitions[0];
                partition.error = ErrorCode::NOT_LEADER_OR_FOLLOWER;
                partition.base_offset = -1;
                partition.current_leader =
                    Some(LeaderIdAndEpoch { leader_id: 2, leader_epoch: epoch });
                answer.node_endpoints =
                    vec![NodeEndpoint { node_id: 2, host: "127.0.0.1".into(), port, rack: None }];
                Act::Send(produce(call, &answer))
            });
            deliver(&producer, &epoch.to_string()).await.unwrap();
        }
        assert_eq!(other.model.lock().connections, 0, "an older leader was asked");
        assert_eq!(values(&broker), ["before", "-1", "0", "4", "5"]);
    });
}

/// Metadata of an older epoch, as from a broker cut off from the controller, changes nothing.
#[test]
fn stale_metadata_is_not_followed() {
    run(async {
        let other = Broker::honest().await;
        let broker = Broker::honest().await;
        let net = crate::broker::OnlyTo(vec![broker.address, other.address]);
        let env = curtail::Env { net: std::sync::Arc::new(net), ..broker.env() };
        let config =
            producer_config(&broker.address.to_string()).metadata_max_age(Duration::from_millis(5));
        let producer = Producer::with_env(config, &env).unwrap();
        deliver(&producer, "before").await.unwrap();
        let mut stale = broker.picture();
        let mut second = stale.brokers[0].clone();
        (second.node_id, second.port) = (2, other.address.port().into());
        stale.brokers.push(second);
        stale.topics[0].partitions[0].leader_id = 2;
        stale.topics[0].partitions[0].leader_epoch = EPOCH - 1;
        broker.script(move |call, frame| match call.api {
            ApiKey::METADATA => Act::Send(crate::broker::metadata(call, &stale)),
            _ => Act::Send(frame),
        });
        let before = broker.calls(ApiKey::METADATA);
        let mut sent = vec!["before".to_owned()];
        while broker.calls(ApiKey::METADATA) < before + 5 {
            sent.push(sent.len().to_string());
            deliver(&producer, sent.last().unwrap()).await.unwrap();
        }
        assert_eq!(other.model.lock().connections, 0, "an older leader was asked");
        assert_eq!(values(&broker), sent);
    });
}

#[test]
fn unknown_error_codes_and_messages_give_one_line() {
    run(async {
        for code in [-2, 9999, i16::MAX, i16::MIN] {
            let broker = Broker::start(move |call, frame| {
                if call.api != ApiKey::PRODUCE {
                    return Act::Send(frame);
                }
                let mut answer = produce_of(call, &frame);
                let partition = &mut answer.topics[0].partitions[0];
                partition.error = ErrorCode(code);
                partition.error_message = Some("two\nlines\r\n\0 and \x1b[31mred".repeat(100));
                Act::Send(produce(call, &answer))
            })
            .await;
            let producer = producer(&broker);
            let error = deliver(&producer, "x").await.unwrap_err();
            check_error(&error);
            assert!(matches!(error, Error::NotAcknowledged { .. }), "{error}");
        }
    });
}

/// KIP-219: after a throttled response the producer sends nothing until the throttle time has passed.
#[test]
fn a_throttled_producer_pauses() {
    run(async {
        const PAUSE: Duration = Duration::from_millis(300);
        let broker = Broker::honest().await;
        let producer = producer(&broker);
        first_answer_of(&broker, |answer| answer.throttle_time_ms = PAUSE.as_millis() as i32);
        let begun = std::time::Instant::now();
        deliver(&producer, "first").await.unwrap();
        deliver(&producer, "second").await.unwrap();
        assert!(begun.elapsed() >= PAUSE, "{:?}", begun.elapsed());
        assert_eq!(values(&broker), ["first", "second"]);
    });
}

/// Changes the first response to Produce.
fn first_answer_of(
    broker: &Broker,
    change: impl Fn(&mut curtail_wire::produce::ProduceResponse) + Send + 'static,
) {
    broker.script(move |call, frame| {
        if call.api != ApiKey::PRODUCE || call.nth != 0 {
            return Act::Send(frame);
        }
        let mut answer = produce_of(call, &frame);
        change(&mut answer);
        Act::Send(produce(call, &answer))
    });
}

#[test]
fn unresponsive_address_does_not_block_the_next_one() {
    run(async {
        let broker = Broker::honest().await;
        let net = crate::broker::BlackHoleFirst(broker.address);
        let env = curtail::Env { net: std::sync::Arc::new(net), ..broker.env() };
        let config = producer_config(&format!("kafka.test:{}", broker.address.port()))
            .max_block(Duration::from_secs(5))
            .delivery_timeout(Duration::from_secs(5));
        let producer = Producer::with_env(config, &env).unwrap();
        deliver(&producer, "arrives").await.unwrap();
        assert_eq!(values(&broker), ["arrives"]);
    });
}

#[test]
fn offsets_at_the_largest_value_do_not_overflow() {
    run(async {
        for (base, time) in [(i64::MAX, i64::MAX), (i64::MAX - 1, i64::MIN), (i64::MIN, -5)] {
            let broker = Broker::start(move |call, frame| {
                if call.api != ApiKey::PRODUCE {
                    return Act::Send(frame);
                }
                let mut answer = produce_of(call, &frame);
                let partition = &mut answer.topics[0].partitions[0];
                (partition.base_offset, partition.log_append_time_ms) = (base, time);
                partition.log_start_offset = base;
                answer.throttle_time_ms = i32::MAX;
                Act::Send(produce(call, &answer))
            })
            .await;
            let config =
                producer_config(&broker.address.to_string()).linger(Duration::from_millis(20));
            let producer = Producer::with_env(config, &broker.env()).unwrap();
            let mut sent = Vec::new();
            for value in ["a", "b", "c"] {
                sent.push(ends("send", producer.send(record(value))).await.unwrap());
            }
            for delivery in sent {
                ends("delivery", delivery).await.unwrap();
            }
        }
    });
}

#[test]
fn unsolicited_responses_close_the_connection_and_lose_no_record() {
    run(async {
        let broker = Broker::start(|call, mut frame| {
            if call.api == ApiKey::PRODUCE && call.nth % 2 == 0 {
                // The response, followed by a copy of it.
                frame.extend_from_within(..);
            }
            Act::Send(frame)
        })
        .await;
        let producer = producer(&broker);
        let expected: Vec<String> = (0..20).map(|n| n.to_string()).collect();
        for (n, value) in expected.iter().enumerate() {
            assert_eq!(deliver(&producer, value).await.unwrap(), Some(n as i64));
        }
        assert_eq!(values(&broker), expected);
    });
}

/// Without an identity no record is sent, and the records fail at their deadline.
#[test]
fn records_without_a_producer_id_fail_at_their_deadline() {
    run(async {
        for variant in 0..3 {
            let broker = Broker::start(move |call, frame| match (call.api, variant) {
                (ApiKey::INIT_PRODUCER_ID, 0) => Act::Mute,
                (ApiKey::INIT_PRODUCER_ID, 1) => Act::Cut(frame[..9].to_vec()),
                (ApiKey::INIT_PRODUCER_ID, _) => {
                    Act::Send(crate::broker::frame(call, |w| w.raw(&[0xff; 30])))
                }
                _ => Act::Send(frame),
            })
            .await;
            let producer = producer(&broker);
            let error = deliver(&producer, "x").await.unwrap_err();
            check_error(&error);
            let Error::NotAcknowledged { may_have_been_written: false, .. } = &error else {
                panic!("{error}")
            };
            assert!(values(&broker).is_empty());
            ends("close", producer.close()).await.unwrap();
        }
    });
}

/// A broker lost the producer's state in an unclean election, or by retention. The refused batch is not in its log.
#[test]
fn a_batch_refused_because_the_producer_is_unknown_is_written_in_the_next_epoch() {
    for code in [ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode::UNKNOWN_PRODUCER_ID] {
        run(async move {
            let broker = Broker::honest().await;
            let producer = producer(&broker);
            assert_eq!(deliver(&producer, "first").await.unwrap(), Some(0));
            broker.model.lock().refusals.entry(0).or_default().push_back(code);
            assert_eq!(deliver(&producer, "second").await.unwrap(), Some(1), "{code}");
            assert_eq!(deliver(&producer, "third").await.unwrap(), Some(2), "{code}");
            assert_eq!(broker.model.lock().writers, [(1000, 0), (1000, 1), (1000, 1)], "{code}");
        });
    }
}

/// In another epoch the broker could not recognize the batch as a duplicate.
#[test]
fn a_batch_of_unknown_outcome_fails_when_the_producer_is_unknown() {
    run(async {
        let broker = Broker::honest().await;
        let producer = producer(&broker);
        assert_eq!(deliver(&producer, "first").await.unwrap(), Some(0));
        first_answer(&broker, {
            let broker = broker.clone();
            move |_| {
                let code = ErrorCode::UNKNOWN_PRODUCER_ID;
                broker.model.lock().refusals.entry(0).or_default().push_back(code);
                Act::Cut(Vec::new())
            }
        });
        let error = deliver(&producer, "second").await.unwrap_err();
        assert!(error.may_have_been_written(), "{error}");
        assert_eq!(deliver(&producer, "third").await.unwrap(), Some(2));
        assert_eq!(values(&broker), ["first", "second", "third"]);
    });
}

/// Brokers refuse an epoch below the last one of an id: a partition that has exhausted them needs another id.
#[test]
fn records_continue_under_a_new_producer_id_after_the_last_epoch() {
    run(async {
        let broker = Broker::start(|call, frame| match (call.api, call.nth) {
            (ApiKey::INIT_PRODUCER_ID, 0) => Act::Send(producer_id(call, 7, i16::MAX)),
            (ApiKey::INIT_PRODUCER_ID, 1) => Act::Cut(frame[..9].to_vec()),
            (ApiKey::INIT_PRODUCER_ID, _) => Act::Send(producer_id(call, 8, 0)),
            (ApiKey::PRODUCE, 0) => {
                let mut answer = produce_of(call, &frame);
                answer.topics[0].partitions[0].error = ErrorCode::INVALID_RECORD;
                Act::Send(produce(call, &answer))
            }
            _ => Act::Send(frame),
        })
        .await;
        let producer = producer(&broker);
        deliver(&producer, "refused").await.unwrap_err();
        for value in ["a", "b", "c"] {
            deliver(&producer, value).await.unwrap();
        }
        let writers = broker.model.lock().writers.clone();
        assert_eq!(writers, [(7, i16::MAX), (8, 0), (8, 0), (8, 0)]);
        assert_eq!(
            broker.calls(ApiKey::INIT_PRODUCER_ID),
            3,
            "asked once, but for the connection that was lost"
        );
        ends("close", producer.close()).await.unwrap();
    });
}

/// A leader may learn of its election late. With constant waits it receives each batch every 20 ms.
#[test]
fn leader_that_keeps_refusing_a_batch_is_asked_less_and_less_often() {
    run(async {
        let broker = Broker::honest().await;
        let refusals = vec![ErrorCode::NOT_LEADER_OR_FOLLOWER; 1000].into();
        broker.model.lock().refusals.insert(0, refusals);
        let config = producer_config(&broker.address.to_string())
            .retry_backoff(Duration::from_millis(20), Duration::from_secs(1));
        let producer = Producer::with_env(config, &broker.env()).unwrap();
        check_error(&deliver(&producer, "x").await.unwrap_err());
        // Waits of 20, 40, 80, ... ms, give or take 20%, reach 1.5 s after 8 attempts at most; constant ones take 60.
        let attempts = broker.calls(ApiKey::PRODUCE);
        assert!((4..=9).contains(&attempts), "{attempts} attempts in 1.5 s");
        ends("close", producer.close()).await.unwrap();
    });
}

/// A leader that accepts connections and never responds delays records up to `delivery.timeout.ms`, however long a
/// connection may take to set up.
#[test]
fn unresponsive_leader_delays_records_up_to_the_delivery_timeout() {
    run(async {
        let broker = Broker::honest().await;
        let mute = Broker::start(|_, _| Act::Mute).await;
        let mut picture = broker.picture();
        let mut second = picture.brokers[0].clone();
        (second.node_id, second.port) = (2, mute.address.port().into());
        picture.brokers.push(second);
        picture.topics[0].partitions[0].leader_id = 2;
        broker.script(move |call, frame| match call.api {
            ApiKey::METADATA => Act::Send(crate::broker::metadata(call, &picture)),
            _ => Act::Send(frame),
        });
        let net = crate::broker::OnlyTo(vec![broker.address, mute.address]);
        let env = curtail::Env { net: std::sync::Arc::new(net), ..broker.env() };
        let config =
            producer_config(&broker.address.to_string()).connection_setup_timeout(2 * CALL);
        let producer = Producer::with_env(config, &env).unwrap();
        let error = deliver(&producer, "x").await.unwrap_err();
        check_error(&error);
        assert!(
            matches!(&error, Error::NotAcknowledged { may_have_been_written: false, .. }),
            "{error}"
        );
    });
}

/// A broker that closes connections after the handshake causes a backoff before each reconnection.
#[test]
fn leader_that_closes_connections_causes_a_backoff() {
    run(async {
        let broker = Broker::start(|call, frame| match call.api {
            ApiKey::PRODUCE => Act::Cut(Vec::new()),
            ApiKey::API_VERSIONS => Act::Send(frame),
            _ => Act::Send(frame),
        })
        .await;
        let leader = Broker::start(|_, frame| Act::Cut(frame)).await;
        let mut picture = broker.picture();
        let mut second = picture.brokers[0].clone();
        (second.node_id, second.port) = (2, leader.address.port().into());
        picture.brokers.push(second);
        picture.topics[0].partitions[0].leader_id = 2;
        broker.script(move |call, frame| match call.api {
            ApiKey::METADATA => Act::Send(crate::broker::metadata(call, &picture)),
            _ => Act::Send(frame),
        });
        let net = crate::broker::OnlyTo(vec![broker.address, leader.address]);
        let env = curtail::Env { net: std::sync::Arc::new(net), ..broker.env() };
        let config = producer_config(&broker.address.to_string());
        let producer = Producer::with_env(config, &env).unwrap();
        check_error(&deliver(&producer, "x").await.unwrap_err());
        // 1.5 s with a backoff of up to 50 ms, half of it random: about 60 connections, not thousands.
        let connections = leader.model.lock().connections;
        assert!(connections < 200, "{connections} connections to {TOPIC}'s leader");
    });
}
