//! IncrementalAlterConfigs, key 44, versions 0 and 1 (KIP-339): settings of topics, brokers (KIP-226) and groups. What a
//! running broker cannot take on is refused with INVALID_REQUEST, as Apache Kafka refuses settings that are read-only.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    cold::messages::{
        IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
        incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig},
        incremental_alter_configs_response::AlterConfigsResourceResponse,
    },
};

use super::{Answer, Call, text};
use crate::{
    acl::{Operation, Resource},
    controller::Refusal,
    settings::Whose,
    topic_config::ConfigEdit,
};

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const GROUP: i8 = 32;

pub(super) fn handle(call: &Call<'_>, body: Bytes, out: &mut Vec<Bytes>) -> Result<Answer, String> {
    let request: IncrementalAlterConfigsRequest = call.decode(body)?;
    call.concerns(request.resources.len());
    let mut named: BTreeMap<(i8, &str), usize> = BTreeMap::new();
    for resource in &request.resources {
        *named.entry((resource.resource_type, &resource.resource_name)).or_default() += 1;
    }
    let responses = request.resources.iter().map(|resource| {
        let once = named[&(resource.resource_type, resource.resource_name.as_str())] == 1;
        let done = alter(call, resource, once, request.validate_only);
        let response = AlterConfigsResourceResponse::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone());
        match done {
            Ok(()) => response,
            Err((code, reason)) => {
                response.with_error_code(code.0).with_error_message(Some(text(&reason)))
            }
        }
    });
    let response = IncrementalAlterConfigsResponse::default().with_responses(responses.collect());
    call.answer(&response, out)
}

fn refuse<T>(reason: &str) -> Result<T, Refusal> {
    Err((ErrorCode::INVALID_REQUEST, reason.to_owned()))
}

fn alter(
    call: &Call<'_>,
    resource: &AlterConfigsResource,
    once: bool,
    validate_only: bool,
) -> Result<(), Refusal> {
    let name = resource.resource_name.as_str();
    let of = match resource.resource_type {
        TOPIC => Resource::Topic(name),
        GROUP => Resource::Group(name),
        _ => Resource::Cluster,
    };
    let allowed = call.require(Operation::AlterConfigs, of);
    allowed.map_err(|code| (code, code.message().to_owned()))?;
    if !once {
        return refuse("Each resource must appear at most once.");
    }
    let names: BTreeSet<&str> = resource.configs.iter().map(|config| &*config.name).collect();
    if names.len() < resource.configs.len() {
        return refuse("Error due to duplicate config keys");
    }
    let edits = resource.configs.iter().map(|config| {
        let edit = edit(config)?;
        Ok((config.name.to_string(), edit))
    });
    let edits: Vec<(String, ConfigEdit)> = edits.collect::<Result<_, Refusal>>()?;
    let controller = &call.broker.controller;
    let whose = match resource.resource_type {
        TOPIC if validate_only => return controller.check_config(name, &edits),
        TOPIC => return controller.alter_config(name, &edits),
        GROUP if name.is_empty() => return refuse("Default group resources are not allowed."),
        GROUP => Whose::Group(name.to_owned()),
        BROKER if name.is_empty() => Whose::Brokers,
        BROKER if name.parse() == Ok(call.broker.id) => Whose::Broker(call.broker.id),
        BROKER => return refuse("A broker changes only its own settings."),
        _ => return refuse("Only settings of topics, brokers and groups can be changed."),
    };
    match validate_only {
        true => controller.check_settings(&whose, &edits),
        false => controller.alter_settings(&whose, &edits),
    }
}

fn edit(config: &AlterableConfig) -> Result<ConfigEdit, Refusal> {
    let value = config.value.as_ref().map(ToString::to_string);
    Ok(match (config.config_operation, value) {
        (1, _) => ConfigEdit::Delete,
        (0, Some(value)) => ConfigEdit::Set(value),
        (2, Some(value)) => ConfigEdit::Append(value),
        (3, Some(value)) => ConfigEdit::Subtract(value),
        (0 | 2 | 3, None) => {
            return refuse(&format!("Null value not supported for : {}", config.name.as_str()));
        }
        (operation, _) => return refuse(&format!("There is no operation {operation}.")),
    })
}
