//! AlterConfigs, key 33, versions 0 to 2: replaces all overrides of a resource. Admin clients older
//! than KIP-339 use it, and so do librdkafka's `AlterConfigs` and aiokafka. IncrementalAlterConfigs
//! differs only in its edits.
//!
//! Settings that a running broker cannot apply are refused with INVALID_REQUEST, as Apache Kafka
//! refuses read-only ones.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    cold::messages::{
        AlterConfigsRequest, AlterConfigsResponse, alter_configs_request::AlterConfigsResource,
        alter_configs_response::AlterConfigsResourceResponse,
    },
};

use super::{Answer, Call, text};
use crate::{
    acl::{Operation, Resource},
    controller::Refusal,
    settings::Whose,
    topic_config::{ConfigEdit, ConfigEdits},
};

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const CLIENT_METRICS: i8 = 16;
const GROUP: i8 = 32;

pub(super) fn handle(call: &Call<'_>, body: Bytes, out: &mut Vec<Bytes>) -> Result<Answer, String> {
    let request: AlterConfigsRequest = call.decode(body)?;
    let done = alter_all(call, &request.resources, request.validate_only);
    let responses = request.resources.iter().zip(done).map(|(resource, done)| {
        let response = AlterConfigsResourceResponse::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone())
            .with_error_message(None);
        match done {
            Ok(()) => response,
            Err((code, reason)) => {
                response.with_error_code(code.0).with_error_message(Some(text(&reason)))
            }
        }
    });
    let response = AlterConfigsResponse::default().with_responses(responses.collect());
    call.answer(&response, out)
}

/// A resource in a request that alters settings.
pub(super) trait Altered {
    /// Returns its type and name.
    fn resource(&self) -> (i8, &str);
    /// Returns the settings named in the request.
    fn names(&self) -> impl Iterator<Item = &str>;
    fn edits(&self) -> Result<ConfigEdits, Refusal>;
}

impl Altered for AlterConfigsResource {
    fn resource(&self) -> (i8, &str) {
        (self.resource_type, &self.resource_name)
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.configs.iter().map(|config| &*config.name)
    }

    fn edits(&self) -> Result<ConfigEdits, Refusal> {
        let edits = self.configs.iter().map(|config| match &config.value {
            Some(value) => Ok((config.name.to_string(), ConfigEdit::Set(value.to_string()))),
            None => no_value(&config.name),
        });
        Ok(ConfigEdits { replaces: true, edits: edits.collect::<Result<_, Refusal>>()? })
    }
}

/// Alters each resource, or validates it. Returns the results in the order of the request.
pub(super) fn alter_all<R: Altered>(
    call: &Call<'_>,
    resources: &[R],
    validate_only: bool,
) -> Vec<Result<(), Refusal>> {
    call.concerns(resources.len());
    let mut named: BTreeMap<(i8, &str), usize> = BTreeMap::new();
    for resource in resources {
        *named.entry(resource.resource()).or_default() += 1;
    }
    let done = resources.iter().map(|resource| {
        let once = named[&resource.resource()] == 1;
        alter(call, resource, once, validate_only)
    });
    done.collect()
}

pub(super) fn refuse<T>(reason: &str) -> Result<T, Refusal> {
    Err((ErrorCode::INVALID_REQUEST, reason.to_owned()))
}

pub(super) fn no_value<T>(name: &str) -> Result<T, Refusal> {
    refuse(&format!("Null value not supported for : {name}"))
}

fn alter(
    call: &Call<'_>,
    altered: &impl Altered,
    once: bool,
    validate_only: bool,
) -> Result<(), Refusal> {
    let (kind, name) = altered.resource();
    let of = match kind {
        TOPIC => Resource::Topic(name),
        GROUP => Resource::Group(name),
        _ => Resource::Cluster,
    };
    let allowed = call.require(Operation::AlterConfigs, of);
    allowed.map_err(|code| (code, code.message().to_owned()))?;
    if !once {
        return refuse("Each resource must appear at most once.");
    }
    let names: BTreeSet<&str> = altered.names().collect();
    if names.len() < altered.names().count() {
        return refuse("Error due to duplicate config keys");
    }
    let edits = altered.edits()?;
    let controller = &call.broker.controller;
    let whose = match kind {
        TOPIC if validate_only => return controller.check_config(name, &edits),
        TOPIC => return controller.alter_config(name, &edits),
        GROUP if name.is_empty() => return refuse("Default group resources are not allowed."),
        GROUP => Whose::Group(name.to_owned()),
        CLIENT_METRICS if name.is_empty() => return refuse("Subscription name can't be empty"),
        CLIENT_METRICS => Whose::ClientMetrics(name.to_owned()),
        BROKER if name.is_empty() => Whose::Brokers,
        BROKER if name.parse() == Ok(call.broker.id) => Whose::Broker(call.broker.id),
        BROKER => return refuse("A broker changes only its own settings."),
        _ => {
            return refuse(
                "Only settings of topics, brokers, groups and client metrics can be changed.",
            );
        }
    };
    match validate_only {
        true => controller.check_settings(&whose, &edits),
        false => controller.alter_settings(&whose, &edits),
    }
}
