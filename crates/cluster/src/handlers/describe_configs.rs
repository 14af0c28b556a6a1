//! DescribeConfigs, key 32, versions 1 to 4: topics (2) and brokers (4). Other resources are refused with
//! INVALID_REQUEST.

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    cold::messages::{
        DescribeConfigsRequest, DescribeConfigsResponse,
        describe_configs_request::DescribeConfigsResource,
        describe_configs_response::{DescribeConfigsResourceResult, DescribeConfigsResult},
    },
};

use super::{Answer, Call, text};
use crate::{
    acl::{Operation, Resource},
    config::ClusterConfig,
    topic_config::{SOURCE_DEFAULT, SOURCE_STATIC},
};

const TOPIC: i8 = 2;
const BROKER: i8 = 4;

/// A setting: its name, value, source and whether it cannot be changed.
type Setting = (&'static str, String, i8, bool);

pub(super) fn handle(call: &Call<'_>, body: Bytes, out: &mut Vec<Bytes>) -> Result<Answer, String> {
    let request: DescribeConfigsRequest = call.decode(body)?;
    let results = request.resources.iter().map(|resource| {
        let result = DescribeConfigsResult::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone());
    call.concerns(request.resources.len());
        match settings(call, resource) {
            Ok(settings) => result.with_configs(
                settings
                    .into_iter()
                    .filter(|(name, ..)| is_wanted(resource, name))
                    .map(|setting| describe(call, setting))
                    .collect(),
            ),
            Err((code, reason)) => {
                result.with_error_code(code.0).with_error_message(Some(text(reason)))
            }
        }
    });
    let response = DescribeConfigsResponse::default().with_results(results.collect());
    call.answer(&response, out)
}

fn is_wanted(resource: &DescribeConfigsResource, name: &str) -> bool {
    let keys = resource.configuration_keys.as_ref();
    keys.is_none_or(|keys| keys.is_empty() || keys.iter().any(|key| key.as_str() == name))
}

fn settings(
    call: &Call<'_>,
    resource: &DescribeConfigsResource,
) -> Result<Vec<Setting>, (ErrorCode, &'static str)> {
    let config = &call.broker.config;
    match resource.resource_type {
        TOPIC => {
            let topic = Resource::Topic(&resource.resource_name);
            call.require(Operation::DescribeConfigs, topic)
                .map_err(|code| (code, code.message()))?;
            let image = call.broker.image();
            let topic = image
                .topic(&resource.resource_name)
                .ok_or((ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, "There is no such topic."))?;
            let described = topic.config.describe(config).into_iter();
            Ok(described.map(|(name, value, source)| (name, value, source, false)).collect())
        }
        BROKER => {
            let refused = call.require(Operation::DescribeConfigs, Resource::Cluster);
            refused.map_err(|code| (code, code.message()))?;
            let name = resource.resource_name.as_str();
            if !name.is_empty() && name.parse() != Ok(call.broker.id) {
                let reason = "A broker describes only itself.";
                return Err((ErrorCode::INVALID_REQUEST, reason));
            }
            let defaults = ClusterConfig::default();
            let described = config.properties().zip(defaults.properties());
            Ok(described
                .map(|((name, value), (_, default))| {
                    let source = if value == default { SOURCE_DEFAULT } else { SOURCE_STATIC };
                    (name, value, source, true)
                })
                .collect())
        }
        _ => Err((ErrorCode::INVALID_REQUEST, "Only topics and brokers can be described.")),
    }
}

fn describe(call: &Call<'_>, setting: Setting) -> DescribeConfigsResourceResult {
    let (name, value, source, read_only) = setting;
    let config_type = config_type(&value);
    let result = DescribeConfigsResourceResult::default()
        .with_name(text(name))
        .with_value(Some(text(&value)))
        .with_config_source(source)
        .with_read_only(read_only);
    if call.version() >= 3 { result.with_config_type(config_type) } else { result }
}

/// The number DescribeConfigs has for the type of a value.
fn config_type(value: &str) -> i8 {
    const BOOLEAN: i8 = 1;
    const STRING: i8 = 2;
    const LONG: i8 = 5;
    match value {
        "true" | "false" => BOOLEAN,
        value if value.parse::<i64>().is_ok() => LONG,
        _ => STRING,
    }
}
