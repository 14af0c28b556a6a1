//! The assignor.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::{
    super::{
        assignor::{MemberSpec, Spec, SubtopologySpec, assign},
        *,
    },
    bench::shown,
};

/// A group with these numbers of tasks, of which those of odd subtopologies have state.
fn spec(tasks: &[i32], members: &[(&str, &str)], standbys: usize) -> Spec {
    let subtopologies = tasks.iter().enumerate().map(|(id, tasks)| {
        (id.to_string(), SubtopologySpec { tasks: *tasks, is_stateful: id % 2 == 1 })
    });
    let members = members.iter().map(|(id, process)| {
        let process_id = (*process).to_owned();
        ((*id).to_owned(), MemberSpec { process_id, target: Roles::default() })
    });
    Spec { members: members.collect(), subtopologies: subtopologies.collect(), standbys }
}

/// Returns the spec of the next assignment.
fn after(mut spec: Spec, assigned: &BTreeMap<String, Roles>) -> Spec {
    for (id, member) in &mut spec.members {
        member.target = assigned.get(id).cloned().unwrap_or_default();
    }
    spec
}

fn active(assigned: &BTreeMap<String, Roles>) -> String {
    let shown = assigned.iter().map(|(id, roles)| format!("{id}:{}", shown(&roles.active)));
    shown.collect::<Vec<_>>().join(" ")
}

#[test]
fn active_tasks_are_spread_over_processes_and_their_members() {
    let two = [("a", "p"), ("b", "q")];
    assert_eq!(active(&assign(&spec(&[4], &two, 0))), "a:0[0 2] b:0[1 3]");
    // A process with two members has two thirds of the tasks.
    let three = [("a", "p"), ("b", "p"), ("c", "q")];
    assert_eq!(active(&assign(&spec(&[3], &three, 0))), "a:0[0] b:0[2] c:0[1]");
    // More members than tasks.
    assert_eq!(active(&assign(&spec(&[1], &two, 0))), "a:0[0] b:");
    assert_eq!(active(&assign(&spec(&[1], &[], 0))), "");
    assert_eq!(active(&assign(&spec(&[], &two, 0))), "a: b:");
}

#[test]
fn active_tasks_stay_and_the_surplus_moves() {
    let one = assign(&spec(&[4], &[("a", "p")], 0));
    let two = assign(&after(spec(&[4], &[("a", "p"), ("b", "q")], 0), &one));
    assert_eq!(active(&two), "a:0[0 1] b:0[2 3]");
    // The first member is gone: the other keeps its tasks and takes all.
    let left = assign(&after(spec(&[4], &[("b", "q"), ("c", "r")], 0), &two));
    assert_eq!(active(&left), "b:0[2 3] c:0[0 1]");
}

#[test]
fn a_task_moves_to_the_member_with_its_standby() {
    let members = [("a", "p"), ("b", "q"), ("c", "r")];
    let before = assign(&spec(&[0, 3], &members, 1));
    let standby_of = |assigned: &BTreeMap<String, Roles>, partition: i32| {
        let has = |roles: &&Roles| roles.standby.get("1").is_some_and(|of| of.contains(&partition));
        assigned.iter().find(|(_, roles)| has(roles)).map(|(id, _)| id.clone())
    };
    let lost: Vec<i32> = before["a"].active["1"].iter().copied().collect();
    let successors: Vec<_> = lost.iter().map(|at| standby_of(&before, *at).unwrap()).collect();
    let now = assign(&after(spec(&[0, 3], &members[1..], 1), &before));
    for (partition, successor) in lost.iter().zip(&successors) {
        assert!(now[successor].active["1"].contains(partition), "{now:?}");
    }
}

/// Returns the owners of each active task, and the processes of each task in any role.
type Owners = (BTreeMap<(String, i32), Vec<String>>, BTreeMap<(String, i32), Vec<String>>);

fn owners(spec: &Spec, assigned: &BTreeMap<String, Roles>) -> Owners {
    let (mut active, mut all) = (BTreeMap::new(), BTreeMap::new());
    for (id, roles) in assigned {
        for (of, is_active) in [(&roles.active, true), (&roles.standby, false)] {
            for (subtopology, partitions) in of {
                for partition in partitions {
                    let task = (subtopology.clone(), *partition);
                    let process = spec.members[id].process_id.clone();
                    all.entry(task.clone()).or_insert_with(Vec::new).push(process);
                    if is_active {
                        active.entry(task).or_insert_with(Vec::new).push(id.clone());
                    }
                }
            }
        }
    }
    (active, all)
}

fn count(roles: &Roles) -> usize {
    roles.active.values().map(BTreeSet::len).sum()
}

/// Checks an assignment by itself.
fn check(spec: &Spec, assigned: &BTreeMap<String, Roles>) {
    assert!(assigned.keys().eq(spec.members.keys()));
    let (active, all) = owners(spec, assigned);
    let processes: BTreeSet<&String> =
        spec.members.values().map(|member| &member.process_id).collect();
    for (id, subtopology) in &spec.subtopologies {
        for partition in 0..subtopology.tasks {
            let task = (id.clone(), partition);
            if spec.members.is_empty() {
                continue;
            }
            assert_eq!(active.get(&task).map(Vec::len), Some(1), "{task:?} has one owner");
            let with = &all[&task];
            let distinct: BTreeSet<&String> = with.iter().collect();
            assert_eq!(distinct.len(), with.len(), "a process has {task:?} once");
            let standbys = if subtopology.is_stateful { spec.standbys } else { 0 };
            assert_eq!(with.len(), 1 + standbys.min(processes.len() - 1), "{task:?}");
        }
    }
    assert_eq!(active.len(), spec.subtopologies.values().map(|of| of.tasks).sum::<i32>() as usize);
}

fn member_sets() -> impl Strategy<Value = BTreeSet<(u8, u8)>> {
    prop::collection::btree_set((0..4_u8, 0..3_u8), 1..8)
}

fn named(members: &BTreeSet<(u8, u8)>) -> Vec<(String, String)> {
    members.iter().map(|(p, m)| (format!("m{p}{m}"), format!("p{p}"))).collect()
}

fn spec_of(tasks: &[i32], members: &BTreeSet<(u8, u8)>, standbys: usize) -> Spec {
    let named = named(members);
    let named: Vec<(&str, &str)> = named.iter().map(|(id, of)| (&**id, &**of)).collect();
    spec(tasks, &named, standbys)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_task_has_one_owner_and_its_standbys_are_elsewhere(
        tasks in prop::collection::vec(0..9_i32, 0..5),
        generations in prop::collection::vec(member_sets(), 1..5),
        standbys in 0..3_usize,
    ) {
        let mut before = BTreeMap::new();
        for members in &generations {
            let spec = after(spec_of(&tasks, members, standbys), &before);
            let assigned = assign(&spec);
            check(&spec, &assigned);
            before = assigned;
        }
    }

    #[test]
    fn active_tasks_without_standbys_are_balanced_and_stay(
        tasks in prop::collection::vec(0..9_i32, 1..5),
        members in member_sets(),
        processes in 1..4_usize,
    ) {
        // Processes with equally many members: then all members have about as many tasks.
        let members: BTreeSet<(u8, u8)> =
            (0..processes).flat_map(|p| members.iter().map(move |(_, m)| (p as u8, *m))).collect();
        let spec = spec_of(&tasks, &members, 0);
        let assigned = assign(&spec);
        let (least, most) = assigned.values().map(count).fold((usize::MAX, 0), |(low, high), n| {
            (low.min(n), high.max(n))
        });
        prop_assert!(most - least <= 1, "{assigned:?}");
        let again = assign(&after(spec_of(&tasks, &members, 0), &assigned));
        prop_assert_eq!(again, assigned);
    }
}
