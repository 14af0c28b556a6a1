//! Comparison with the generated codec of the same messages, and bytes as other clients write them.

use kafka_protocol::messages::{
    ConsumerProtocolAssignment, ConsumerProtocolSubscription, consumer_protocol_assignment,
    consumer_protocol_subscription,
};
use proptest::prelude::*;

use super::*;
use crate::cold;

fn partitions_of(topics: &[(&str, &[i32])]) -> Partitions {
    topics.iter().map(|(topic, indexes)| ((*topic).into(), indexes.to_vec())).collect()
}

fn subscription() -> Subscription {
    Subscription {
        topics: vec!["a".into(), "b".into()],
        user_data: Some(Bytes::from_static(b"xyz")),
        owned: partitions_of(&[("a", &[0, 2]), ("b", &[1])]),
        generation: 7,
        rack: Some("r1".into()),
    }
}

/// The same subscription as a message of the generated codec.
fn generated(subscription: &Subscription, version: i16) -> ConsumerProtocolSubscription {
    let text = |text: &str| cold::StrBytes::from_string(text.to_owned());
    let mut wanted = ConsumerProtocolSubscription::default()
        .with_topics(subscription.topics.iter().map(|topic| text(topic)).collect())
        .with_user_data(subscription.user_data.clone());
    if version >= 1 {
        let owned = subscription.owned.iter().map(|(topic, indexes)| {
            consumer_protocol_subscription::TopicPartition::default()
                .with_topic(text(topic).into())
                .with_partitions(indexes.clone())
        });
        wanted = wanted.with_owned_partitions(owned.collect());
    }
    if version >= 2 {
        wanted = wanted.with_generation_id(subscription.generation);
    }
    if version >= 3 {
        wanted = wanted.with_rack_id(subscription.rack.as_deref().map(text));
    }
    wanted
}

#[test]
fn subscriptions_are_those_of_the_generated_codec() {
    for version in 0..=VERSION {
        let ours = subscription().encode(version);
        assert_eq!(ours[..2], version.to_be_bytes());
        let theirs = cold::encode(version, &generated(&subscription(), version)).expect("encodes");
        assert_eq!(ours[2..], theirs[..], "version {version}");
        let read = Subscription::decode(&ours).expect("well formed");
        let expected = Subscription {
            owned: if version >= 1 { subscription().owned } else { Vec::new() },
            generation: if version >= 2 { 7 } else { -1 },
            rack: if version >= 3 { subscription().rack } else { None },
            ..subscription()
        };
        assert_eq!(read, expected, "version {version}");
    }
}

#[test]
fn assignments_are_those_of_the_generated_codec() {
    let ours = Assignment { partitions: partitions_of(&[("a", &[3, 1])]), user_data: None };
    let part = consumer_protocol_assignment::TopicPartition::default()
        .with_topic(cold::StrBytes::from_static_str("a").into())
        .with_partitions(vec![3, 1]);
    let theirs = ConsumerProtocolAssignment::default().with_assigned_partitions(vec![part]);
    for version in 0..=VERSION {
        let bytes = ours.encode(version);
        assert_eq!(bytes[2..], cold::encode(version, &theirs).expect("encodes")[..]);
        assert_eq!(Assignment::decode(&bytes), Ok(ours.clone()));
    }
    assert_eq!(Assignment::decode(&Bytes::new()), Ok(Assignment::default()));
}

#[test]
fn fields_of_later_versions_are_ignored() {
    let mut bytes = subscription().encode(3).to_vec();
    bytes[1] = 9;
    bytes.extend(b"something new");
    assert_eq!(Subscription::decode(&bytes.into()), Ok(subscription()));
    let mut negative = subscription().encode(3).to_vec();
    negative[..2].copy_from_slice(&(-1i16).to_be_bytes());
    assert!(Subscription::decode(&negative.into()).is_err());
}

/// `previous_assignment` as an array of topic and partitions, then `generation`, all in fixed width.
#[test]
fn sticky_user_data_has_the_form_of_the_java_client() {
    let data = StickyData { partitions: partitions_of(&[("t", &[1])]), generation: Some(5) };
    let bytes = [0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 5];
    assert_eq!(data.encode()[..], bytes);
    assert_eq!(StickyData::decode(&data.encode()), Ok(data.clone()));
    let old = StickyData { generation: None, ..data };
    assert_eq!(old.encode()[..], bytes[..15]);
    assert_eq!(StickyData::decode(&old.encode()), Ok(old));
    assert_eq!(encode_generation(5)[..], [0, 0, 0, 5]);
    assert_eq!(decode_generation(&encode_generation(5)), Some(5));
    assert_eq!(decode_generation(&Bytes::from_static(&[0])), None);
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        let bytes = Bytes::from(bytes);
        let _ = (Subscription::decode(&bytes), Assignment::decode(&bytes), StickyData::decode(&bytes));
    }
}
