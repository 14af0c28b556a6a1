//! DescribeAcls, key 29, CreateAcls, key 30, and DeleteAcls, key 31, each versions 1 to 3.
//!
//! Any broker serves them. The response follows the controller's decision; brokers learn the ACLs
//! after their metadata's delay. Without an authorizer the response is SECURITY_DISABLED.

use std::collections::BTreeMap;

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    cold::messages::{
        CreateAclsRequest, CreateAclsResponse, DeleteAclsRequest, DeleteAclsResponse,
        DescribeAclsRequest, DescribeAclsResponse,
        create_acls_request::AclCreation,
        create_acls_response::AclCreationResult,
        delete_acls_request::DeleteAclsFilter,
        delete_acls_response::{DeleteAclsFilterResult, DeleteAclsMatchingAcl},
        describe_acls_response::{AclDescription, DescribeAclsResource},
    },
};

use super::{Answer, Call, text};
use crate::{
    acl::{Acl, CLUSTER, Fields, Filter, Operation, Pattern, Permission, Resource, ResourceType},
    config::Authorizer,
};

type Refusal = (ErrorCode, &'static str);

/// Checks that there is an authorizer, and that the client may perform this operation on ACLs.
fn open(call: &Call<'_>, operation: Operation) -> Result<(), Refusal> {
    call.require(operation, Resource::Cluster).map_err(|code| (code, code.message()))?;
    if call.broker.config.security.authorizer == Authorizer::None {
        return Err((ErrorCode::SECURITY_DISABLED, "No Authorizer is configured."));
    }
    Ok(())
}

pub(super) fn describe(
    call: &Call<'_>,
    body: Bytes,
    out: &mut Vec<Bytes>,
) -> Result<Answer, String> {
    let request: DescribeAclsRequest = call.decode(body)?;
    let filter = Filter::new(&Fields {
        resource_type: request.resource_type_filter,
        resource_name: request.resource_name_filter.as_deref(),
        pattern: request.pattern_type_filter,
        principal: request.principal_filter.as_deref(),
        host: request.host_filter.as_deref(),
        operation: request.operation,
        permission: request.permission_type,
    });
    let filter = filter.ok_or((ErrorCode::INVALID_REQUEST, "The filter has unknown elements."));
    let found = open(call, Operation::Describe).and(filter).map(|filter| {
        let mut resources: BTreeMap<_, Vec<AclDescription>> = BTreeMap::new();
        for acl in call.broker.image().acls.iter().filter(|acl| filter.fits(acl)) {
            let resource = (acl.resource_type, acl.resource_name.clone(), acl.pattern);
            let description = AclDescription::default()
                .with_principal(text(&acl.principal))
                .with_host(text(&acl.host))
                .with_operation(acl.operation.code())
                .with_permission_type(acl.permission.code());
            resources.entry(resource).or_default().push(description);
        }
        resources
    });
    let response = match found {
        Ok(resources) => {
            let resources = resources.into_iter().map(|((of, name, pattern), acls)| {
                DescribeAclsResource::default()
                    .with_resource_type(of.code())
                    .with_resource_name(text(&name))
                    .with_pattern_type(pattern.code())
                    .with_acls(acls)
            });
            DescribeAclsResponse::default()
                .with_error_message(None)
                .with_resources(resources.collect())
        }
        Err((code, reason)) => DescribeAclsResponse::default()
            .with_error_code(code.0)
            .with_error_message(Some(text(reason))),
    };
    call.answer(&response, out)
}

pub(super) fn create(call: &Call<'_>, body: Bytes, out: &mut Vec<Bytes>) -> Result<Answer, String> {
    let request: CreateAclsRequest = call.decode(body)?;
    let open = open(call, Operation::Alter);
    let asked: Vec<Result<Acl, Refusal>> =
        request.creations.iter().map(|creation| open.and_then(|()| acl(creation))).collect();
    let valid = asked.iter().flatten().cloned().collect();
    let created = call.broker.controller.create_acls(valid);
    let refused = |code: ErrorCode, reason: &str| {
        AclCreationResult::default().with_error_code(code.0).with_error_message(Some(text(reason)))
    };
    let results = asked.iter().map(|asked| match (asked, &created) {
        (Err((code, reason)), _) => refused(*code, reason),
        (Ok(_), Err((code, reason))) => refused(*code, reason),
        (Ok(_), Ok(())) => AclCreationResult::default().with_error_message(None),
    });
    call.answer(&CreateAclsResponse::default().with_results(results.collect()), out)
}

fn acl(creation: &AclCreation) -> Result<Acl, Refusal> {
    let invalid = |reason| (ErrorCode::INVALID_REQUEST, reason);
    let resource_type = ResourceType::of_code(creation.resource_type);
    let resource_type = resource_type.ok_or(invalid("Invalid resource type"))?;
    let pattern = Pattern::of_code(creation.resource_pattern_type);
    let pattern = pattern.ok_or(invalid("Invalid pattern type"))?;
    let operation = Operation::of_code(creation.operation).ok_or(invalid("Invalid operation"))?;
    let permission = Permission::of_code(creation.permission_type);
    let permission = permission.ok_or(invalid("Invalid permission type"))?;
    let name = &creation.resource_name;
    if name.is_empty() {
        return Err(invalid("Resource name should not be empty"));
    }
    if resource_type == ResourceType::Cluster && name.as_str() != CLUSTER {
        return Err(invalid("The only valid name for the CLUSTER resource is kafka-cluster"));
    }
    let typed = creation.principal.split_once(':');
    if typed.is_none_or(|(of, name)| of.is_empty() || name.is_empty()) {
        return Err((
            ErrorCode::INVALID_PRINCIPAL_TYPE,
            "A principal has a type and a name, such as User:alice",
        ));
    }
    if creation.host.is_empty() {
        return Err(invalid("Host should not be empty"));
    }
    Ok(Acl {
        resource_type,
        resource_name: name.to_string(),
        pattern,
        principal: creation.principal.to_string(),
        host: creation.host.to_string(),
        operation,
        permission,
    })
}

pub(super) fn delete(call: &Call<'_>, body: Bytes, out: &mut Vec<Bytes>) -> Result<Answer, String> {
    let request: DeleteAclsRequest = call.decode(body)?;
    let open = open(call, Operation::Alter);
    let refused = |code: ErrorCode, reason: &str| {
        let result = DeleteAclsFilterResult::default();
        result.with_error_code(code.0).with_error_message(Some(text(reason)))
    };
    let results = request.filters.iter().map(|asked| {
        let filter = match open.and_then(|()| filter(asked)) {
            Ok(filter) => filter,
            Err((code, reason)) => return refused(code, reason),
        };
        match call.broker.controller.delete_acls(&filter) {
            Ok(gone) => DeleteAclsFilterResult::default()
                .with_error_message(None)
                .with_matching_acls(gone.iter().map(matching).collect()),
            Err((code, reason)) => refused(code, &reason),
        }
    });
    let results = results.collect();
    call.answer(&DeleteAclsResponse::default().with_filter_results(results), out)
}

fn filter(asked: &DeleteAclsFilter) -> Result<Filter, Refusal> {
    let filter = Filter::new(&Fields {
        resource_type: asked.resource_type_filter,
        resource_name: asked.resource_name_filter.as_deref(),
        pattern: asked.pattern_type_filter,
        principal: asked.principal_filter.as_deref(),
        host: asked.host_filter.as_deref(),
        operation: asked.operation,
        permission: asked.permission_type,
    });
    filter.ok_or((ErrorCode::INVALID_REQUEST, "The filter has unknown elements."))
}

fn matching(acl: &Acl) -> DeleteAclsMatchingAcl {
    DeleteAclsMatchingAcl::default()
        .with_error_message(None)
        .with_resource_type(acl.resource_type.code())
        .with_resource_name(text(&acl.resource_name))
        .with_pattern_type(acl.pattern.code())
        .with_principal(text(&acl.principal))
        .with_host(text(&acl.host))
        .with_operation(acl.operation.code())
        .with_permission_type(acl.permission.code())
}
