//! Who may do what: access control lists (KIP-140, KIP-290).

use std::{collections::BTreeSet, fmt};

use curtail_wire::{ErrorCode, cold::messages};
use messages::{
    CreateAclsRequest, CreateAclsResponse, DeleteAclsRequest, DeleteAclsResponse,
    DescribeAclsRequest, DescribeAclsResponse, create_acls_request::AclCreation,
    delete_acls_request::DeleteAclsFilter,
};

use super::{Admin, Each, broker_error, rounds::Outcome, text};
use crate::Result;

/// An enum of Kafka's with the numbers and names it has there.
macro_rules! numbered {
    ($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $code:literal $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$variant_meta])* $variant,)*
        }

        impl $name {
            /// All there are.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            fn wire(self) -> i8 {
                match self {
                    $(Self::$variant => $code,)*
                }
            }

            fn from_wire(code: i8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// Kafka's name in lower case.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }
    };
}

numbered! {
    /// What kind of thing is guarded.
    AclResource {
        /// A topic.
        Topic = 2 "topic",
        /// A group.
        Group = 3 "group",
        /// The cluster; its name is `kafka-cluster`.
        Cluster = 4 "cluster",
        /// A transactional id.
        TransactionalId = 5 "transactional-id",
        /// A delegation token.
        DelegationToken = 6 "delegation-token",
        /// A user, whose tokens others may make and see.
        User = 7 "user",
    }
}

numbered! {
    /// Which names are meant.
    AclPattern {
        /// This one; `*` for all.
        Literal = 3 "literal",
        /// All that begin so.
        Prefixed = 4 "prefixed",
    }
}

numbered! {
    /// What is done to a thing.
    AclOperation {
        /// All of them.
        All = 2 "all",
        /// Read.
        Read = 3 "read",
        /// Write.
        Write = 4 "write",
        /// Create.
        Create = 5 "create",
        /// Delete.
        Delete = 6 "delete",
        /// Alter.
        Alter = 7 "alter",
        /// Describe.
        Describe = 8 "describe",
        /// What brokers do to each other.
        ClusterAction = 9 "cluster-action",
        /// Describe settings.
        DescribeConfigs = 10 "describe-configs",
        /// Alter settings.
        AlterConfigs = 11 "alter-configs",
        /// Write as an idempotent producer.
        IdempotentWrite = 12 "idempotent-write",
        /// Make tokens.
        CreateTokens = 13 "create-tokens",
        /// See tokens.
        DescribeTokens = 14 "describe-tokens",
        /// Take part in a two-phase commit.
        TwoPhaseCommit = 15 "two-phase-commit",
    }
}

numbered! {
    /// Whether it is allowed.
    AclPermission {
        /// It is forbidden, whatever else allows it.
        Deny = 2 "deny",
        /// It is allowed.
        Allow = 3 "allow",
    }
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Acl {
    /// What kind of thing it is about.
    pub resource: AclResource,
    /// Name of the thing.
    pub name: String,
    /// Which names are meant.
    pub pattern: AclPattern,
    /// Who, such as `User:alice`; `User:*` for everybody.
    pub principal: String,
    /// From where: an address, or `*`.
    pub host: String,
    /// Doing what.
    pub operation: AclOperation,
    /// Whether that is allowed.
    pub permission: AclPermission,
}

impl Acl {
    /// Allows somebody to do something to one thing, from everywhere.
    pub fn allow(
        principal: impl Into<String>,
        operation: AclOperation,
        resource: AclResource,
        name: impl Into<String>,
    ) -> Self {
        Self {
            resource,
            name: name.into(),
            pattern: AclPattern::Literal,
            principal: principal.into(),
            host: "*".into(),
            operation,
            permission: AclPermission::Allow,
        }
    }

    /// Forbids it instead.
    #[must_use]
    pub fn denied(mut self) -> Self {
        self.permission = AclPermission::Deny;
        self
    }

    /// Means all names that begin so.
    #[must_use]
    pub fn prefixed(mut self) -> Self {
        self.pattern = AclPattern::Prefixed;
        self
    }

    /// Means connections from this address only.
    #[must_use]
    pub fn from_host(mut self, host: impl Into<String>) -> Self {
        self.host = host.into();
        self
    }
}

impl fmt::Display for Acl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, name, pattern, principal, host, operation, permission } = self;
        let (permission, operation) = (permission.name(), operation.name());
        let (resource, pattern) = (resource.name(), pattern.name());
        write!(
            f,
            "{permission} {principal} from {host} to {operation} {resource} '{name}' ({pattern})"
        )
    }
}

/// Which patterns of rules are meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum AclPatternFilter {
    /// Any with this very name.
    #[default]
    Any,
    /// Any that is about the thing of this name, also as a prefix or `*`.
    Match,
    /// Only patterns of this kind.
    Only(AclPattern),
}

/// Which rules are meant; `None` leaves it open.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct AclFilter {
    /// About what kind of thing.
    pub resource: Option<AclResource>,
    /// About the thing, or names, called so.
    pub name: Option<String>,
    /// With which patterns.
    pub pattern: AclPatternFilter,
    /// About whom.
    pub principal: Option<String>,
    /// From where.
    pub host: Option<String>,
    /// Doing what.
    pub operation: Option<AclOperation>,
    /// Allowed or not.
    pub permission: Option<AclPermission>,
}

impl AclFilter {
    fn wire(&self) -> DeleteAclsFilter {
        /// "Whatever it is".
        const ANY: i8 = 1;
        let pattern = match self.pattern {
            AclPatternFilter::Any => ANY,
            AclPatternFilter::Match => 2,
            AclPatternFilter::Only(pattern) => pattern.wire(),
        };
        DeleteAclsFilter::default()
            .with_resource_type_filter(self.resource.map_or(ANY, AclResource::wire))
            .with_resource_name_filter(self.name.as_deref().map(text))
            .with_pattern_type_filter(pattern)
            .with_principal_filter(self.principal.as_deref().map(text))
            .with_host_filter(self.host.as_deref().map(text))
            .with_operation(self.operation.map_or(ANY, AclOperation::wire))
            .with_permission_type(self.permission.map_or(ANY, AclPermission::wire))
    }
}

impl From<&Acl> for AclFilter {
    /// This rule only.
    fn from(acl: &Acl) -> Self {
        Self {
            resource: Some(acl.resource),
            name: Some(acl.name.clone()),
            pattern: AclPatternFilter::Only(acl.pattern),
            principal: Some(acl.principal.clone()),
            host: Some(acl.host.clone()),
            operation: Some(acl.operation),
            permission: Some(acl.permission),
        }
    }
}

impl Admin {
    /// The rules that a filter means. Those of kinds later than this client are left out.
    ///
    /// # Errors
    /// If no broker answers within `default.api.timeout.ms`, or the cluster has no authorizer.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn describe_acls(&self, filter: &AclFilter) -> Result<Vec<Acl>> {
        let what = "describing access rules (default.api.timeout.ms)";
        self.retried(what, |_| self.describe_acls_once(filter)).await
    }

    async fn describe_acls_once(&self, filter: &AclFilter) -> Result<Vec<Acl>> {
        let wire = filter.wire();
        let request = DescribeAclsRequest::default()
            .with_resource_type_filter(wire.resource_type_filter)
            .with_resource_name_filter(wire.resource_name_filter)
            .with_pattern_type_filter(wire.pattern_type_filter)
            .with_principal_filter(wire.principal_filter)
            .with_host_filter(wire.host_filter)
            .with_operation(wire.operation)
            .with_permission_type(wire.permission_type);
        let answer: DescribeAclsResponse = self.ask_any(1..=3, |_| request).await?;
        let message = answer.error_message.as_deref();
        ErrorCode(answer.error_code)
            .ok()
            .map_err(|code| broker_error("access rules", code, message))?;
        let mut acls = Vec::new();
        for resource in &answer.resources {
            acls.extend(resource.acls.iter().filter_map(|acl| {
                Some(Acl {
                    resource: AclResource::from_wire(resource.resource_type)?,
                    name: resource.resource_name.to_string(),
                    pattern: AclPattern::from_wire(resource.pattern_type)?,
                    principal: acl.principal.to_string(),
                    host: acl.host.to_string(),
                    operation: AclOperation::from_wire(acl.operation)?,
                    permission: AclPermission::from_wire(acl.permission_type)?,
                })
            }));
        }
        acls.sort();
        Ok(acls)
    }

    /// Adds rules, each with a result of its own. Brokers obey them in their own time.
    ///
    /// ```no_run
    /// # async fn example(admin: &curtail::Admin) -> curtail::Result<()> {
    /// use curtail::{Acl, AclOperation, AclResource};
    ///
    /// let acl = Acl::allow("User:billing", AclOperation::Read, AclResource::Topic, "payments");
    /// for (acl, added) in admin.create_acls(&[acl]).await? {
    ///     println!("{acl}: {added:?}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If no broker answers within `default.api.timeout.ms`.
    ///
    /// # Cancel safety
    /// A call that is dropped may have been carried out.
    pub async fn create_acls(&self, acls: &[Acl]) -> Result<Each<Acl, ()>> {
        let what = "adding access rules (default.api.timeout.ms)";
        self.rounds(what, acls, |open, _| self.create_acls_once(open)).await
    }

    async fn create_acls_once(&self, acls: BTreeSet<Acl>) -> Result<Outcome<Acl, ()>> {
        let creations = acls.iter().map(|acl| {
            AclCreation::default()
                .with_resource_type(acl.resource.wire())
                .with_resource_name(text(&acl.name))
                .with_resource_pattern_type(acl.pattern.wire())
                .with_principal(text(&acl.principal))
                .with_host(text(&acl.host))
                .with_operation(acl.operation.wire())
                .with_permission_type(acl.permission.wire())
        });
        let request = CreateAclsRequest::default().with_creations(creations.collect());
        let answer: CreateAclsResponse = self.ask_any(1..=3, |_| request).await?;
        // Answers are in the order of the request.
        let results = acls.into_iter().zip(answer.results).map(|(acl, result)| {
            let message = result.error_message.as_deref();
            let error = |code| broker_error(&acl.to_string(), code, message);
            let result = ErrorCode(result.error_code).ok().map_err(error);
            (acl, result)
        });
        Ok(results.collect())
    }

    /// Deletes the rules that filters mean. Each filter has a result of its own, and so has each rule that it meant.
    ///
    /// # Errors
    /// If no broker answers within `default.api.timeout.ms`.
    ///
    /// # Cancel safety
    /// A call that is dropped may have been carried out.
    pub async fn delete_acls(
        &self,
        filters: &[AclFilter],
    ) -> Result<Each<AclFilter, Each<Acl, ()>>> {
        let what = "deleting access rules (default.api.timeout.ms)";
        self.rounds(what, filters, |open, _| self.delete_acls_once(open)).await
    }

    async fn delete_acls_once(
        &self,
        filters: BTreeSet<AclFilter>,
    ) -> Result<Outcome<AclFilter, Each<Acl, ()>>> {
        let wire = filters.iter().map(AclFilter::wire).collect();
        let request = DeleteAclsRequest::default().with_filters(wire);
        let answer: DeleteAclsResponse = self.ask_any(1..=3, |_| request).await?;
        let mut outcome = Outcome::new();
        // Answers are in the order of the request.
        for (filter, result) in filters.into_iter().zip(answer.filter_results) {
            let message = result.error_message.as_deref();
            if let Err(code) = ErrorCode(result.error_code).ok() {
                outcome.insert(filter, Err(broker_error("access rules", code, message)));
                continue;
            }
            let deleted = result.matching_acls.iter().filter_map(|acl| {
                let message = acl.error_message.as_deref();
                let code = ErrorCode(acl.error_code);
                let acl = Acl {
                    resource: AclResource::from_wire(acl.resource_type)?,
                    name: acl.resource_name.to_string(),
                    pattern: AclPattern::from_wire(acl.pattern_type)?,
                    principal: acl.principal.to_string(),
                    host: acl.host.to_string(),
                    operation: AclOperation::from_wire(acl.operation)?,
                    permission: AclPermission::from_wire(acl.permission_type)?,
                };
                let result =
                    code.ok().map_err(|code| broker_error(&acl.to_string(), code, message));
                Some((acl, result))
            });
            outcome.insert(filter, Ok(deleted.collect()));
        }
        Ok(outcome)
    }
}
