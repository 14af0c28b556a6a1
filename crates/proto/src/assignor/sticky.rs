//! `sticky` and `cooperative-sticky`: as balanced as possible, and then as close as possible to the previous
//! assignment.
//!
//! Members claim their previous partitions, each with the generation of that assignment. A claim of a newer
//! generation beats an older one. Of two claims of one generation neither counts, because one of them must be wrong.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use curtail_wire::consumer_protocol::{self, StickyData};

use super::{Assignments, Key, Member, Topics, flat, racks::Racks, wants};

mod equal;
mod general;

/// A member's claim of its previous partitions.
#[derive(Clone, Debug, Default)]
pub(super) struct Claim {
    partitions: Vec<Key>,
    /// -1 if the member does not report it.
    generation: i32,
}

/// `sticky` is eager: a member's claim is in its user data, because it owns no partition when it joins.
pub(super) fn claim_of_user_data(member: &Member) -> Claim {
    let data = member.subscription.user_data.as_ref();
    // User data of another assignor counts as none.
    let data = data.and_then(|data| StickyData::decode(data).ok()).unwrap_or_default();
    Claim { partitions: flat(&data.partitions), generation: data.generation.unwrap_or(-1) }
}

/// `cooperative-sticky`: the partitions that a member owns. Members of Kafka 2.4 to 3.1 have the generation in their
/// user data.
pub(super) fn claim_of_owned(member: &Member) -> Claim {
    let subscription = &member.subscription;
    let in_data = || subscription.user_data.as_ref().and_then(consumer_protocol::decode_generation);
    let generation = match subscription.generation {
        -1 => in_data().unwrap_or(-1),
        known => known,
    };
    Claim { partitions: flat(&subscription.owned), generation }
}

/// The state before the assignment.
#[derive(Debug)]
struct Before {
    /// Partitions that each member keeps if it can, in the order it named them.
    owned: BTreeMap<Arc<str>, Vec<Key>>,
    /// Owners by an older claim, which a newer one has beaten.
    previous: BTreeMap<Key, Arc<str>>,
}

pub(super) fn assign(
    topics: &Topics,
    members: &[Member],
    claim_of: fn(&Member) -> Claim,
) -> Assignments {
    if members.is_empty() {
        return Assignments::new();
    }
    let before = before(topics, members, claim_of);
    let wanted = |member: &Member| -> BTreeSet<Arc<str>> {
        member.subscription.topics.iter().cloned().collect()
    };
    let first = wanted(&members[0]);
    let racks = Racks::of(topics, members).if_they_differ();
    let same = |member: &Member| {
        member.subscription.topics == members[0].subscription.topics || wanted(member) == first
    };
    if members.iter().all(same) {
        let topics = topics.iter().filter(|(topic, _)| first.contains(*topic));
        let counts = topics.map(|(topic, layout)| (topic, layout.count));
        equal::assign(counts, before.owned, &racks)
    } else {
        general::assign(topics, members, before, &racks)
    }
}

/// Resolves the claims. Only existing partitions count, and only of topics that the member still subscribes to.
fn before(topics: &Topics, members: &[Member], claim_of: fn(&Member) -> Claim) -> Before {
    let mut ordered: Vec<&Member> = members.iter().collect();
    ordered.sort_by(|a, b| a.id.cmp(&b.id));
    let claims: Vec<(&Member, Claim)> =
        ordered.into_iter().map(|member| (member, claim_of(member))).collect();
    // The claims on each partition, the newest last.
    let mut claimants: BTreeMap<&Key, Vec<(i32, &Member)>> = BTreeMap::new();
    for (member, claim) in &claims {
        for key in &claim.partitions {
            let exists = topics.get(&key.0).is_some_and(|topic| (0..topic.count).contains(&key.1));
            if exists && wants(member, &key.0) {
                claimants.entry(key).or_default().push((claim.generation, member));
            }
        }
    }
    let mut owners: BTreeMap<&Key, &Arc<str>> = BTreeMap::new();
    let mut previous = BTreeMap::new();
    for (key, mut of_key) in claimants {
        of_key.sort_by_key(|(generation, _)| *generation);
        of_key.dedup_by(|a, b| a.1.id == b.1.id);
        let newest = of_key.last().map(|(generation, _)| *generation);
        let mut newest_claims = of_key.iter().filter(|(g, _)| Some(*g) == newest);
        if let (Some((_, owner)), None) = (newest_claims.next(), newest_claims.next()) {
            owners.insert(key, &owner.id);
        }
        if let Some((_, member)) = of_key.iter().rev().find(|(g, _)| Some(*g) < newest) {
            previous.insert(key.clone(), member.id.clone());
        }
    }
    let mut owned = BTreeMap::new();
    for (member, claim) in &claims {
        let mut kept = Vec::new();
        for key in &claim.partitions {
            // Removed, because a malformed claim may name a partition twice.
            if owners.get(key).is_some_and(|owner| **owner == member.id) {
                owners.remove(key);
                kept.push(key.clone());
            }
        }
        owned.insert(member.id.clone(), kept);
    }
    Before { owned, previous }
}

/// Removes partitions that another member may still be reading from the assignment. That member revokes them first,
/// and the next rebalance assigns them (KIP-429). A member keeps a partition that it claims with a newer generation
/// than all others.
pub(super) fn withhold(assignments: &mut Assignments, members: &[Member]) {
    let mut claims: BTreeMap<Key, Vec<(i32, &Arc<str>)>> = BTreeMap::new();
    for member in members {
        let Claim { partitions, generation } = claim_of_owned(member);
        for key in partitions {
            claims.entry(key).or_default().push((generation, &member.id));
        }
    }
    for (id, assigned) in assignments {
        assigned.retain(|key| {
            let Some(claims) = claims.get(key) else { return true };
            let own = claims.iter().find(|(_, other)| *other == id).map(|(own, _)| *own);
            claims.iter().all(|(other, by)| *by == id || own.is_some_and(|own| own > *other))
        });
    }
}
