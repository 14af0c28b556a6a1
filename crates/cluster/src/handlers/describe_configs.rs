//! DescribeConfigs, key 32, versions 1 to 4: topics (2), brokers (4), client metrics (16) and groups
//! (32). Other resources are refused with INVALID_REQUEST. A broker without a name means the
//! overrides of all brokers.

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    cold::messages::{
        DescribeConfigsRequest, DescribeConfigsResponse,
        describe_configs_request::DescribeConfigsResource,
        describe_configs_response::{
            DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
        },
    },
};

use super::{Answer, Call, text};
use crate::{
    acl::{Operation, Resource},
    config::ClusterConfig,
    settings::{
        BrokerSettings, SOURCE_BROKERS, describe_client_metrics, describe_group, is_dynamic,
    },
    topic_config::{Described, Synonym},
};

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const CLIENT_METRICS: i8 = 16;
const GROUP: i8 = 32;

/// An id that no broker has.
const NO_BROKER: i32 = -1;

/// A setting and whether it is read-only.
type Setting = (Described, bool);

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
                    .filter(|(setting, _)| is_wanted(resource, setting.name))
                    .map(|setting| describe(call, setting, request.include_synonyms))
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
    let changeable = |setting| (setting, false);
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
            let one = |setting: Described| {
                let is_fixed = !is_dynamic(setting.name);
                (setting, is_fixed)
            };
            Ok(described.into_iter().map(one).collect())
        }
        GROUP => {
            require(Resource::Group(name))?;
            let image = call.broker.image();
            let described = describe_group(&settings, &image.settings, name);
            Ok(described.into_iter().map(changeable).collect())
        }
        CLIENT_METRICS => {
            require(Resource::Cluster)?;
            if name.is_empty() {
                let reason = "Client metrics subscription name must not be empty";
                return Err((ErrorCode::INVALID_REQUEST, reason));
            }
            let described = describe_client_metrics(&call.broker.image().settings, name);
            Ok(described.into_iter().map(changeable).collect())
        }
        _ => {
            call.concerns(0);
            let reason = "Only topics, brokers, groups and client metrics can be described.";
            Err((ErrorCode::INVALID_REQUEST, reason))
        }
    }
}

fn of_all_brokers(call: &Call<'_>) -> Vec<Described> {
    let all = BrokerSettings::new(&call.broker.config, NO_BROKER, &call.broker.image().settings);
    let mut described = all.describe();
    described.retain(|setting| setting.source == SOURCE_BROKERS);
    for setting in &mut described {
        setting.synonyms.retain(|(.., source)| *source == SOURCE_BROKERS);
    }
    described
}

fn describe(
    call: &Call<'_>,
    (setting, read_only): Setting,
    synonyms: bool,
) -> DescribeConfigsResourceResult {
    let sensitive = ClusterConfig::is_sensitive(setting.name);
    let value_of = |value: &str| (!sensitive).then(|| text(value));
    let synonym = |(name, value, source): &Synonym| {
        DescribeConfigsSynonym::default()
            .with_name(text(name))
            .with_value(value_of(value))
            .with_source(*source)
    };
    let synonyms = setting.synonyms.iter().filter(|_| synonyms).map(synonym).collect();
    let result = DescribeConfigsResourceResult::default()
        .with_name(text(setting.name))
        .with_value(value_of(&setting.value))
        .with_is_sensitive(sensitive)
        .with_config_source(setting.source)
        .with_read_only(read_only)
        .with_synonyms(synonyms)
        .with_documentation(None);
    match call.version() {
        ..3 => result,
        _ => result.with_config_type(setting.kind as i8),
    }
}
