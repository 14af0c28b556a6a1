//! Checks a consumer group's promises against the members' history and the coordinators' log.
//!
//! Kafka promises something for each generation. A partition goes to another member only in a generation that its
//! reader is no member of, or that its reader joined after the revocation. A reader that was evicted (its session
//! expired, or it did not poll) may read on until it is notified; its commits are refused. A static member (KIP-345)
//! stays in generations that it was too late for, until its session expires: it counts as evicted nevertheless.
//! Therefore:
//!
//! - two members that are both in the newest generation never read the same partition, unless one is static and has a
//!   reason to be late;
//! - a member reads only its assignment in the newest generation that it is in, from the committed offset on, without
//!   gaps;
//! - a committed offset covers only records that were returned to members, and with auto-commit only records of
//!   earlier polls. It goes back only if Kafka cannot prevent that: within one generation, when an old request
//!   overtakes a newer one;
//! - an acknowledged commit is in the log;
//! - a member loses its partitions only for a reason;
//! - every record was returned to a member.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::Violation;
use crate::history::{Deed, GroupHistory, GroupRecord, History, What, Written};

/// How long after a fault members may still be notified of an eviction: until every timeout that began during it has
/// expired.
const AFTERMATH: Duration = Duration::from_secs(8);

pub(super) fn check(history: &History) -> Vec<Violation> {
    let Some(group) = &history.group else { return Vec::new() };
    let mut violations = Ownership::check(group);
    violations.extend(check_generations(&group.log));
    violations.extend(check_commits(group));
    violations.extend(check_handovers(group));
    violations.extend(check_acknowledged(group));
    violations.extend(check_complete(history, group));
    violations
}

/// The members of a generation with their partitions.
type Generation = BTreeMap<u32, Vec<i32>>;

fn ms(at: Duration) -> i64 {
    at.as_millis() as i64
}

/// The newest generation at a time that `fits`.
fn generation_at(
    log: &[GroupRecord],
    at: Duration,
    fits: impl Fn(&Generation) -> bool,
) -> Option<&Generation> {
    let known = log.iter().take_while(|record| record.at_ms <= ms(at));
    let generations = known.filter_map(|record| match &record.what {
        Written::Generation(_, members) => Some(members),
        Written::Offset(..) => None,
    });
    generations.filter(|members| fits(members)).last()
}

/// The readers of each partition, with their positions.
struct Ownership<'a> {
    group: &'a GroupHistory,
    /// By partition and member: since when, and the next offset once the first record was returned.
    readers: BTreeMap<(i32, u32), (Duration, Option<i64>)>,
    /// Members that may be evicted because they do not poll, or because another member took their place.
    negligent: BTreeSet<u32>,
    violations: Vec<Violation>,
}

/// A member at a time.
type Moment = (u32, Duration);

impl<'a> Ownership<'a> {
    fn check(group: &'a GroupHistory) -> Vec<Violation> {
        let (readers, negligent, violations) = Default::default();
        let mut ownership = Self { group, readers, negligent, violations };
        for deed in &group.deeds {
            ownership.take(deed);
        }
        ownership.violations
    }

    fn take(&mut self, deed: &Deed) {
        let member = deed.member;
        match &deed.what {
            What::Assigned(partitions) => {
                for &partition in partitions {
                    self.assigned(partition, deed);
                }
            }
            What::Lost(partitions) => {
                if !partitions.is_empty() && !self.has_reason((member, deed.at)) {
                    self.violations.push(Violation::LostForNoReason { member, at: deed.at });
                }
                self.let_go(member, partitions);
            }
            What::Revoked(partitions) => self.let_go(member, partitions),
            What::Given(partition, offset) => self.given(*partition, *offset, deed),
            What::Neglects => {
                self.negligent.insert(member);
            }
            What::Ended => self.readers.retain(|(_, reader), _| *reader != member),
            What::Polls | What::Finishes(_) | What::Committed(_) => {}
        }
    }

    fn let_go(&mut self, member: u32, partitions: &[i32]) {
        for &partition in partitions {
            self.readers.remove(&(partition, member));
        }
    }

    fn assigned(&mut self, partition: i32, deed: &Deed) {
        let member = deed.member;
        let last = generation_at(&self.group.log, deed.at, |members| members.contains_key(&member));
        if !last.is_some_and(|members| members[&member].contains(&partition)) {
            self.violations.push(Violation::NeverAssigned { member, partition, at: deed.at });
        }
        self.readers.insert((partition, member), (deed.at, None));
        self.check_alone(partition, deed);
    }

    /// Checks that every other reader of the partition was evicted.
    fn check_alone(&mut self, partition: i32, deed: &Deed) {
        let member = deed.member;
        let Some(newest) = generation_at(&self.group.log, deed.at, |_| true) else { return };
        let readers = self.readers.range((partition, u32::MIN)..=(partition, u32::MAX));
        let others = readers.map(|((_, reader), _)| *reader).filter(|reader| *reader != member);
        let is_late =
            |reader| self.group.statics.contains(&reader) && self.has_reason((reader, deed.at));
        let both = |other: &u32| {
            newest.contains_key(other)
                && newest.contains_key(&member)
                && !is_late(*other)
                && !is_late(member)
        };
        if let Some(other) = others.into_iter().find(both) {
            let members = (other, member);
            self.violations.push(Violation::ReadByTwo { partition, members, at: deed.at });
        }
    }

    fn given(&mut self, partition: i32, offset: i64, deed: &Deed) {
        let member = deed.member;
        let Some((since, next)) = self.readers.get_mut(&(partition, member)) else {
            self.violations.push(Violation::GivenAfterAll { member, partition, offset });
            return;
        };
        let (since, expected) = (*since, next.replace(offset + 1));
        match expected {
            Some(expected) if offset != expected => {
                self.violations.push(Violation::GivenOutOfOrder {
                    member,
                    partition,
                    expected,
                    given: offset,
                });
            }
            Some(_) => {}
            None => {
                let committed = committed_between(&self.group.log, partition, since, deed.at);
                if !committed.contains(&offset) {
                    self.violations.push(Violation::BeganElsewhere {
                        member,
                        partition,
                        committed: committed.into_iter().collect(),
                        given: offset,
                    });
                }
            }
        }
        self.check_alone(partition, deed);
    }

    /// Whether a fault or the member's own neglect can explain its eviction.
    fn has_reason(&self, (member, at): Moment) -> bool {
        let troubled = |(begin, end): &(Duration, Duration)| *begin <= at && at <= *end + AFTERMATH;
        self.negligent.contains(&member) || self.group.trouble.iter().any(troubled)
    }
}

/// The committed offsets of a partition between two times; 0 before the first commit.
fn committed_between(
    log: &[GroupRecord],
    partition: i32,
    from: Duration,
    to: Duration,
) -> BTreeSet<i64> {
    let mut before = 0;
    let mut found = BTreeSet::new();
    for record in log.iter().take_while(|record| record.at_ms <= ms(to)) {
        match record.what {
            Written::Offset(at, offset) if at == partition => {
                if record.at_ms < ms(from) {
                    before = offset;
                } else {
                    found.insert(offset);
                }
            }
            _ => {}
        }
    }
    found.insert(before);
    found
}

/// Without any fault, a member that commits automatically and releases a partition in a poll has committed its position
/// before another member begins there.
fn check_handovers(group: &GroupHistory) -> Vec<Violation> {
    let mut violations = Vec::new();
    if !group.trouble.is_empty() {
        return violations;
    }
    let mut next: BTreeMap<(u32, i32), i64> = BTreeMap::new();
    let mut released: BTreeMap<i32, (u32, i64)> = BTreeMap::new();
    let mut excused: BTreeSet<u32> = BTreeSet::new();
    for deed in &group.deeds {
        let member = deed.member;
        match &deed.what {
            What::Neglects | What::Ended => {
                excused.insert(member);
            }
            What::Revoked(partitions) if group.automatic.contains(&member) => {
                for partition in partitions {
                    if let Some(position) = next.remove(&(member, *partition)) {
                        released.insert(*partition, (member, position));
                    }
                }
            }
            &What::Given(partition, given) => {
                next.insert((member, partition), given + 1);
                let Some((former, position)) = released.remove(&partition) else { continue };
                let is_handover = former != member && !excused.contains(&former);
                if is_handover && given < position {
                    let members = (former, member);
                    violations.push(Violation::HandoverUncommitted {
                        members,
                        partition,
                        position,
                        given,
                    });
                }
            }
            _ => {}
        }
    }
    violations
}

/// Checks that no generation assigns a partition to two members.
fn check_generations(log: &[GroupRecord]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for record in log {
        let Written::Generation(generation, members) = &record.what else { continue };
        let mut given = BTreeSet::new();
        let twice = members.values().flatten().find(|partition| !given.insert(**partition));
        if let Some(&partition) = twice {
            violations.push(Violation::AssignedTwice { generation: *generation, partition });
        }
    }
    violations
}

/// Completed records of a partition: all from the first one on without a gap, and some beyond.
#[derive(Default)]
struct Prefix {
    next: i64,
    beyond: BTreeSet<i64>,
}

impl Prefix {
    fn add(&mut self, offset: i64) {
        self.beyond.insert(offset);
        self.reach(self.next);
    }

    fn reach(&mut self, next: i64) {
        self.next = self.next.max(next);
        self.beyond = self.beyond.split_off(&self.next);
        while self.beyond.remove(&self.next) {
            self.next += 1;
        }
    }
}

/// The records returned to members up to a moment of the history.
#[derive(Default)]
struct Progress {
    given: BTreeMap<i32, Prefix>,
    /// Records that a member has completed, by polling again after them.
    done: BTreeMap<i32, Prefix>,
    /// By member, records not completed yet.
    open: BTreeMap<u32, Vec<(i32, i64)>>,
}

impl Progress {
    fn take(&mut self, deed: &Deed) {
        match deed.what {
            What::Given(partition, offset) => {
                self.given.entry(partition).or_default().add(offset);
                self.open.entry(deed.member).or_default().push((partition, offset));
            }
            What::Polls => {
                self.finish(deed.member, |_| true);
            }
            What::Finishes(partition) => self.finish(deed.member, |at| at == partition),
            _ => {}
        }
    }

    /// Counts the member's open records of these partitions as processed.
    fn finish(&mut self, member: u32, of: impl Fn(i32) -> bool) {
        let Some(open) = self.open.get_mut(&member) else { return };
        for (partition, offset) in open.extract_if(.., |(partition, _)| of(*partition)) {
            self.done.entry(partition).or_default().add(offset);
        }
    }

    fn limit(&self, partition: i32, automatic: bool) -> i64 {
        let prefixes = if automatic { &self.done } else { &self.given };
        prefixes.get(&partition).map_or(0, |prefix| prefix.next)
    }
}

/// Checks each commit against the records returned before it was written.
fn check_commits(group: &GroupHistory) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut progress = Progress::default();
    let mut deeds = group.deeds.iter().peekable();
    let mut generation: Option<&Generation> = None;
    // By partition: the last committed offset, and whether that was in an earlier generation.
    let mut last: BTreeMap<i32, (i64, bool)> = BTreeMap::new();
    for record in &group.log {
        while let Some(deed) = deeds.next_if(|deed| ms(deed.at) <= record.at_ms) {
            progress.take(deed);
        }
        match &record.what {
            Written::Generation(_, members) => {
                generation = Some(members);
                for (_, earlier) in last.values_mut() {
                    *earlier = true;
                }
            }
            &Written::Offset(partition, offset) => {
                let owner = generation.and_then(|members| {
                    members.iter().find(|(_, given)| given.contains(&partition))
                });
                let automatic = owner.is_some_and(|(owner, _)| group.automatic.contains(owner));
                let given = progress.limit(partition, automatic);
                if offset > given {
                    violations.push(Violation::CommittedAhead { partition, offset, given });
                }
                // The member that committed it has completed the records below.
                progress.done.entry(partition).or_default().reach(offset);
                if generation.is_none_or(BTreeMap::is_empty) {
                    violations.push(Violation::CommittedByNobody { partition, offset });
                }
                if let Some((before, true)) = last.insert(partition, (offset, false))
                    && offset < before
                {
                    violations.push(Violation::SetBack { partition, before, offset });
                }
            }
        }
    }
    violations
}

/// Checks that each acknowledged commit is in the log, or a later offset that replaced it.
fn check_acknowledged(group: &GroupHistory) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut log = group.log.iter().peekable();
    let mut highest: BTreeMap<i32, i64> = BTreeMap::new();
    for deed in &group.deeds {
        while let Some(record) = log.next_if(|record| record.at_ms <= ms(deed.at)) {
            if let Written::Offset(partition, offset) = record.what {
                let highest = highest.entry(partition).or_default();
                *highest = offset.max(*highest);
            }
        }
        let What::Committed(offsets) = &deed.what else { continue };
        let gone = offsets.iter().filter(|(at, offset)| highest.get(at) < Some(offset));
        violations
            .extend(gone.map(|&(partition, offset)| Violation::CommitGone { partition, offset }));
    }
    violations
}

/// Checks that every record was returned to a member.
fn check_complete(history: &History, group: &GroupHistory) -> Vec<Violation> {
    let given: BTreeSet<(i32, i64)> = group
        .deeds
        .iter()
        .filter_map(|deed| match deed.what {
            What::Given(partition, offset) => Some((partition, offset)),
            _ => None,
        })
        .collect();
    history
        .read
        .iter()
        .map(|record| (record.partition, record.offset))
        .filter(|at| !given.contains(at))
        .map(|(partition, offset)| Violation::NeverGiven { partition, offset })
        .collect()
}
