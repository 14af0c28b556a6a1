//! The case of equal subscriptions. Every member gets its share, the first members one partition more. Each keeps as
//! many of its partitions as its share allows.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use crate::assignor::{Assignments, Key, Topics};

/// Shares of the members: `least` each, and one more for `with_more` of them.
struct Shares {
    least: usize,
    with_more: usize,
}

impl Shares {
    fn of(partitions: usize, members: usize) -> Self {
        Self { least: partitions / members, with_more: partitions % members }
    }

    fn most(&self) -> usize {
        self.least + usize::from(self.with_more > 0)
    }
}

/// `owned` has an entry for each member and names no partition twice.
pub(super) fn assign(topics: &Topics, owned: BTreeMap<Arc<str>, Vec<Key>>) -> Assignments {
    let mut free: BTreeSet<Key> = topics
        .iter()
        .flat_map(|(topic, count)| (0..*count).map(|index| (topic.clone(), index)))
        .collect();
    let mut shares = Shares::of(free.len(), owned.len());
    let mut assignments = Assignments::new();
    // Members with less than the least share, and with exactly that.
    let (mut hungry, mut fed) = (VecDeque::new(), VecDeque::new());
    for (member, mut kept) in owned {
        if kept.len() < shares.least {
            hungry.push_back(member.clone());
        } else if kept.len() >= shares.most() && shares.with_more > 0 {
            kept.truncate(shares.most());
            shares.with_more -= 1;
        } else {
            kept.truncate(shares.least);
            fed.push_back(member.clone());
        }
        for key in &kept {
            free.remove(key);
        }
        assignments.insert(member, kept);
    }
    // One partition each in turn to the hungry; a member that reaches the least share then waits for one more after
    // the members that had it before.
    for key in free {
        let Some(member) = hungry.pop_front().or_else(|| fed.pop_front()) else { break };
        let Some(assigned) = assignments.get_mut(&member) else { continue };
        assigned.push(key);
        match assigned.len() {
            n if n < shares.least => hungry.push_back(member),
            n if n == shares.least => fed.push_back(member),
            _ => {}
        }
    }
    assignments
}
