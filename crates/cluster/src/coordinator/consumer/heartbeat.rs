//! The heartbeat. With it a member joins, stays, changes its subscription, revokes partitions and
//! receives new ones.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use curtail_wire::ErrorCode;

use super::{
    ConsumerGroup, Draft, Moment, Refused, Step, Topics,
    change::{Change, Resolved},
    member::{Current, LEFT, LEFT_FOR_NOW, Member, Partitions, Profile, is_subset, partitions},
    reconcile::Towards,
    regex,
};
use crate::coordinator::epochs;

/// Minimum interval between two resolutions of regular expressions, even if topics were created.
const REGEX_MIN_INTERVAL_MS: i64 = 10_000;

/// A heartbeat. A field that is `None` has not changed since the last one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heartbeat {
    /// Empty for a joining member of version 0.
    pub(crate) member_id: String,
    /// The id assigned to a member without one.
    pub(crate) new_id: String,
    /// 0 joins; [`LEFT`] and [`LEFT_FOR_NOW`] leave.
    pub(crate) epoch: i32,
    pub(crate) instance_id: Option<String>,
    pub(crate) rack_id: Option<String>,
    pub(crate) client_id: String,
    pub(crate) client_host: String,
    pub(crate) rebalance_timeout_ms: Option<i32>,
    pub(crate) topics: Option<BTreeSet<String>>,
    pub(crate) regex: Option<String>,
    pub(crate) assignor: Option<String>,
    pub(crate) owned: Option<Partitions>,
}

impl Heartbeat {
    fn joins(&self) -> bool {
        self.epoch == 0
    }

    /// Returns whether it is complete, as after an error.
    fn is_full(&self) -> bool {
        let wishes = self.topics.is_some() || self.regex.is_some();
        wishes && self.rebalance_timeout_ms.is_some() && self.owned.is_some()
    }

    /// Returns the member's profile after this heartbeat.
    fn profile(&self, before: &Profile) -> Profile {
        let or = |new: &Option<String>, old: &Option<String>| new.clone().or_else(|| old.clone());
        Profile {
            instance_id: or(&self.instance_id, &before.instance_id),
            rack_id: or(&self.rack_id, &before.rack_id),
            client_id: self.client_id.clone(),
            client_host: self.client_host.clone(),
            topics: self.topics.clone().unwrap_or_else(|| before.topics.clone()),
            regex: self.regex.clone().unwrap_or_else(|| before.regex.clone()),
            rebalance_timeout_ms: self.rebalance_timeout_ms.unwrap_or(before.rebalance_timeout_ms),
            assignor: or(&self.assignor, &before.assignor),
        }
    }
}

/// The response to a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Beat {
    pub(crate) member_id: String,
    pub(crate) epoch: i32,
    /// `None` if the member has left.
    pub(crate) heartbeat_interval: Option<Duration>,
    /// The member's partitions, if they have changed or the member may not know them.
    pub(crate) assignment: Option<Partitions>,
    /// Regular expressions to resolve; [`ConsumerGroup::resolved`] takes the result.
    pub(crate) resolve: Option<BTreeSet<String>>,
}

/// The effect of a member's changed subscription.
struct Wishes {
    /// Whether the subscription has changed.
    changed: bool,
    /// Whether the group needs a new target now. An unresolved regular expression needs none yet.
    bump: bool,
    /// Whether the regular expression is new to the group.
    new_regex: bool,
}

impl ConsumerGroup {
    /// Handles a heartbeat.
    ///
    /// # Errors
    /// Nothing has changed. UNKNOWN_MEMBER_ID and FENCED_MEMBER_EPOCH tell the member to rejoin.
    pub(crate) fn heartbeat(
        &self,
        at: Moment,
        topics: &Topics<'_>,
        request: &Heartbeat,
    ) -> Result<Step<Beat>, Refused> {
        if matches!(request.epoch, LEFT | LEFT_FOR_NOW) {
            return self.leave_by_heartbeat(topics, request);
        }
        self.check_size(&request.member_id)?;
        let id = match request.member_id.as_str() {
            "" => request.new_id.clone(),
            id => id.to_owned(),
        };
        let mut draft = self.draft();
        let before = draft.member(&id, request)?;
        let wishes = draft.update(&id, &before, request)?;
        let resolve = draft.begin_resolving(at, topics, &wishes);
        draft.refresh(topics, wishes.bump);
        draft.assign(at, topics);
        draft.reconcile(at, topics, &id, request, wishes.changed)?;
        draft.group.deadlines.extend(&id, at.now + self.settings.session_timeout);
        let current = draft.group.members.get(&id).map(|member| member.current.clone());
        let current = current.unwrap_or_default();
        let tells = request.joins()
            || request.is_full()
            || current.assigned
                != before.map(|member| member.current.assigned.clone()).unwrap_or_default();
        let answer = Beat {
            member_id: id,
            epoch: current.epoch,
            heartbeat_interval: Some(self.settings.heartbeat_interval),
            assignment: tells.then(|| partitions(&current.assigned)),
            resolve,
        };
        Ok(draft.done(answer))
    }

    fn check_size(&self, member_id: &str) -> Result<(), Refused> {
        let max = self.settings.max_size;
        if self.members.len() < max || self.members.contains_key(member_id) {
            return Ok(());
        }
        let reason = format!("the group has the most members it may have, {max}");
        Err(Refused::new(ErrorCode::GROUP_MAX_SIZE_REACHED, reason))
    }

    /// Returns the static member with this instance id, which must have this member id.
    pub(super) fn static_member(
        &self,
        instance_id: &str,
        id: &str,
    ) -> Result<&Arc<Member>, Refused> {
        let known = self.statics.get(instance_id).ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
        if known != id {
            let reason = format!("the instance id {instance_id} belongs to member {known}");
            return Err(Refused::new(ErrorCode::FENCED_INSTANCE_ID, reason));
        }
        Ok(self.members.get(known).ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?)
    }

    /// Returns the members' regular expressions.
    pub(super) fn expressions(&self) -> BTreeSet<String> {
        let regexes = self.members.values().map(|member| &member.profile.regex);
        regexes.filter(|regex| !regex.is_empty()).cloned().collect()
    }

    /// Applies the topics that regular expressions match. Expressions without a subscriber are
    /// ignored.
    pub(crate) fn resolved(
        &self,
        topics: &Topics<'_>,
        version: u64,
        resolved: BTreeMap<String, Resolved>,
    ) -> Step<()> {
        let mut draft = self.draft();
        draft.group.resolving = false;
        draft.group.resolved_at = Some(version);
        let wanted = self.expressions();
        let mut changed = false;
        for (expression, resolved) in resolved {
            if !wanted.contains(&expression) {
                continue;
            }
            let known = self.regexes.get(&expression);
            changed |= match known {
                Some(known) => known.topics != resolved.topics,
                None => !resolved.topics.is_empty(),
            };
            draft.change(Change::Regex(expression, Some(resolved)));
        }
        draft.refresh(topics, changed);
        draft.done(())
    }

    /// Handles a failed resolution, or a result that was not stored.
    pub(crate) fn resolve_failed(&mut self) {
        self.resolving = false;
    }
}

impl Draft {
    /// Returns the member as of before the heartbeat; `None` for a new one. A returning static
    /// member replaces the one that left.
    fn member(&mut self, id: &str, request: &Heartbeat) -> Result<Option<Arc<Member>>, Refused> {
        let Some(instance_id) = &request.instance_id else {
            let member = self.group.members.get(id).cloned();
            return match member {
                Some(member) => check_epoch(&member.current, request).map(|()| Some(member)),
                None if request.joins() => Ok(None),
                None => Err(ErrorCode::UNKNOWN_MEMBER_ID.into()),
            };
        };
        if !request.joins() {
            let member = Arc::clone(self.group.static_member(instance_id, id)?);
            return check_epoch(&member.current, request).map(|()| Some(member));
        }
        let Some(known) = self.group.statics.get(instance_id).cloned() else {
            return Ok(self.group.members.get(id).cloned());
        };
        let Some(left) = self.group.members.get(&known).cloned() else { return Ok(None) };
        if left.current.epoch != LEFT_FOR_NOW {
            let reason =
                format!("member {known} has the instance id {instance_id} and has not left");
            return Err(Refused::new(ErrorCode::UNRELEASED_INSTANCE_ID, reason));
        }
        let target = self.group.target(&known);
        let current = Current { epoch: 0, previous_epoch: 0, ..left.current.clone() };
        self.tombstones(&known);
        self.change(Change::Member(id.to_owned(), Some(left.profile.clone())));
        self.change(Change::Target(id.to_owned(), Some(target)));
        self.change(Change::Current(id.to_owned(), Some(current)));
        Ok(self.group.members.get(id).cloned())
    }

    /// Updates the member's profile.
    fn update(
        &mut self,
        id: &str,
        before: &Option<Arc<Member>>,
        request: &Heartbeat,
    ) -> Result<Wishes, Refused> {
        let new = Profile::default();
        let old = before.as_ref().map_or(&new, |member| &member.profile);
        let profile = request.profile(old);
        let regex_changed = profile.regex != old.regex;
        let had_regex = !old.regex.is_empty();
        let topics_changed = profile.topics != old.topics;
        let expressions = self.group.expressions();
        let new_regex =
            regex_changed && !profile.regex.is_empty() && !expressions.contains(&profile.regex);
        if new_regex {
            regex::compile(&profile.regex)?;
        }
        // An unresolved regular expression starts a new epoch when it is resolved.
        let resolved = match profile.regex.as_str() {
            "" => had_regex,
            regex => self.group.regexes.contains_key(regex),
        };
        if before.is_none() || profile != *old {
            self.change(Change::Member(id.to_owned(), Some(profile)));
        }
        if regex_changed {
            self.forget_unused_regexes();
        }
        Ok(Wishes {
            changed: topics_changed || regex_changed,
            bump: topics_changed || regex_changed && resolved,
            new_regex,
        })
    }

    /// Returns the regular expressions to resolve now; they are always resolved together. This is
    /// due for a new expression, after topics were created, and after the refresh interval.
    fn begin_resolving(
        &mut self,
        at: Moment,
        topics: &Topics<'_>,
        wishes: &Wishes,
    ) -> Option<BTreeSet<String>> {
        let group = &mut self.group;
        let expressions = group.expressions();
        if expressions.is_empty() || group.resolving {
            return None;
        }
        let last = group.regexes.values().next().map(|resolved| resolved.timestamp);
        let since = last.map_or(i64::MAX, |last| at.now_ms.saturating_sub(last));
        if since <= REGEX_MIN_INTERVAL_MS {
            return None;
        }
        let interval = i64::try_from(group.settings.regex_refresh_interval.as_millis());
        let due = wishes.new_regex
            || expressions.len() != group.regexes.len()
            || group.resolved_at.is_none_or(|version| version < topics.image.topics_created)
            || since > interval.unwrap_or(i64::MAX);
        if !due {
            return None;
        }
        group.resolving = true;
        Some(expressions)
    }

    /// Takes one step of the member towards its part of the target.
    fn reconcile(
        &mut self,
        at: Moment,
        topics: &Topics<'_>,
        id: &str,
        request: &Heartbeat,
        subscription_changed: bool,
    ) -> Result<(), Refused> {
        let group = &self.group;
        let Some(member) = group.members.get(id) else { return Ok(()) };
        if !subscription_changed && member.current.is_reconciled_to(group.assignment_epoch) {
            return Ok(());
        }
        let towards = Towards {
            epoch: group.assignment_epoch,
            target: &group.target(id),
            subscribed: &topics.ids(group.wanted(&member.profile)),
            subscription_changed,
            owned: request.owned.as_ref(),
            held_by_another: &|topic, partition| {
                group.owners.get(&(topic, partition)).is_some_and(|owner| **owner != *id)
            },
        };
        let next = towards.step(&member.current)?;
        if next != member.current {
            self.change(Change::Current(id.to_owned(), Some(next)));
            if let Some(member) = self.group.members.get(id).cloned() {
                self.group.watch_rebalance(at.now, id, &member);
            }
        }
        Ok(())
    }
}

fn check_epoch(member: &Current, request: &Heartbeat) -> Result<(), Refused> {
    let owned = request.owned.as_ref();
    epochs::check_heartbeat(request.epoch, member.epoch, member.previous_epoch, || {
        owned.is_some_and(|owned| is_subset(owned, &member.assigned))
    })
}
