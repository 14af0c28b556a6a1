//! Features of the consumer protocol only (KIP-848).

use super::*;

pub(super) async fn a_pattern_of_the_brokers_finds_topics(backend: &Bench<'_>, name: &str) {
    let topic = |suffix: &str| format!("{name}-{suffix}");
    backend.create_topic(&topic("a"), 1, 1).await;
    backend.create_topic(&format!("not-{name}"), 1, 1).await;
    produce(&common::producer(backend, &[]), &topic("a"), 1, 0..3).await;
    let mut consumer = Consumer::new(config(backend, name, &[])).unwrap();
    assert!(matches!(consumer.subscribe_pattern(""), Err(Error::IllegalState(_))));
    consumer.subscribe_pattern(&format!("{name}-(a|b)")).unwrap();
    let read = poll_until(&mut [&mut consumer], |_, records| records.len() == 3).await;
    assert_eq!(read[0].topic(), topic("a"));
    assert_eq!(consumer.assignment(), [at(&topic("a"), 0)].into());
    assert!(consumer.subscription().is_empty(), "the brokers know which topics they are");
    backend.create_topic(&topic("b"), 2, 1).await;
    settle(&mut [&mut consumer], &[3]).await;
    // By name again, then a second member with a pattern.
    consumer.subscribe([topic("b")]).unwrap();
    settle(&mut [&mut consumer], &[2]).await;
    let mut other = Consumer::new(config(backend, name, &[])).unwrap();
    other.subscribe_pattern(&format!("{name}-.*")).unwrap();
    poll_until(&mut [&mut consumer, &mut other], |consumers, _| {
        let [one, other] = [&consumers[0], &consumers[1]].map(|consumer| consumer.assignment());
        one.len() + other.len() == 3 && !other.is_empty() && one.is_disjoint(&other)
    })
    .await;
    other.close().await;
    consumer.close().await;
}

pub(super) async fn a_second_static_member_is_refused(backend: &Bench<'_>, name: &str) {
    backend.create_topic(name, 2, 1).await;
    let properties = [("group.instance.id", "only")];
    let mut first = member(backend, name, &properties);
    settle(&mut [&mut first], &[2]).await;
    let notes = Notes::of(&mut first);
    let mut second = member(backend, name, &properties);
    for _ in 0..2 {
        let refused = tokio::time::timeout(LIMIT, second.poll(LIMIT)).await.unwrap().unwrap_err();
        let expected = ErrorCode::UNRELEASED_INSTANCE_ID;
        assert!(matches!(refused, Error::Broker { code, .. } if code == expected), "{refused}");
        assert!(refused.to_string().contains("group.instance.id=only"), "{refused}");
    }
    assert_eq!((first.assignment().len(), notes.take()), (2, vec![]));
    // A closed static member releases its instance id, so the second member can join with it.
    first.close().await;
    second.subscribe([name]).unwrap();
    settle(&mut [&mut second], &[2]).await;
    second.close().await;
}

pub(super) async fn coordinator_refusal_names_the_setting(backend: &Bench<'_>, name: &str) {
    backend.create_topic(name, 1, 1).await;
    let mut wrong = member(backend, name, &[("group.remote.assignor", "nobody-has-this")]);
    let refused = tokio::time::timeout(LIMIT, wrong.poll(LIMIT)).await.unwrap().unwrap_err();
    assert!(
        matches!(refused, Error::Broker { code: ErrorCode::UNSUPPORTED_ASSIGNOR, .. }),
        "{refused}"
    );
    assert!(refused.to_string().contains("group.remote.assignor"), "{refused}");
    wrong.close().await;
    let mut consumer = Consumer::new(config(backend, name, &[])).unwrap();
    consumer.subscribe_pattern("(").unwrap();
    let refused = tokio::time::timeout(LIMIT, consumer.poll(LIMIT)).await.unwrap().unwrap_err();
    assert!(
        matches!(refused, Error::Broker { code: ErrorCode::INVALID_REGULAR_EXPRESSION, .. }),
        "{refused}"
    );
    // Another subscription ends it.
    consumer.subscribe([name]).unwrap();
    settle(&mut [&mut consumer], &[1]).await;
    consumer.close().await;
}
