//! ListConfigResources, key 74, versions 0 and 1 (KIP-1142): the names of resources with settings. In
//! version 0 it was ListClientMetricsResources.

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    cold::messages::{
        ListConfigResourcesRequest, ListConfigResourcesResponse,
        list_config_resources_response::ConfigResource,
    },
};

use super::{Answer, Call, text};
use crate::{
    acl::{Operation, Resource},
    image::Image,
    settings::Whose,
};

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const BROKER_LOGGER: i8 = 8;
const CLIENT_METRICS: i8 = 16;
const GROUP: i8 = 32;

pub(super) fn handle(call: &Call<'_>, body: Bytes, out: &mut Vec<Bytes>) -> Result<Answer, String> {
    let request: ListConfigResourcesRequest = call.decode(body)?;
    let response = ListConfigResourcesResponse::default();
    if let Err(code) = call.require(Operation::DescribeConfigs, Resource::Cluster) {
        return call.answer(&response.with_error_code(code.0), out);
    }
    let known: &[i8] = match call.version() {
        0 => &[CLIENT_METRICS],
        _ => &[GROUP, CLIENT_METRICS, BROKER_LOGGER, BROKER, TOPIC],
    };
    let asked = &request.resource_types;
    if asked.iter().any(|kind| !known.contains(kind)) {
        return call.answer(&response.with_error_code(ErrorCode::UNSUPPORTED_VERSION.0), out);
    }
    let image = call.broker.image();
    let wanted = known.iter().filter(|kind| asked.is_empty() || asked.contains(kind));
    let resources = wanted.flat_map(|&kind| {
        let named = move |name: String| {
            ConfigResource::default().with_resource_name(text(&name)).with_resource_type(kind)
        };
        names(&image, kind).into_iter().map(named)
    });
    call.answer(&response.with_config_resources(resources.collect()), out)
}

/// Groups and client metrics are those with overrides.
fn names(image: &Image, kind: i8) -> Vec<String> {
    match kind {
        TOPIC => image.topics.keys().map(ToString::to_string).collect(),
        BROKER | BROKER_LOGGER => {
            let live = image.brokers.values().filter(|broker| !broker.fenced);
            live.map(|broker| broker.id.to_string()).collect()
        }
        _ => {
            let named = image.settings.keys().filter_map(|whose| match whose {
                Whose::Group(group) if kind == GROUP => Some(group.clone()),
                Whose::ClientMetrics(name) if kind == CLIENT_METRICS => Some(name.clone()),
                _ => None,
            });
            named.collect()
        }
    }
}
