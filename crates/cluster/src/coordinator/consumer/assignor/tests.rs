use proptest::prelude::*;

use super::*;

fn topic(number: u8) -> Uuid {
    Uuid([number; 16])
}

/// A member's id, its topics, and its partitions in the last target.
type Given<'a> = (&'a str, &'a [u8], &'a [(u8, &'a [i32])]);

/// Topics' sizes, members, and their assignments.
type Case<'a> = (&'a [i32], &'a [Given<'a>], &'a str);

fn spec_of(members: &[Given<'_>]) -> BTreeMap<String, MemberSpec> {
    let member = |(id, topics, target): &Given<'_>| {
        let target =
            target.iter().map(|(number, of)| (topic(*number), of.iter().copied().collect()));
        let spec = MemberSpec {
            instance_id: None,
            topics: topics.iter().map(|number| topic(*number)).collect(),
            target: target.collect(),
        };
        ((*id).to_owned(), spec)
    };
    members.iter().map(member).collect()
}

/// Returns the assignments for topics of these sizes, as in `a:0[0 1]1[2] b:`.
fn assigned(assignor: Assignor, sizes: &[i32], members: BTreeMap<String, MemberSpec>) -> String {
    let partitions = |id: &Uuid| sizes.get(usize::from(id.0[0])).copied().unwrap_or(0);
    let assigned = assignor.assign(&Spec { members, partitions: &partitions });
    let member = |(id, target): (&String, &Partitions)| {
        let of = |(topic, of): (&Uuid, &BTreeSet<i32>)| {
            let of: Vec<String> = of.iter().map(i32::to_string).collect();
            format!("{}[{}]", topic.0[0], of.join(" "))
        };
        format!("{id}:{}", target.iter().map(of).collect::<String>())
    };
    assigned.iter().map(member).collect::<Vec<_>>().join(" ")
}

#[test]
fn topics_of_the_same_size_have_the_same_ranges() {
    let range =
        |sizes: &[i32], members: &[Given<'_>]| assigned(Assignor::Range, sizes, spec_of(members));
    let both: &[u8] = &[0, 1];
    assert_eq!(range(&[3, 3], &[("a", both, &[]), ("b", both, &[])]), "a:0[0 1]1[0 1] b:0[2]1[2]");
    // Different subscriptions; more members than partitions.
    let members: &[Given<'_>] = &[("a", &[0], &[]), ("b", &[0, 1], &[]), ("c", &[1], &[])];
    assert_eq!(range(&[5, 1], members), "a:0[0 1 2] b:0[3 4]1[0] c:");
    // Previous assignments do not matter.
    let had: &[Given<'_>] = &[("a", &[0], &[(0, &[2])]), ("b", &[0], &[(0, &[0, 1])])];
    assert_eq!(range(&[3], had), "a:0[0 1] b:0[2]");
    assert_eq!(range(&[3], &[]), "");
}

#[test]
fn static_members_come_first_in_ranges() {
    let mut members = spec_of(&[("a", &[0], &[]), ("b", &[0], &[]), ("c", &[0], &[])]);
    members.get_mut("c").unwrap().instance_id = Some("1".into());
    members.get_mut("b").unwrap().instance_id = Some("2".into());
    assert_eq!(assigned(Assignor::Range, &[4], members), "a:0[3] b:0[2] c:0[0 1]");
}

#[test]
fn uniform_assignments_are_even_and_sticky() {
    let uniform =
        |sizes: &[i32], members: &[Given<'_>]| assigned(Assignor::Uniform, sizes, spec_of(members));
    let cases: &[Case<'_>] = &[
        (&[3, 3], &[("a", &[0, 1], &[]), ("b", &[0, 1], &[])], "a:0[0 1 2] b:1[0 1 2]"),
        // A member joins.
        (&[4], &[("a", &[0], &[(0, &[0, 1, 2, 3])]), ("b", &[0], &[])], "a:0[0 1] b:0[2 3]"),
        // A member has left.
        (&[4], &[("b", &[0], &[(0, &[2, 3])])], "b:0[0 1 2 3]"),
        // The member with the extra partition keeps it.
        (&[3], &[("a", &[0], &[(0, &[1])]), ("b", &[0], &[(0, &[0, 2])])], "a:0[1] b:0[0 2]"),
        // A topic has no subscribers any longer.
        (&[2, 2], &[("a", &[1], &[(0, &[0, 1])]), ("b", &[1], &[(1, &[0])])], "a:1[1] b:1[0]"),
        // Different subscriptions.
        (&[3, 3], &[("a", &[0], &[]), ("b", &[0, 1], &[])], "a:0[0 1 2] b:1[0 1 2]"),
        (
            &[3, 3],
            &[("a", &[0], &[]), ("b", &[0, 1], &[(0, &[0, 1, 2]), (1, &[0, 1, 2])])],
            "a:0[0 1 2] b:1[0 1 2]",
        ),
        (&[], &[("a", &[], &[])], "a:"),
    ];
    for (sizes, members, expected) in cases {
        assert_eq!(uniform(sizes, members), *expected, "{members:?}");
    }
}

proptest! {
    #[test]
    fn subscribed_partitions_are_assigned_once_and_evenly_and_stay(
        sizes in prop::collection::vec(1..9_i32, 1..4),
        wishes in prop::collection::vec(prop::collection::vec(any::<bool>(), 3), 1..6),
        uniform in any::<bool>(),
        same in any::<bool>(),
    ) {
        let assignor = if uniform { Assignor::Uniform } else { Assignor::Range };
        let member = |(index, wants): (usize, &Vec<bool>)| {
            let wants = if same { &wishes[0] } else { wants };
            let topics = (0..sizes.len()).filter(|number| wants[*number]);
            let topics: BTreeSet<Uuid> = topics.map(|number| topic(number as u8)).collect();
            (format!("m{index}"), MemberSpec { topics, ..MemberSpec::default() })
        };
        let members: BTreeMap<_, _> = wishes.iter().enumerate().map(member).collect();
        let partitions = |id: &Uuid| sizes[usize::from(id.0[0])];
        let first = assignor.assign(&Spec { members: members.clone(), partitions: &partitions });
        let mut given = BTreeSet::new();
        for (id, target) in &first {
            for (topic, of) in target {
                prop_assert!(members[id].topics.contains(topic));
                for index in of {
                    prop_assert!(given.insert((*topic, *index)), "given twice");
                }
            }
        }
        let wanted: BTreeSet<Uuid> = members.values().flat_map(|m| m.topics.clone()).collect();
        let all = wanted.iter().flat_map(|topic| (0..partitions(topic)).map(|i| (*topic, i)));
        prop_assert_eq!(&given, &all.collect::<BTreeSet<_>>());
        let size = |target: &Partitions| target.values().map(BTreeSet::len).sum::<usize>();
        let sizes: Vec<usize> = first.values().map(size).collect();
        if uniform && same {
            let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
            prop_assert!(most - least <= 1, "{:?}", sizes);
        }
        // With this assignment as the last target, nothing moves.
        let mut again = members;
        for (id, member) in &mut again {
            member.target = first[id].clone();
        }
        let second = assignor.assign(&Spec { members: again.clone(), partitions: &partitions });
        prop_assert_eq!(&first, &second);
        // When a member leaves, the others keep their partitions.
        if uniform && same && again.len() > 1 {
            again.pop_first();
            let third = assignor.assign(&Spec { members: again, partitions: &partitions });
            for (id, target) in &third {
                for (topic, of) in &first[id] {
                    prop_assert!(of.is_subset(&target[topic]), "{} has lost something", id);
                }
            }
        }
    }
}
