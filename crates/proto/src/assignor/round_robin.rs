//! `roundrobin`: all partitions in order, to the members in turn, skipping members that are not subscribed to the
//! topic.

use super::{Assignments, Member, Topics, in_order, nothing_for, wants};

pub(super) fn assign(topics: &Topics, members: &[Member]) -> Assignments {
    let ordered = in_order(members);
    let mut assignments = nothing_for(members);
    let mut turn = 0;
    for (topic, layout) in topics {
        if !ordered.iter().any(|member| wants(member, topic)) {
            continue;
        }
        for index in 0..layout.count {
            while !wants(ordered[turn % ordered.len()], topic) {
                turn += 1;
            }
            let member = ordered[turn % ordered.len()];
            if let Some(assigned) = assignments.get_mut(&member.id) {
                assigned.push((topic.clone(), index));
            }
            turn += 1;
        }
    }
    assignments
}
