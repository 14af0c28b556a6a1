//! `range`: the partitions of each topic in equal ranges; the first members get the remainder, one partition each.

use super::{Assignments, Member, Topics, in_order, nothing_for, wants};

pub(super) fn assign(topics: &Topics, members: &[Member]) -> Assignments {
    let ordered = in_order(members);
    let mut assignments = nothing_for(members);
    for (topic, &partitions) in topics {
        let readers: Vec<&Member> =
            ordered.iter().copied().filter(|member| wants(member, topic)).collect();
        let count = i32::try_from(readers.len()).unwrap_or(i32::MAX);
        if count == 0 {
            continue;
        }
        let (each, more) = (partitions / count, partitions % count);
        let mut next = 0;
        for (rank, member) in (0..).zip(readers) {
            let end = next + each + i32::from(rank < more);
            if let Some(assigned) = assignments.get_mut(&member.id) {
                assigned.extend((next..end).map(|index| (topic.clone(), index)));
            }
            next = end;
        }
    }
    assignments
}
