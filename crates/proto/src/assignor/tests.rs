//! Tables with the outcomes of the Java client's tests, and properties that every outcome must have.

use proptest::prelude::*;

use super::*;

mod racks;

/// Topics with their partitions.
type Counts<'a> = &'a [(&'a str, i32)];

fn topics(counts: Counts<'_>) -> Topics {
    counts.iter().map(|(topic, count)| ((*topic).into(), (*count).into())).collect()
}

fn member(id: &str, wanted: &[&str]) -> Member {
    let topics = wanted.iter().map(|topic| (*topic).into()).collect();
    let subscription = Subscription { topics, ..Subscription::default() };
    Member { id: id.into(), instance: None, subscription }
}

fn fixed(instance: &str, id: &str, wanted: &[&str]) -> Member {
    Member { instance: Some(instance.into()), ..member(id, wanted) }
}

/// A member that had partitions, with a claim in every form that members use.
fn holding(member: &Member, partitions: &[Key], generation: i32) -> Member {
    let mut holding = member.clone();
    let data = StickyData { partitions: by_topic(partitions), generation: Some(generation) };
    holding.subscription.owned = by_topic(partitions);
    holding.subscription.generation = generation;
    holding.subscription.user_data = Some(data.encode());
    holding
}

fn keys(partitions: &[&str]) -> Vec<Key> {
    let key = |text: &&str| {
        let (topic, index) = text.split_once('-').expect("topic-index");
        (topic.into(), index.parse().expect("an index"))
    };
    partitions.iter().map(key).collect()
}

/// `a: t-0 t-1; b: t-2`, with the partitions in order.
fn shown(assignments: &Assignments) -> String {
    let one = |(id, keys): (&Arc<str>, &Vec<Key>)| {
        let mut keys = keys.clone();
        keys.sort();
        let keys: Vec<String> =
            keys.iter().map(|(topic, index)| format!("{topic}-{index}")).collect();
        format!("{id}: {}", keys.join(" "))
    };
    assignments.iter().map(one).collect::<Vec<_>>().join("; ")
}

#[test]
fn range_assigns_adjacent_partitions_topic_by_topic() {
    let cases: [(Counts<'_>, Vec<Member>, &str); 7] = [
        (&[], vec![member("a", &["t"])], "a: "),
        (&[("t", 3)], vec![member("a", &["t"])], "a: t-0 t-1 t-2"),
        (&[("t", 1)], vec![member("b", &["t"]), member("a", &["t"])], "a: t-0; b: "),
        (&[("t", 3)], vec![member("a", &["t"]), member("b", &["t"])], "a: t-0 t-1; b: t-2"),
        (
            &[("t", 3), ("u", 3)],
            vec![member("a", &["t", "u"]), member("b", &["u", "t"])],
            "a: t-0 t-1 u-0 u-1; b: t-2 u-2",
        ),
        (
            &[("t", 3), ("u", 2)],
            vec![member("a", &["t"]), member("b", &["t", "u"]), member("c", &["t"])],
            "a: t-0; b: t-1 u-0 u-1; c: t-2",
        ),
        // Static members come first, in the order of their instances, for any member ids.
        (
            &[("t", 4)],
            vec![member("a", &["t"]), fixed("i2", "b", &["t"]), fixed("i1", "c", &["t"])],
            "a: t-3; b: t-2; c: t-0 t-1",
        ),
    ];
    for (counts, members, expected) in cases {
        let assigned = Assignor::Range.assign(&topics(counts), &members);
        assert_eq!(shown(&assigned), expected, "{counts:?}");
    }
}

#[test]
fn round_robin_assigns_partitions_in_turn() {
    let cases: [(Counts<'_>, Vec<Member>, &str); 5] = [
        (&[], vec![member("a", &["t"])], "a: "),
        (&[("t", 2), ("u", 2)], vec![member("a", &["t"])], "a: t-0 t-1"),
        (
            &[("t", 3), ("u", 3)],
            vec![member("a", &["t", "u"]), member("b", &["t", "u"])],
            "a: t-0 t-2 u-1; b: t-1 u-0 u-2",
        ),
        (
            &[("t", 3), ("u", 2)],
            vec![member("a", &["t"]), member("b", &["t", "u"]), member("c", &["t"])],
            "a: t-0; b: t-1 u-0 u-1; c: t-2",
        ),
        (
            &[("t", 3)],
            vec![member("a", &["t"]), fixed("i2", "b", &["t"]), fixed("i1", "c", &["t"])],
            "a: t-2; b: t-1; c: t-0",
        ),
    ];
    for (counts, members, expected) in cases {
        let assigned = Assignor::RoundRobin.assign(&topics(counts), &members);
        assert_eq!(shown(&assigned), expected, "{counts:?}");
    }
}

type Held<'a> = (&'a str, &'a [&'a str], &'a [&'a str], i32);

#[test]
fn sticky_keeps_as_many_partitions_as_possible() {
    let t: &[&str] = &["t"];
    // Members: id, subscription, held partitions, their generation (-1 for none).
    let cases: [(Counts<'_>, &[Held<'_>], &str); 12] = [
        (&[], &[("a", t, &[], -1)], "a: "),
        (&[("t", 3)], &[("a", t, &[], -1), ("b", t, &[], -1)], "a: t-0 t-2; b: t-1"),
        // A second member takes from the first.
        (
            &[("t", 3)],
            &[("a", t, &["t-0", "t-1", "t-2"], 1), ("b", t, &[], -1)],
            "a: t-0 t-1; b: t-2",
        ),
        // It gets all when the first member is gone.
        (&[("t", 3)], &[("b", t, &["t-2"], 1)], "b: t-0 t-1 t-2"),
        // Partitions of topics that were deleted, or that the member has unsubscribed from, are revoked.
        (
            &[("u", 2)],
            &[("a", &["t", "u"], &["t-0", "u-0"], 1), ("b", &["t", "u"], &["t-1"], 1)],
            "a: u-0; b: u-1",
        ),
        (&[("t", 1), ("u", 1)], &[("a", &["u"], &["t-0"], 1), ("b", t, &[], -1)], "a: u-0; b: t-0"),
        // Two claims of one generation do not count; of two generations the newer one does.
        (
            &[("t", 2)],
            &[("a", t, &["t-0", "t-1"], 1), ("b", t, &["t-0", "t-1"], 1)],
            "a: t-0; b: t-1",
        ),
        (
            &[("t", 2)],
            &[("a", t, &["t-0", "t-1"], 1), ("b", t, &["t-0", "t-1"], 2)],
            "a: t-1; b: t-0",
        ),
        (&[("t", 2)], &[("a", t, &["t-0"], -1), ("b", t, &["t-0"], 2)], "a: t-1; b: t-0"),
        // Different subscriptions.
        (
            &[("t", 3), ("u", 2)],
            &[("a", t, &[], -1), ("b", &["t", "u"], &[], -1), ("c", t, &[], -1)],
            "a: t-0 t-2; b: u-0 u-1; c: t-1",
        ),
        (
            &[("t1", 2), ("t2", 1), ("t3", 2), ("t4", 1), ("t5", 2)],
            &[
                ("a", &["t1", "t2", "t3", "t4", "t5"], &[], -1),
                ("b", &["t1", "t3", "t5"], &[], -1),
                ("c", &["t1", "t3", "t5"], &[], -1),
                ("d", &["t1", "t2", "t3", "t4", "t5"], &[], -1),
            ],
            "a: t2-0 t3-0; b: t1-0 t3-1; c: t1-1 t5-0; d: t4-0 t5-1",
        ),
        // A newer claim has too many: a partition returns to its previous owner, though another member has fewer.
        (
            &[("t", 5), ("u", 1)],
            &[
                ("a", t, &["t-0", "t-1", "t-2", "t-3", "t-4"], 2),
                ("b", &["t", "u"], &["t-0", "u-0"], 1),
                ("c", t, &[], -1),
            ],
            "a: t-3 t-4; b: t-0 u-0; c: t-1 t-2",
        ),
    ];
    for (counts, held, expected) in cases {
        let members: Vec<Member> = held
            .iter()
            .map(|(id, wanted, had, generation)| match generation {
                -1 if had.is_empty() => member(id, wanted),
                _ => holding(&member(id, wanted), &keys(had), *generation),
            })
            .collect();
        let assigned = Assignor::Sticky.assign(&topics(counts), &members);
        assert_eq!(shown(&assigned), expected, "{counts:?} {held:?}");
    }
}

#[test]
fn cooperative_sticky_hands_over_in_two_rebalances() {
    let topics = topics(&[("t", 3)]);
    let (a, b) = (member("a", &["t"]), member("b", &["t"]));
    let all = keys(&["t-0", "t-1", "t-2"]);
    let first = Assignor::CooperativeSticky.assign(&topics, &[holding(&a, &all, 1), b.clone()]);
    assert_eq!(shown(&first), "a: t-0 t-1; b: ");
    let kept = holding(&a, &first[&a.id], 2);
    let second = Assignor::CooperativeSticky.assign(&topics, &[kept, holding(&b, &[], 2)]);
    assert_eq!(shown(&second), "a: t-0 t-1; b: t-2");
}

#[test]
fn a_partition_that_two_members_claim_is_assigned_to_neither() {
    let topics = topics(&[("t", 2)]);
    let (a, b) = (member("a", &["t"]), member("b", &["t"]));
    let claims = |a_in, b_in| {
        [holding(&a, &keys(&["t-0"]), a_in), holding(&b, &keys(&["t-0", "t-1"]), b_in)]
    };
    let assign = |members: &[Member]| shown(&Assignor::CooperativeSticky.assign(&topics, members));
    assert_eq!(assign(&claims(4, 4)), "a: ; b: t-1");
    assert_eq!(assign(&claims(5, 4)), "a: t-0; b: t-1");
    // Members of Kafka 2.4 to 3.1 report the generation in their user data.
    let old = claims(5, 4).map(|mut member| {
        let generation = std::mem::replace(&mut member.subscription.generation, -1);
        member.subscription.user_data = Some(consumer_protocol::encode_generation(generation));
        member
    });
    assert_eq!(assign(&old), "a: t-0; b: t-1");
}

#[test]
fn the_group_is_cooperative_if_every_assignor_is() {
    use Assignor::{CooperativeSticky, Range, Sticky};
    assert_eq!(Assignor::rebalance(&[CooperativeSticky]), Rebalance::Cooperative);
    // Kafka's default, which allows a rolling change from one to the other.
    assert_eq!(Assignor::rebalance(&[Range, CooperativeSticky]), Rebalance::Eager);
    assert_eq!(Assignor::rebalance(&[Sticky]), Rebalance::Eager);
    for assignor in Assignor::ALL {
        assert_eq!(Assignor::of_name(assignor.name()), Some(assignor));
    }
    assert_eq!(Assignor::of_name("uniform"), None);
}

#[test]
fn user_data_has_the_last_assignment() {
    let had = by_topic(&keys(&["t-1", "t-0"]));
    let data = Assignor::Sticky.user_data(Some((&had, 3))).expect("sticky has some");
    let expected = StickyData { partitions: vec![("t".into(), vec![0, 1])], generation: Some(3) };
    assert_eq!(StickyData::decode(&data), Ok(expected));
    assert_eq!(Assignor::Sticky.user_data(None), None);
    assert_eq!(Assignor::Range.user_data(Some((&had, 3))), None);
    let generation = |last| Assignor::CooperativeSticky.user_data(last);
    assert_eq!(generation(Some((&had, 3))).as_deref(), Some(&[0, 0, 0, 3][..]));
    assert_eq!(generation(None).as_deref(), Some(&[255, 255, 255, 255][..]));
}

/// Up to seven members, each with a subscription to some of five topics.
fn groups() -> impl Strategy<Value = (Topics, Vec<Member>)> {
    let counts = proptest::collection::vec(0..7i32, 1..6);
    counts.prop_flat_map(|counts| {
        let names: Vec<Arc<str>> = (0..counts.len()).map(|n| format!("t{n}").into()).collect();
        let topics: Topics =
            names.iter().cloned().zip(counts.into_iter().map(Layout::from)).collect();
        let wish = proptest::sample::subsequence(names.clone(), 0..=names.len());
        let same = proptest::collection::vec(Just(names.clone()), 1..8);
        let different = proptest::collection::vec(wish, 1..8);
        let members = prop_oneof![same, different].prop_map(|wishes| {
            let members = wishes.into_iter().enumerate().map(|(n, topics)| {
                let subscription = Subscription { topics, ..Subscription::default() };
                Member { id: format!("m{n}").into(), instance: None, subscription }
            });
            members.collect()
        });
        (Just(topics), members)
    })
}

/// Every partition that a member subscribes to is assigned to one member, which subscribes to it.
fn check_complete(topics: &Topics, members: &[Member], assignments: &Assignments) {
    assert_eq!(assignments.len(), members.len());
    let mut given = BTreeSet::new();
    for member in members {
        for key in &assignments[&member.id] {
            assert!(wants(member, &key.0), "{} does not want {key:?}", member.id);
            assert!(given.insert(key.clone()), "{key:?} is given twice");
        }
    }
    let wanted = wanted_topics(members);
    let expected: BTreeSet<Key> = topics
        .iter()
        .filter(|(topic, _)| wanted.contains(*topic))
        .flat_map(|(topic, layout)| (0..layout.count).map(|index| (topic.clone(), index)))
        .collect();
    assert_eq!(given, expected);
}

/// No partition could move to a member with two fewer.
fn check_balanced(members: &[Member], assignments: &Assignments) {
    for (owner, keys) in assignments {
        for key in keys {
            for other in members.iter().filter(|other| wants(other, &key.0)) {
                let less = assignments[&other.id].len();
                assert!(
                    less + 1 >= keys.len(),
                    "{key:?} of {owner} to {}: {assignments:?}",
                    other.id
                );
            }
        }
    }
}

fn after(members: &[Member], assignments: &Assignments, generation: i32) -> Vec<Member> {
    let holding = |m: &Member| holding(m, &assignments[&m.id], generation);
    members.iter().map(holding).collect()
}

proptest! {
    #[test]
    fn every_partition_is_assigned_once((topics, members) in groups()) {
        for assignor in Assignor::ALL {
            check_complete(&topics, &members, &assignor.assign(&topics, &members));
        }
    }

    #[test]
    fn sticky_is_balanced_and_stays((topics, members) in groups(), more in 0..7i32) {
        let first = Assignor::Sticky.assign(&topics, &members);
        check_balanced(&members, &first);
        let again = after(&members, &first, 1);
        for assignor in [Assignor::Sticky, Assignor::CooperativeSticky] {
            prop_assert_eq!(shown(&assignor.assign(&topics, &again)), shown(&first));
        }
        // With equal subscriptions, new partitions take none from any member.
        let mut topics = topics;
        if let Some(mut first) = topics.first_entry() {
            first.get_mut().count += more;
        }
        let grown = Assignor::Sticky.assign(&topics, &again);
        check_complete(&topics, &again, &grown);
        check_balanced(&again, &grown);
    }

    #[test]
    fn a_member_that_joins_or_leaves_moves_as_few_partitions_as_possible((topics, mut members) in groups()) {
        let first = Assignor::Sticky.assign(&topics, &members);
        let same = members.iter().all(|m| m.subscription.topics == members[0].subscription.topics);
        let left = after(&members[1..], &first, 1);
        let second = Assignor::Sticky.assign(&topics, &left);
        check_complete(&topics, &left, &second);
        check_balanced(&left, &second);
        for member in &left {
            if same {
                let lost = first[&member.id].iter().find(|key| !second[&member.id].contains(key));
                prop_assert_eq!(lost, None, "{} lost it for nothing", &member.id);
            }
        }
        let mut joined = after(&members, &first, 1);
        let newcomer = Member { id: "new".into(), ..members.remove(0) };
        joined.push(newcomer);
        let third = Assignor::Sticky.assign(&topics, &joined);
        check_complete(&topics, &joined, &third);
        check_balanced(&joined, &third);
        if same {
            for (id, keys) in third.iter().filter(|(id, _)| &***id != "new") {
                let gained = keys.iter().find(|key| !first[id].contains(key));
                prop_assert_eq!(gained, None, "{} gained it for nothing", id);
            }
        }
    }

    #[test]
    fn no_partition_has_two_owners_while_it_moves((topics, members) in groups(), leaving in 0..3usize) {
        let first = Assignor::Sticky.assign(&topics, &members);
        let mut group = after(&members[leaving.min(members.len() - 1)..], &first, 1);
        group.push(Member { id: "new".into(), ..members[0].clone() });
        let moving = Assignor::CooperativeSticky.assign(&topics, &group);
        for member in &group {
            for key in &moving[&member.id] {
                let others = group.iter().filter(|other| other.id != member.id);
                let mut held = others.flat_map(|other| flat(&other.subscription.owned));
                prop_assert!(held.all(|other| other != *key), "{key:?} is read by another");
            }
        }
        // Members that lost partitions join again, and every partition is assigned.
        let group = after(&group, &moving, 2);
        let settled = Assignor::CooperativeSticky.assign(&topics, &group);
        check_complete(&topics, &group, &settled);
        check_balanced(&group, &settled);
    }
}
