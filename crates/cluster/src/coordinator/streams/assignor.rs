//! The assignor `sticky`: active tasks are spread evenly over members, and stay where they were or where a standby task
//! has their state. Standby tasks go to other processes than the active one.
//!
//! A process has one or more members, and a task's state belongs to the process. Among equals the smaller id wins; in
//! Kafka the order of a hash map decides.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
};

use super::member::{Roles, Tasks, tasks};

/// A task: the id of its subtopology and the partition.
type Task<'a> = (&'a str, i32);

/// An assignor's view of a member.
#[derive(Clone, Debug, Default)]
pub(super) struct MemberSpec {
    pub(super) process_id: String,
    /// Its tasks in the last target.
    pub(super) target: Roles,
}

/// An assignor's view of a subtopology.
#[derive(Clone, Copy, Debug)]
pub(super) struct SubtopologySpec {
    pub(super) tasks: i32,
    pub(super) is_stateful: bool,
}

/// An assignor's view of a group.
#[derive(Debug)]
pub(super) struct Spec {
    pub(super) members: BTreeMap<String, MemberSpec>,
    pub(super) subtopologies: BTreeMap<String, SubtopologySpec>,
    /// Standby tasks for each task with state.
    pub(super) standbys: usize,
}

impl Spec {
    fn tasks(&self, stateful_only: bool) -> Vec<Task<'_>> {
        let chosen =
            self.subtopologies.iter().filter(|(_, spec)| spec.is_stateful || !stateful_only);
        chosen.flat_map(|(id, spec)| (0..spec.tasks).map(move |at| (id.as_str(), at))).collect()
    }
}

/// Computes each member's tasks.
pub(super) fn assign(spec: &Spec) -> BTreeMap<String, Roles> {
    let mut assignment = Assignment::new(spec);
    assignment.assign_active(spec.tasks(false));
    if spec.standbys > 0 {
        assignment.assign_standbys(spec.tasks(true), spec.standbys);
    }
    assignment.roles
}

/// A number of tasks that members may have, so that all can have about as many.
struct Quota {
    tasks: usize,
    members: usize,
}

impl Quota {
    fn per_member(&self) -> usize {
        if self.members == 0 { 0 } else { self.tasks.div_ceil(self.members) }
    }

    /// Takes a member out of the count once it has its share.
    fn count(&mut self, has: usize) {
        if self.members > 0 && has == self.per_member() {
            self.members -= 1;
            self.tasks = self.tasks.saturating_sub(has);
        }
    }
}

/// The members of one process.
#[derive(Default)]
struct Process<'a> {
    members: Vec<&'a str>,
    tasks: BTreeSet<Task<'a>>,
}

impl Process<'_> {
    /// Compares the numbers of tasks per member.
    fn load(&self, other: &Self) -> Ordering {
        (self.tasks.len() * other.members.len()).cmp(&(other.tasks.len() * self.members.len()))
    }
}

struct Assignment<'a> {
    processes: BTreeMap<&'a str, Process<'a>>,
    process_of: BTreeMap<&'a str, &'a str>,
    /// Numbers of tasks by member.
    counts: BTreeMap<&'a str, usize>,
    active_before: BTreeMap<Task<'a>, &'a str>,
    standby_before: BTreeMap<Task<'a>, Vec<&'a str>>,
    active: Quota,
    all: Quota,
    roles: BTreeMap<String, Roles>,
}

impl<'a> Assignment<'a> {
    fn new(spec: &'a Spec) -> Self {
        let members = spec.members.len();
        let (active, stateful) = (spec.tasks(false).len(), spec.tasks(true).len());
        let mut assignment = Self {
            processes: BTreeMap::new(),
            process_of: BTreeMap::new(),
            counts: BTreeMap::new(),
            active_before: BTreeMap::new(),
            standby_before: BTreeMap::new(),
            active: Quota { tasks: active, members },
            all: Quota { tasks: active + stateful * spec.standbys, members },
            roles: spec.members.keys().map(|id| (id.clone(), Roles::default())).collect(),
        };
        for (id, member) in &spec.members {
            let (id, process) = (id.as_str(), member.process_id.as_str());
            assignment.processes.entry(process).or_default().members.push(id);
            assignment.process_of.insert(id, process);
            assignment.counts.insert(id, 0);
            for task in tasks(&member.target.active) {
                assignment.active_before.insert(task, id);
            }
            for task in tasks(&member.target.standby) {
                assignment.standby_before.entry(task).or_default().push(id);
            }
        }
        assignment
    }

    fn assign_active(&mut self, mut tasks: Vec<Task<'a>>) {
        // Members have the same partitions of all subtopologies, if they have been assigned in ranges.
        tasks.sort_unstable_by_key(|(subtopology, partition)| (*partition, *subtopology));
        tasks.retain(|task| {
            let before = self.active_before.get(task).copied();
            !self.assign_active_to(before, *task)
        });
        tasks.retain(|task| {
            let before = self.least_loaded(self.standby_before.get(task), None);
            !self.assign_active_to(before, *task)
        });
        tasks.sort_unstable();
        for task in tasks {
            if let Some(member) = self.least_loaded_member(None) {
                self.add_active(member, task);
            }
        }
    }

    /// Assigns a task to a member that may have one more. Returns whether it did.
    fn assign_active_to(&mut self, member: Option<&'a str>, task: Task<'a>) -> bool {
        let Some(member) = member.filter(|member| self.counts[member] < self.active.per_member())
        else {
            return false;
        };
        self.add_active(member, task);
        true
    }

    fn add_active(&mut self, member: &'a str, task: Task<'a>) {
        let count = self.add(member, task, |roles| &mut roles.active);
        self.active.count(count);
        self.all.count(count);
    }

    fn add(
        &mut self,
        member: &'a str,
        task: Task<'a>,
        role: fn(&mut Roles) -> &mut Tasks,
    ) -> usize {
        if let Some(process) = self.processes.get_mut(self.process_of[member]) {
            process.tasks.insert(task);
        }
        if let Some(roles) = self.roles.get_mut(member) {
            role(roles).entry(task.0.to_owned()).or_default().insert(task.1);
        }
        let count = self.counts.entry(member).or_default();
        *count += 1;
        *count
    }

    fn assign_standbys(&mut self, mut tasks: Vec<Task<'a>>, standbys: usize) {
        tasks.sort_unstable_by_key(|(subtopology, partition)| (*partition, *subtopology));
        let mut left: Vec<(Task<'a>, usize)> = Vec::new();
        for task in tasks.into_iter().rev() {
            let kept = (0..standbys).take_while(|_| self.keep_standby(task)).count();
            if kept < standbys {
                left.push((task, standbys - kept));
            }
        }
        left.sort_unstable();
        for (task, count) in left.into_iter().rev() {
            for _ in 0..count {
                // With too few processes there are fewer standby tasks.
                let Some(member) = self.least_loaded_member(Some(task)) else { break };
                self.add_standby(member, task);
            }
        }
    }

    /// Assigns a standby task to a member that had the task before, as an active or a standby one. Returns whether it
    /// did.
    fn keep_standby(&mut self, task: Task<'a>) -> bool {
        let was_active = self.active_before.get(&task).copied();
        let was_active = was_active.filter(|member| self.may_copy(member, task));
        let candidate = was_active.or_else(|| {
            let before = self.least_loaded(self.standby_before.get(&task), Some(task));
            before.filter(|member| self.may_copy(member, task))
        });
        let Some(member) = candidate else { return false };
        self.add_standby(member, task);
        true
    }

    fn may_copy(&self, member: &str, task: Task<'_>) -> bool {
        let process = &self.processes[self.process_of[member]];
        !process.tasks.contains(&task) && self.counts[member] < self.all.per_member()
    }

    fn add_standby(&mut self, member: &'a str, task: Task<'a>) {
        let count = self.add(member, task, |roles| &mut roles.standby);
        self.all.count(count);
    }

    /// Returns the member with the least load, whose process does not have the task.
    fn least_loaded(
        &self,
        members: Option<&Vec<&'a str>>,
        without: Option<Task<'_>>,
    ) -> Option<&'a str> {
        let process = |member: &&str| &self.processes[self.process_of[*member]];
        let candidates = members.into_iter().flatten().copied();
        let candidates =
            candidates.filter(|id| without.is_none_or(|task| !process(id).tasks.contains(&task)));
        candidates.min_by(|a, b| {
            let by_process = process(a).load(process(b));
            by_process.then_with(|| self.counts[a].cmp(&self.counts[b])).then_with(|| a.cmp(b))
        })
    }

    /// Returns the member with the fewest tasks of the process with the least load that does not have the task.
    fn least_loaded_member(&self, without: Option<Task<'_>>) -> Option<&'a str> {
        let free =
            |process: &&Process<'_>| without.is_none_or(|task| !process.tasks.contains(&task));
        let process = self.processes.values().filter(free).min_by(|a, b| a.load(b))?;
        process.members.iter().copied().min_by_key(|id| (self.counts[id], *id))
    }
}
