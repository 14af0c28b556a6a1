//! Removal of members from consumer groups.

use std::{collections::BTreeSet, fmt};

use curtail_wire::{ErrorCode, cold::messages};
use messages::{LeaveGroupRequest, LeaveGroupResponse, leave_group_request::MemberIdentity};

use super::{Admin, Call, Each, broker_error, text};
use crate::Result;

/// A member of a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum GroupMember {
    /// A static member, by its `group.instance.id`.
    Static(String),
    /// A member by the id that its coordinator has given it, as in [`super::MemberDescription`].
    Id(String),
}

impl GroupMember {
    fn wire(&self, version: i16) -> MemberIdentity {
        let identity = MemberIdentity::default();
        let identity = match self {
            Self::Static(instance) => identity.with_group_instance_id(Some(text(instance))),
            Self::Id(member) => identity.with_member_id(text(member)).with_group_instance_id(None),
        };
        match version {
            ..WITH_REASON => identity,
            _ => identity.with_reason(Some(text("member was removed by an admin"))),
        }
    }
}

impl fmt::Display for GroupMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Static(instance) => write!(f, "static member '{instance}'"),
            Self::Id(member) => write!(f, "member '{member}'"),
        }
    }
}

/// First version in which members give a reason (KIP-800).
const WITH_REASON: i16 = 5;

impl Admin {
    /// Removes members from a group, with a result for each (KIP-345). A consumer that still runs joins again; a static member
    /// that is gone for good no longer keeps its partitions until `session.timeout.ms`.
    ///
    /// ```no_run
    /// # async fn example(admin: &curtail::Admin) -> curtail::Result<()> {
    /// use curtail::admin::GroupMember;
    ///
    /// let gone = [GroupMember::Static("pod-3".into())];
    /// for (member, removed) in admin.remove_group_members("billing", &gone).await? {
    ///     println!("{member}: {removed:?}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If no broker responds within `default.api.timeout.ms`, or the group's coordinator refuses the request. If a response is
    /// lost, the repeated request may find the member gone: its result is then UNKNOWN_MEMBER_ID.
    ///
    /// # Cancel safety
    /// A dropped call may still have been carried out.
    pub fn remove_group_members<'a>(
        &'a self,
        group: &'a str,
        members: &'a [GroupMember],
    ) -> Call<'a, Each<GroupMember, ()>> {
        let what = "removing members of a group (default.api.timeout.ms)";
        self.rounds(what, members, move |open, _| self.remove_once(group, open))
    }

    async fn remove_once(
        &self,
        group: &str,
        open: BTreeSet<GroupMember>,
    ) -> Result<Each<GroupMember, ()>> {
        let broker = self.group_coordinator(group).await?;
        let answer: LeaveGroupResponse = self
            .ask(&broker, 3..=5, |version| {
                LeaveGroupRequest::default()
                    .with_group_id(text(group).into())
                    .with_members(open.iter().map(|member| member.wire(version)).collect())
            })
            .await?;
        super::groups::group_result(group, answer.error_code)?;
        let results = answer.members.into_iter().filter_map(|left| {
            // A response to a static member may also have its member id.
            let named = |member: &&GroupMember| match member {
                GroupMember::Static(instance) => {
                    left.group_instance_id.as_deref() == Some(instance.as_str())
                }
                GroupMember::Id(id) => left.member_id.as_str() == id,
            };
            let member = open.iter().find(named)?;
            let what = format!("{member} of group '{group}'");
            let result = ErrorCode(left.error_code).ok();
            Some((member.clone(), result.map_err(|code| broker_error(&what, code, None))))
        });
        Ok(results.collect())
    }
}
