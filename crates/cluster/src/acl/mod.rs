//! ACLs: permissions of principals on resources, evaluated as in Kafka's `StandardAuthorizer`.
//!
//! A matching deny takes precedence over any allow, and access without a matching allow is denied.
//! A resource without ACLs is open to all clients if `allow.everyone.if.no.acl.found` is set.

mod filter;
#[cfg(test)]
mod tests;

pub(crate) use filter::{Fields, Filter};

use curtail_wire::ErrorCode;
use imbl::OrdSet;
use serde::{Deserialize, Serialize};

use crate::{
    admission::Principal,
    config::{Authorizer, Security},
};

/// The name of the only resource of its type.
pub(crate) const CLUSTER: &str = "kafka-cluster";
/// The resource name that matches every resource of a type, and the host that matches every host.
const ANY: &str = "*";
const EVERYBODY: &str = "User:*";

macro_rules! codes {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $variant:ident = $code:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub(crate) enum $name { $($(#[$of])* $variant,)* }

        impl $name {
            /// Returns its code in the protocol.
            pub(crate) fn code(self) -> i8 {
                match self { $(Self::$variant => $code,)* }
            }

            /// Returns the value with this code; `None` for filter codes and unknown ones.
            pub(crate) fn of_code(code: i8) -> Option<Self> {
                match code { $($code => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

codes! {
    /// The type of a resource.
    ResourceType {
        Topic = 2,
        Group = 3,
        Cluster = 4,
        TransactionalId = 5,
        DelegationToken = 6,
        User = 7,
    }
}

codes! {
    /// How an ACL's resource name is matched.
    Pattern {
        /// The resource with exactly this name.
        Literal = 3,
        /// All resources whose names start with it.
        Prefixed = 4,
    }
}

codes! {
    /// An operation on a resource.
    Operation {
        All = 2,
        Read = 3,
        Write = 4,
        Create = 5,
        Delete = 6,
        Alter = 7,
        Describe = 8,
        ClusterAction = 9,
        DescribeConfigs = 10,
        AlterConfigs = 11,
        IdempotentWrite = 12,
        CreateTokens = 13,
        DescribeTokens = 14,
        TwoPhaseCommit = 15,
    }
}

codes! {
    /// Whether an ACL denies or allows.
    Permission {
        Deny = 2,
        Allow = 3,
    }
}

/// One ACL.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Acl {
    pub(crate) resource_type: ResourceType,
    pub(crate) resource_name: String,
    pub(crate) pattern: Pattern,
    pub(crate) principal: String,
    pub(crate) host: String,
    pub(crate) operation: Operation,
    pub(crate) permission: Permission,
}

/// A resource protected by ACLs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource<'a> {
    Topic(&'a str),
    Group(&'a str),
    Cluster,
    TransactionalId(&'a str),
}

impl Resource<'_> {
    pub(crate) fn resource_type(&self) -> ResourceType {
        self.type_and_name().0
    }

    fn type_and_name(&self) -> (ResourceType, &str) {
        match self {
            Self::Topic(name) => (ResourceType::Topic, name),
            Self::Group(name) => (ResourceType::Group, name),
            Self::Cluster => (ResourceType::Cluster, CLUSTER),
            Self::TransactionalId(name) => (ResourceType::TransactionalId, name),
        }
    }

    /// Returns the error code for a principal without permission.
    pub(crate) fn refusal(&self) -> ErrorCode {
        match self {
            Self::Topic(_) => ErrorCode::TOPIC_AUTHORIZATION_FAILED,
            Self::Group(_) => ErrorCode::GROUP_AUTHORIZATION_FAILED,
            Self::Cluster => ErrorCode::CLUSTER_AUTHORIZATION_FAILED,
            Self::TransactionalId(_) => ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        }
    }
}

impl Acl {
    fn names(&self, resource_type: ResourceType, name: &str) -> bool {
        self.resource_type == resource_type
            && match self.pattern {
                Pattern::Literal => self.resource_name == name || self.resource_name == ANY,
                Pattern::Prefixed => name.starts_with(&self.resource_name),
            }
    }

    fn is_about(&self, who: &Who<'_>) -> bool {
        (self.principal == who.principal || self.principal == EVERYBODY)
            && (self.host == who.host || self.host == ANY)
    }

    /// Whether the ACL covers the operation. An allow for Read, for example, also allows Describe.
    fn covers(&self, operation: Operation) -> bool {
        use Operation::{All, Alter, AlterConfigs, Delete, Describe, DescribeConfigs, Read, Write};
        let implied = self.permission == Permission::Allow
            && match operation {
                Describe => matches!(self.operation, Read | Write | Delete | Alter),
                DescribeConfigs => self.operation == AlterConfigs,
                _ => false,
            };
        implied || self.operation == All || self.operation == operation
    }
}

/// The requesting client, as ACLs name it.
struct Who<'a> {
    principal: String,
    host: &'a str,
}

/// The ACLs in force, and the requesting client.
pub(crate) struct Access<'a> {
    pub(crate) rules: &'a OrdSet<Acl>,
    pub(crate) security: &'a Security,
    pub(crate) principal: &'a Principal,
    /// The client's address.
    pub(crate) host: &'a str,
}

impl Access<'_> {
    /// Whether no authorizer is set, or ACLs do not apply to the client.
    fn is_free(&self, who: &Who<'_>) -> bool {
        self.security.authorizer == Authorizer::None
            || *self.principal == Principal::Broker
            || self.security.super_users.contains(&who.principal)
    }

    fn who(&self) -> Who<'_> {
        Who { principal: self.principal.to_string(), host: self.host }
    }

    /// Returns whether the operation is allowed.
    pub(crate) fn may(&self, operation: Operation, resource: &Resource<'_>) -> bool {
        let who = self.who();
        if self.is_free(&who) {
            return true;
        }
        let (resource_type, name) = resource.type_and_name();
        let mut named = false;
        let mut allowed = false;
        for acl in self.rules.iter().filter(|acl| acl.names(resource_type, name)) {
            named = true;
            if !acl.is_about(&who) || !acl.covers(operation) {
                continue;
            }
            match acl.permission {
                Permission::Deny => return false,
                Permission::Allow => allowed = true,
            }
        }
        allowed || (!named && self.security.allow_everyone_if_no_acl)
    }

    /// Returns whether the operation is allowed on any possible resource of this type.
    pub(crate) fn may_with_any(&self, operation: Operation, of: ResourceType) -> bool {
        let who = self.who();
        if self.is_free(&who) {
            return true;
        }
        let of_mine = |permission| {
            let rules = self.rules.iter();
            let of_type = move |acl: &&Acl| {
                acl.resource_type == of && acl.permission == permission && acl.covers(operation)
            };
            rules.filter(of_type).filter(|acl| acl.is_about(&who))
        };
        let hides = |deny: &Acl, allow: &Acl| match (deny.pattern, allow.pattern) {
            (Pattern::Literal, Pattern::Literal) => {
                deny.resource_name == ANY || deny.resource_name == allow.resource_name
            }
            (Pattern::Literal, Pattern::Prefixed) => deny.resource_name == ANY,
            (Pattern::Prefixed, _) => allow.resource_name.starts_with(&deny.resource_name),
        };
        let open = |allow: &&Acl| !of_mine(Permission::Deny).any(|deny| hides(deny, allow));
        if of_mine(Permission::Allow).any(|allow| open(&allow)) {
            return true;
        }
        let closed = |deny: &Acl| deny.pattern == Pattern::Literal && deny.resource_name == ANY;
        self.security.allow_everyone_if_no_acl && !of_mine(Permission::Deny).any(closed)
    }
}
