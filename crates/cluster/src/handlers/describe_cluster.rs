//! DescribeCluster, key 60, versions 0 to 2, from the broker's own copy of the metadata. Only the
//! brokers' endpoints are served: the response to a request for controllers is
//! MISMATCHED_ENDPOINT_TYPE. From version 2 on fenced brokers are listed on request.

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    cold::messages::{
        BrokerId, DescribeClusterRequest, DescribeClusterResponse,
        describe_cluster_response::DescribeClusterBroker,
    },
};

use super::{Answer, Call, metadata, text};

const ENDPOINT_BROKERS: i8 = 1;
const ENDPOINT_CONTROLLERS: i8 = 2;

pub(super) fn handle(call: &Call<'_>, body: Bytes, out: &mut Vec<Bytes>) -> Result<Answer, String> {
    let request: DescribeClusterRequest = call.decode(body)?;
    let mut response = DescribeClusterResponse::default();
    let error = match request.endpoint_type {
        _ if call.version() == 0 => ErrorCode::NONE,
        ENDPOINT_BROKERS => ErrorCode::NONE,
        ENDPOINT_CONTROLLERS => ErrorCode::MISMATCHED_ENDPOINT_TYPE,
        _ => ErrorCode::UNSUPPORTED_ENDPOINT_TYPE,
    };
    if error.is_error() {
        response.error_code = error.0;
        response.error_message = Some(text(error.message()));
        return call.answer(&response, out);
    }
    response.cluster_authorized_operations =
        metadata::cluster_operations(call, request.include_cluster_authorized_operations);
    let image = call.broker.image();
    let listed = image.brokers.values().filter(|b| !b.fenced || request.include_fenced_brokers);
    response.cluster_id = text(&image.cluster_id);
    response.controller_id = BrokerId(metadata::controller_id(&image));
    response.brokers = listed
        .filter_map(|b| {
            let endpoint = b.endpoint(call.listener)?;
            let broker = DescribeClusterBroker::default()
                .with_broker_id(BrokerId(b.id))
                .with_host(text(endpoint.host()))
                .with_port(i32::from(endpoint.port()))
                .with_rack(call.broker.config.rack(b.id).map(text));
            Some(if call.version() >= 2 { broker.with_is_fenced(b.fenced) } else { broker })
        })
        .collect();
    call.answer(&response, out)
}
