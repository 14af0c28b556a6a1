//! Access control lists (KIP-140, KIP-290).

use std::{collections::BTreeSet, fmt};

use curtail_wire::{ErrorCode, cold::messages};
use messages::{
    CreateAclsRequest, CreateAclsResponse, DeleteAclsRequest, DeleteAclsResponse,
    DescribeAclsRequest, DescribeAclsResponse, create_acls_request::AclCreation,
    delete_acls_request::DeleteAclsFilter,
};

use super::{Admin, Call, Each, broker_error, text};
use crate::Result;

/// An enum with Kafka's codes and names.
macro_rules! numbered {
    ($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $code:literal $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$variant_meta])* $variant,)*
        }

        impl $name {
            /// All variants.
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
    /// Resource type.
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
        /// A user for whom others may create and describe delegation tokens.
        User = 7 "user",
    }
}

numbered! {
    /// Resource pattern type.
    AclPattern {
        /// Exactly this name; `*` for all names.
        Literal = 3 "literal",
        /// All names with this prefix.
        Prefixed = 4 "prefixed",
    }
}

numbered! {
    /// Operation on a resource.
    AclOperation {
        /// All operations.
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
        /// Requests between brokers.
        ClusterAction = 9 "cluster-action",
        /// Describe settings.
        DescribeConfigs = 10 "describe-configs",
        /// Alter settings.
        AlterConfigs = 11 "alter-configs",
        /// Write as an idempotent producer.
        IdempotentWrite = 12 "idempotent-write",
        /// Create delegation tokens.
        CreateTokens = 13 "create-tokens",
        /// Describe delegation tokens.
        DescribeTokens = 14 "describe-tokens",
        /// Take part in a two-phase commit.
        TwoPhaseCommit = 15 "two-phase-commit",
    }
}

numbered! {
    /// Permission type.
    AclPermission {
        /// Forbidden, even if another rule allows it.
        Deny = 2 "deny",
        /// Allowed.
        Allow = 3 "allow",
    }
}

/// One access rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Acl {
    /// Resource type.
    pub resource: AclResource,
    /// Resource name.
    pub name: String,
    /// Pattern type of the name.
    pub pattern: AclPattern,
    /// Principal, such as `User:alice`; `User:*` for all users.
    pub principal: String,
    /// Client address; `*` for all.
    pub host: String,
    /// Operation.
    pub operation: AclOperation,
    /// Permission type.
    pub permission: AclPermission,
}

impl Acl {
    /// Allows a principal one operation on the resource with this name, from every address.
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

    /// Turns the rule into a denial.
    #[must_use]
    pub fn denied(mut self) -> Self {
        self.permission = AclPermission::Deny;
        self
    }

    /// Makes the name a prefix.
    #[must_use]
    pub fn prefixed(mut self) -> Self {
        self.pattern = AclPattern::Prefixed;
        self
    }

    /// Limits the rule to connections from this address.
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

/// Filter on the pattern type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum AclPatternFilter {
    /// All rules with exactly this name, of every pattern type.
    #[default]
    Any,
    /// All rules that apply to the resource of this name: literal, prefixed or `*`.
    Match,
    /// Rules of this pattern type.
    Only(AclPattern),
}

/// Filter for rules; `None` matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct AclFilter {
    /// Resource type.
    pub resource: Option<AclResource>,
    /// Resource name; `pattern` decides how it matches.
    pub name: Option<String>,
    /// Pattern type.
    pub pattern: AclPatternFilter,
    /// Principal.
    pub principal: Option<String>,
    /// Client address.
    pub host: Option<String>,
    /// Operation.
    pub operation: Option<AclOperation>,
    /// Permission type.
    pub permission: Option<AclPermission>,
}

impl AclFilter {
    fn wire(&self) -> DeleteAclsFilter {
        /// Kafka's code for "any".
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
    /// Matches this rule only.
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
    /// Returns the rules that match a filter. Leaves out rules of types that this client does not know.
    ///
    /// # Errors
    /// If no broker responds within `default.api.timeout.ms`, or the cluster has no authorizer.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub fn describe_acls<'a>(&'a self, filter: &'a AclFilter) -> Call<'a, Vec<Acl>> {
        let what = "describing ACLs (default.api.timeout.ms)";
        self.retried(what, move |_| self.describe_acls_once(filter))
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
        ErrorCode(answer.error_code).ok().map_err(|code| broker_error("ACLs", code, message))?;
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

    /// Adds rules, with a result for each. Brokers may apply them with a delay.
    ///
    /// ```no_run
    /// # async fn example(admin: &curtail::Admin) -> curtail::Result<()> {
    /// use curtail::admin::{Acl, AclOperation, AclResource};
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
    /// If no broker responds within `default.api.timeout.ms`.
    ///
    /// # Cancel safety
    /// A dropped call may still have been carried out.
    pub fn create_acls<'a>(&'a self, acls: &'a [Acl]) -> Call<'a, Each<Acl, ()>> {
        let what = "adding ACLs (default.api.timeout.ms)";
        self.rounds(what, acls, move |open, _| self.create_acls_once(open))
    }

    async fn create_acls_once(&self, acls: BTreeSet<Acl>) -> Result<Each<Acl, ()>> {
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
        // Results are in the order of the request.
        let results = acls.into_iter().zip(answer.results).map(|(acl, result)| {
            let message = result.error_message.as_deref();
            let error = |code| broker_error(&acl.to_string(), code, message);
            let result = ErrorCode(result.error_code).ok().map_err(error);
            (acl, result)
        });
        Ok(results.collect())
    }

    /// Deletes the rules that match filters, with a result for each filter and for each matching rule.
    ///
    /// # Errors
    /// If no broker responds within `default.api.timeout.ms`.
    ///
    /// # Cancel safety
    /// A dropped call may still have been carried out.
    pub fn delete_acls<'a>(
        &'a self,
        filters: &'a [AclFilter],
    ) -> Call<'a, Each<AclFilter, Each<Acl, ()>>> {
        let what = "deleting ACLs (default.api.timeout.ms)";
        self.rounds(what, filters, move |open, _| self.delete_acls_once(open))
    }

    async fn delete_acls_once(
        &self,
        filters: BTreeSet<AclFilter>,
    ) -> Result<Each<AclFilter, Each<Acl, ()>>> {
        let wire = filters.iter().map(AclFilter::wire).collect();
        let request = DeleteAclsRequest::default().with_filters(wire);
        let answer: DeleteAclsResponse = self.ask_any(1..=3, |_| request).await?;
        let mut results = Each::new();
        // Results are in the order of the request.
        for (filter, result) in filters.into_iter().zip(answer.filter_results) {
            let message = result.error_message.as_deref();
            if let Err(code) = ErrorCode(result.error_code).ok() {
                results.push((filter, Err(broker_error("ACLs", code, message))));
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
            results.push((filter, Ok(deleted.collect())));
        }
        Ok(results)
    }
}
