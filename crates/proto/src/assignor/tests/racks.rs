//! Assignments that match the racks of members and replicas (KIP-881). `suite/kafka/assignors` of the client compares
//! random groups with the Java client's assignors.

use super::*;

/// Topics with the racks of each partition, one letter each.
type Racked<'a> = &'a [(&'a str, &'a [&'a str])];

fn racked(topics: Racked<'_>) -> Topics {
    let rack = |letter: char| letter.to_string().into();
    let layout = |partitions: &[&str]| Layout {
        racks: partitions.iter().map(|racks| set(racks.chars().map(rack))).collect(),
        ..Layout::from(i32::try_from(partitions.len()).expect("few"))
    };
    topics.iter().map(|(topic, partitions)| ((*topic).into(), layout(partitions))).collect()
}

fn set(racks: impl IntoIterator<Item = Arc<str>>) -> RackSet {
    RackSet::new(racks.into_iter().collect())
}

fn located(id: &str, rack: &str, wanted: &[&str]) -> Member {
    let mut member = member(id, wanted);
    member.subscription.rack = Some(rack.into());
    member
}

fn without_racks(topics: &Topics) -> Topics {
    topics.iter().map(|(topic, layout)| (topic.clone(), layout.count.into())).collect()
}

#[test]
fn range_matches_racks_within_the_shares() {
    let t: &[&str] = &["t"];
    let both: &[&str] = &["t", "u"];
    let cases: [(Racked<'_>, Vec<Member>, &str); 8] = [
        // One replica each, in the other member's range.
        (
            &[("t", &["y", "y", "x", "x"])],
            vec![located("a", "x", t), located("b", "y", t)],
            "a: t-2 t-3; b: t-0 t-1",
        ),
        // The shares limit what a rack gets.
        (
            &[("t", &["x", "x", "x", "y"])],
            vec![located("a", "y", t), located("b", "x", t)],
            "a: t-2 t-3; b: t-0 t-1",
        ),
        // The remainder goes to whom it fits.
        (
            &[("t", &["y", "x", "y"])],
            vec![located("a", "x", t), located("b", "y", t)],
            "a: t-1; b: t-0 t-2",
        ),
        // Every partition is in the same racks, or in none of a member: as without racks.
        (
            &[("t", &["xy", "xy", "xy"])],
            vec![located("a", "y", t), located("b", "x", t)],
            "a: t-0 t-1; b: t-2",
        ),
        (
            &[("t", &["x", "y", "x"])],
            vec![located("a", "z", t), located("b", "z", t)],
            "a: t-0 t-1; b: t-2",
        ),
        // A member without a rack, or with an empty one, is at home everywhere.
        (&[("t", &["y", "x"])], vec![member("a", t), located("b", "x", t)], "a: t-0; b: t-1"),
        (&[("t", &["x", "y"])], vec![located("a", "", t), located("b", "x", t)], "a: t-0; b: t-1"),
        // Co-partitioned: the same partitions of both topics, though only one topic has racks to match.
        (
            &[("t", &["y", "x"]), ("u", &["xy", "xy"])],
            vec![located("a", "x", both), located("b", "y", both)],
            "a: t-1 u-1; b: t-0 u-0",
        ),
    ];
    for (topics, members, expected) in cases {
        let assigned = Assignor::Range.assign(&racked(topics), &members);
        assert_eq!(shown(&assigned), expected, "{topics:?}");
    }
}

#[test]
fn sticky_matches_racks_within_the_shares() {
    let t: &[&str] = &["t"];
    let both: &[&str] = &["t", "u"];
    let held = |member: Member, partitions: &[&str]| holding(&member, &keys(partitions), 1);
    let cases: [(Racked<'_>, Vec<Member>, &str); 6] = [
        (
            &[("t", &["x", "y", "y", "x"])],
            vec![located("a", "x", t), located("b", "y", t)],
            "a: t-0 t-3; b: t-1 t-2",
        ),
        // Partitions that few members can read in their rack come first.
        (
            &[("t", &["xy", "x"])],
            vec![located("a", "x", t), located("b", "y", t)],
            "a: t-1; b: t-0",
        ),
        // A member keeps what is in its rack. Balance comes before racks.
        (
            &[("t", &["x", "x", "y", "x"])],
            vec![held(located("a", "x", t), &["t-0", "t-2"]), held(located("b", "y", t), &["t-3"])],
            "a: t-0 t-1; b: t-2 t-3",
        ),
        // As without racks: all partitions are in the same ones.
        (
            &[("t", &["xy", "xy"])],
            vec![held(located("a", "x", t), &["t-1"]), held(located("b", "y", t), &["t-0"])],
            "a: t-1; b: t-0",
        ),
        // Different subscriptions.
        (
            &[("t", &["x", "y"]), ("u", &["x", "y"])],
            vec![located("a", "y", both), located("b", "x", both), located("c", "y", t)],
            "a: u-1; b: t-0 u-0; c: t-1",
        ),
        (
            &[("t", &["y", "y"]), ("u", &["x"])],
            vec![held(located("a", "x", t), &["t-0"]), located("b", "y", both)],
            "a: t-0; b: t-1 u-0",
        ),
    ];
    for (topics, members, expected) in cases {
        let assigned = Assignor::Sticky.assign(&racked(topics), &members);
        assert_eq!(shown(&assigned), expected, "{topics:?}");
    }
}

#[test]
fn round_robin_knows_no_racks() {
    let members = [located("a", "y", &["t"]), located("b", "x", &["t"])];
    let assigned = Assignor::RoundRobin.assign(&racked(&[("t", &["x", "y"])]), &members);
    assert_eq!(shown(&assigned), "a: t-0; b: t-1");
}

/// Groups as [`groups`], with racks of members and partitions.
fn racked_groups() -> impl Strategy<Value = (Topics, Vec<Member>)> {
    let rack = || proptest::sample::select(&["x", "y", "z"][..]).prop_map(Arc::<str>::from);
    let replicas = proptest::collection::btree_set(rack(), 0..3);
    let replicas = proptest::collection::vec(replicas, 36);
    let of_members = proptest::collection::vec(proptest::option::of(rack()), 7);
    (groups(), replicas, of_members).prop_map(|((mut topics, mut members), replicas, racks)| {
        let mut replicas = replicas.into_iter();
        for layout in topics.values_mut() {
            layout.racks = (0..layout.count).filter_map(|_| replicas.next().map(set)).collect();
        }
        for (member, rack) in members.iter_mut().zip(racks) {
            member.subscription.rack = rack;
        }
        (topics, members)
    })
}

fn sizes(assignments: &Assignments) -> Vec<usize> {
    let mut sizes: Vec<usize> = assignments.values().map(Vec::len).collect();
    sizes.sort_unstable();
    sizes
}

fn wants_the_same(members: &[Member]) -> bool {
    members.iter().all(|m| m.subscription.topics == members[0].subscription.topics)
}

proptest! {
    #[test]
    fn racks_cost_no_balance((topics, members) in racked_groups()) {
        for assignor in Assignor::ALL {
            let assigned = assignor.assign(&topics, &members);
            check_complete(&topics, &members, &assigned);
            if wants_the_same(&members) {
                let plain = assignor.assign(&without_racks(&topics), &members);
                let same = assignor != Assignor::Range;
                prop_assert!(!same || sizes(&assigned) == sizes(&plain), "{assigned:?}");
            }
        }
        check_balanced(&members, &Assignor::Sticky.assign(&topics, &members));
        // Range is balanced topic by topic.
        for (topic, layout) in &topics {
            let topics: Topics = [(topic.clone(), layout.clone())].into();
            let with = Assignor::Range.assign(&topics, &members);
            let plain = Assignor::Range.assign(&without_racks(&topics), &members);
            prop_assert_eq!(sizes(&with), sizes(&plain));
        }
    }

    #[test]
    fn members_without_racks_get_the_same_as_without_racks((topics, mut members) in racked_groups()) {
        members.iter_mut().for_each(|member| member.subscription.rack = None);
        for assignor in Assignor::ALL {
            let plain = assignor.assign(&without_racks(&topics), &members);
            prop_assert_eq!(shown(&assignor.assign(&topics, &members)), shown(&plain));
        }
    }

    /// A cooperative group rebalances until no partition moves.
    #[test]
    fn a_group_with_racks_comes_to_rest((topics, members) in racked_groups(), leaving in 0..3usize) {
        let first = Assignor::CooperativeSticky.assign(&without_racks(&topics), &members);
        let mut group = after(&members[leaving.min(members.len() - 1)..], &first, 1);
        group.push(Member { id: "new".into(), ..members[0].clone() });
        let mut before = String::new();
        let mut trace = Vec::new();
        for generation in 2..20 {
            let assigned = Assignor::CooperativeSticky.assign(&topics, &group);
            group = after(&group, &assigned, generation);
            if shown(&assigned) == before {
                check_complete(&topics, &group, &assigned);
                check_balanced(&group, &assigned);
                return Ok(());
            }
            before = shown(&assigned);
            trace.push(before.clone());
        }
        prop_assert!(false, "partitions still move:\n{}", trace.join("\n"));
    }
}
