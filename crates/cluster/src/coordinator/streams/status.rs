//! Conditions of a group, which heartbeat responses report.

use curtail_wire::cold::newer::streams::GroupStatus;

/// A condition, by its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// The member's topology is older than the group's.
    StaleTopology = 0,
    MissingSourceTopics = 1,
    /// Copartitioned topics have different numbers of partitions, or an internal topic has a wrong one.
    IncorrectlyPartitionedTopics = 2,
    /// The coordinator creates them.
    MissingInternalTopics = 3,
    /// A member asked all others to shut down.
    ShutdownApplication = 4,
    /// The target assignment is computed later.
    AssignmentDelayed = 5,
}

impl Status {
    pub(crate) fn with(self, detail: impl Into<String>) -> GroupStatus {
        GroupStatus { code: self as i8, detail: detail.into() }
    }

    pub(crate) fn is(self, status: &GroupStatus) -> bool {
        status.code == self as i8
    }
}
