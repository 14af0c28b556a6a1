//! DescribeConfigs, key 32, versions 1 to 4: topics (2), brokers (4) and groups (32). Other
//! resources are refused with INVALID_REQUEST. A broker without a name means the overrides of all
//! brokers.

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
    settings::{BrokerSettings, SOURCE_BROKERS, describe_group, is_dynamic},
};

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const GROUP: i8 = 32;

/// An id that no broker has.
const NO_BROKER: i32 = -1;

/// A setting: its name, value, source and whether it is read-only.
type Setting = (&'static str, String, i8, bool);

pub(super) fn handle(call: &Call<'_>, body: Bytes, out: &mut Vec<Bytes>) -> Result<Answer, String> {
    let request: DescribeConfigsRequest = call.decode(body)?;
    call.concerns(request.resources.len());
    let results = request.resources.iter().map(|resource| {
        let result = DescribeConfigsResult::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone());
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
    let settings = call.broker.settings();
    let name = resource.resource_name.as_str();
    let require = |resource: Resource<'_>| {
        let allowed = call.require(Operation::DescribeConfigs, resource);
        allowed.map_err(|code| (code, code.message()))
    };
    let changeable = |(name, value, source)| (name, value, source, false);
    match resource.resource_type {
        TOPIC => {
            require(Resource::Topic(name))?;
            let image = call.broker.image();
            let topic = image
                .topic(name)
                .ok_or((ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, "There is no such topic."))?;
            Ok(topic.config.describe(&settings).into_iter().map(changeable).collect())
        }
        BROKER => {
            require(Resource::Cluster)?;
            let described = match name {
                "" => of_all_brokers(call),
                name if name.parse() == Ok(call.broker.id) => settings.describe(),
                _ => return Err((ErrorCode::INVALID_REQUEST, "A broker describes only itself.")),
            };
            let one = |(name, value, source)| (name, value, source, !is_dynamic(name));
            Ok(described.into_iter().map(one).collect())
        }
        GROUP => {
            require(Resource::Group(name))?;
            let image = call.broker.image();
            let described = describe_group(&settings, &image.settings, name);
            Ok(described.into_iter().map(changeable).collect())
        }
        _ => {
            call.concerns(0);
            let reason = "Only topics, brokers and groups can be described.";
            Err((ErrorCode::INVALID_REQUEST, reason))
        }
    }
}

fn of_all_brokers(call: &Call<'_>) -> Vec<(&'static str, String, i8)> {
    let all = BrokerSettings::new(&call.broker.config, NO_BROKER, &call.broker.image().settings);
    all.describe().into_iter().filter(|(.., source)| *source == SOURCE_BROKERS).collect()
}

fn describe(call: &Call<'_>, setting: Setting) -> DescribeConfigsResourceResult {
    let (name, value, source, read_only) = setting;
    const PASSWORD: i8 = 9;
    let sensitive = ClusterConfig::is_sensitive(name);
    let config_type = if sensitive { PASSWORD } else { config_type(&value) };
    let result = DescribeConfigsResourceResult::default()
        .with_name(text(name))
        .with_value((!sensitive).then(|| text(&value)))
        .with_is_sensitive(sensitive)
        .with_config_source(source)
        .with_read_only(read_only);
    if call.version() >= 3 { result.with_config_type(config_type) } else { result }
}

/// Returns DescribeConfigs' code for the type of a value.
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
