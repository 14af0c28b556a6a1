//! Assigns a range of each topic's partitions to each subscriber, ordered by instance id, then by
//! member id. If the division leaves a remainder, the first members receive one partition more.
//! Only static members keep their partitions when members join or leave.

use std::collections::BTreeMap;

use curtail_wire::Uuid;

use super::{Partitions, Spec};

/// The unassigned rest of a topic.
struct Rest {
    next: i32,
    members: i32,
    end: i32,
}

impl Rest {
    /// Takes the next member's range: its even share of the rest, rounded up.
    fn take(&mut self) -> std::ops::Range<i32> {
        let left = self.end - self.next;
        let size = left / self.members + i32::from(left % self.members > 0);
        let range = self.next..self.next + size;
        self.next = range.end;
        self.members -= 1;
        range
    }
}

pub(super) fn assign(spec: &Spec<'_>) -> BTreeMap<String, Partitions> {
    let rest = |(topic, members): (Uuid, Vec<&str>)| {
        let members = i32::try_from(members.len()).unwrap_or(i32::MAX);
        (topic, Rest { next: 0, members, end: (spec.partitions)(&topic) })
    };
    let mut topics: BTreeMap<Uuid, Rest> = spec.subscribers().into_iter().map(rest).collect();
    let mut members: Vec<_> = spec.members.iter().collect();
    members.sort_by_key(|(id, member)| {
        (member.instance_id.is_none(), member.instance_id.as_deref(), id.as_str())
    });
    let mut assigned = BTreeMap::new();
    for (id, member) in members {
        let mut target = Partitions::new();
        for topic in &member.topics {
            let Some(rest) = topics.get_mut(topic) else { continue };
            let range = rest.take();
            if !range.is_empty() {
                target.insert(*topic, range.collect());
            }
        }
        assigned.insert(id.clone(), target);
    }
    assigned
}
