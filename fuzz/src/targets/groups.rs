//! Messages between the members of a group, and the assignors that a leader runs on them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use curtail_proto::assignor::{Assignor, Key, Member, Topics};
use curtail_wire::consumer_protocol::{Assignment, StickyData, Subscription, decode_generation};

use crate::{Input, Target, memory};

pub(super) const TARGET: Target = Target { name: "groups", run, seeds, cases: 8_000 };

fn run(input: &[u8]) {
    let mut input = Input::new(input);
    if input.flag() {
        decode(input.rest());
    } else {
        assign(&mut input);
    }
}

fn decode(bytes: &[u8]) {
    let bytes = Bytes::copy_from_slice(bytes);
    // An array's elements may take 40 times their bytes; space for 1,024 of them is reserved ahead.
    let cap = memory::SLACK + 64 * bytes.len();
    memory::within("consumer protocol", cap, || {
        if let Ok(read) = Subscription::decode(&bytes) {
            assert_eq!(Subscription::decode(&read.encode(3)), Ok(read));
        }
        if let Ok(read) = Assignment::decode(&bytes) {
            assert_eq!(Assignment::decode(&read.encode(3)), Ok(read));
        }
        if let Ok(read) = StickyData::decode(&bytes) {
            assert_eq!(StickyData::decode(&read.encode()), Ok(read));
        }
        let _ = decode_generation(&bytes);
    });
}

/// Assigns to members with arbitrary claims, in two rounds: every partition has exactly one reader subscribed to it.
fn assign(input: &mut Input<'_>) {
    let assignor = *input.pick(&Assignor::ALL);
    let topics: Topics =
        (0..1 + input.below(4)).map(|t| (name(t), (input.below(9) as i32).into())).collect();
    let members: Vec<Member> = (0..1 + input.below(6)).map(|who| member(who, input)).collect();
    let first = assignor.assign(&topics, &members);
    check(assignor, &topics, &members, &first);
    // The members claim their assignments, as they would in the next generation.
    let members: Vec<Member> = members
        .into_iter()
        .map(|mut member| {
            let owned = curtail_proto::assignor::by_topic(&first[&member.id]);
            member.subscription.user_data = assignor.user_data(Some((&owned, 5)));
            member.subscription.generation = 5;
            member.subscription.owned = owned;
            member
        })
        .collect();
    let second = assignor.assign(&topics, &members);
    check(assignor, &topics, &members, &second);
    let is_sticky = matches!(assignor, Assignor::Sticky);
    assert!(!is_sticky || sorted(first) == sorted(second), "something moves when nothing changed");
}

fn sorted(mut assignments: BTreeMap<Arc<str>, Vec<Key>>) -> BTreeMap<Arc<str>, Vec<Key>> {
    assignments.values_mut().for_each(|keys| keys.sort());
    assignments
}

fn check(
    assignor: Assignor,
    topics: &Topics,
    members: &[Member],
    assignments: &BTreeMap<Arc<str>, Vec<Key>>,
) {
    let ids: BTreeSet<&Arc<str>> = members.iter().map(|member| &member.id).collect();
    assert_eq!(assignments.keys().collect::<BTreeSet<_>>(), ids, "an entry for each member");
    let mut given: BTreeSet<&Key> = BTreeSet::new();
    for member in members {
        for key in &assignments[&member.id] {
            assert!(given.insert(key), "{key:?} has two readers");
            assert!(member.subscription.topics.contains(&key.0), "{key:?} is not wanted");
            let count = topics.get(&key.0).map_or(0, |topic| topic.count);
            assert!((0..count).contains(&key.1), "{key:?} does not exist");
        }
    }
    // In the cooperative protocol, a partition that moves is withheld until its owner has revoked it.
    if assignor == Assignor::CooperativeSticky {
        return;
    }
    let wanted = members.iter().flat_map(|member| &member.subscription.topics);
    let wanted: BTreeSet<&Arc<str>> = wanted.collect();
    let wanted = wanted.into_iter().map(|topic| topics.get(topic).map_or(0, |topic| topic.count));
    assert_eq!(given.len() as i32, wanted.sum::<i32>(), "{assignor:?}: a partition has no reader");
}

fn name(topic: usize) -> Arc<str> {
    format!("t{topic}").into()
}

fn member(who: usize, input: &mut Input<'_>) -> Member {
    let keys = |input: &mut Input<'_>| {
        let count = input.below(4);
        let topic = |input: &mut Input<'_>| {
            let indexes = (0..input.below(6)).map(|_| input.number_i32()).collect();
            (name(input.below(5)), indexes)
        };
        (0..count).map(|_| topic(input)).collect()
    };
    let topics = (0..input.below(4)).map(|_| name(input.below(5))).collect();
    let user_data = match input.below(3) {
        0 => None,
        1 => Some(Bytes::copy_from_slice(input.section())),
        _ => {
            let generation = input.flag().then(|| input.number_i32());
            Some(StickyData { partitions: keys(input), generation }.encode())
        }
    };
    let owned = keys(input);
    let generation = input.number_i32();
    let subscription = Subscription { topics, user_data, owned, generation, rack: None };
    let instance = input.flag().then(|| format!("i{}", input.below(3)).into());
    Member { id: format!("m{who}").into(), instance, subscription }
}

fn seeds() -> Vec<Vec<u8>> {
    let subscription = Subscription {
        topics: vec![name(0), name(1)],
        user_data: Some(Bytes::from_static(b"\0\0\0\x05")),
        owned: vec![(name(0), vec![0, 1, 2])],
        generation: 5,
        rack: Some("r".into()),
    };
    let assignment = Assignment { partitions: vec![(name(0), vec![0, 1])], user_data: None };
    let sticky = StickyData { partitions: vec![(name(1), vec![3])], generation: Some(4) };
    let mut seeds: Vec<Vec<u8>> =
        [subscription.encode(3), subscription.encode(0), assignment.encode(1), sticky.encode()]
            .map(|bytes| [&[1], &bytes[..]].concat())
            .into();
    for assignor in 0..4 {
        let member = [2, 0, 1, 2, 1, 1, 7, 1, 2, 0, 1, 0, 1, 1, 2, 0, 1, 5, 0];
        seeds.push([&[0, assignor, 1, 5, 3, 2][..], &member, &member, &member].concat());
    }
    seeds
}
