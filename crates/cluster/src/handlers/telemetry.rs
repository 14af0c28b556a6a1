//! GetTelemetrySubscriptions, key 71, and PushTelemetry, key 72, version 0 each (KIP-714). Clients are offered them while
//! the cluster has a receiver.

#[cfg(test)]
mod tests;

use bytes::Bytes;
use curtail_wire::{
    DecodeError, ErrorCode, Reader, Uuid,
    cold::messages::{
        GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse, PushTelemetryRequest,
        PushTelemetryResponse,
    },
    compression::{Codec, DecompressLimit, decompress},
};
use tokio::time::Instant;

use super::{Answer, Call, text};
use crate::{
    controller::random_id,
    telemetry::{CODECS, ClientMetrics, Pushed},
};

/// A decompressed payload may have this many times `telemetry.max.bytes`.
const MOST_EXPANSION: usize = 64;

pub(super) fn subscriptions(
    call: &Call<'_>,
    body: Bytes,
    out: &mut Vec<Bytes>,
) -> Result<Answer, String> {
    let request: GetTelemetrySubscriptionsRequest = call.decode(body)?;
    let id = match Uuid(*request.client_instance_id.as_bytes()) {
        id if id.is_zero() => random_id(&call.broker.env.entropy),
        id => id,
    };
    let image = call.broker.image();
    let asked = call.broker.telemetry.lock().get(
        &image.settings,
        id,
        (call.origin, call.header.client_id.unwrap_or_default()),
        Instant::now(),
    );
    let response = GetTelemetrySubscriptionsResponse::default();
    let asked = match asked {
        Ok(asked) => asked,
        Err(code) => return call.answer(&response.with_error_code(code.0), out),
    };
    let max_bytes = call.broker.config.telemetry_max_bytes;
    let response = response
        .with_client_instance_id(uuid::Uuid::from_bytes(id.0))
        .with_subscription_id(asked.id)
        .with_accepted_compression_types(CODECS.iter().map(|codec| codec.id() as i8).collect())
        .with_push_interval_ms(i32::try_from(asked.interval.as_millis()).unwrap_or(i32::MAX))
        .with_telemetry_max_bytes(i32::try_from(max_bytes).unwrap_or(i32::MAX))
        .with_delta_temporality(true)
        .with_requested_metrics(asked.metrics.iter().map(|name| text(name)).collect());
    call.answer(&response, out)
}

pub(super) fn push(call: &Call<'_>, body: &Bytes, out: &mut Vec<Bytes>) -> Result<Answer, String> {
    let encoding = call.header.api.encoding(call.version());
    let request = read(&mut Reader::new(body, encoding)).map_err(|error| error.to_string())?;
    let code = pushed(call, &request).err().unwrap_or(ErrorCode::NONE);
    call.answer(&PushTelemetryResponse::default().with_error_code(code.0), out)
}

/// Reads a request without the limit of `cold` on byte sections, which is below `telemetry.max.bytes`: a payload that is too
/// large is answered.
fn read(r: &mut Reader<'_>) -> Result<PushTelemetryRequest, DecodeError> {
    let id = r.uuid("client_instance_id")?;
    let request = PushTelemetryRequest::default()
        .with_client_instance_id(uuid::Uuid::from_bytes(id.0))
        .with_subscription_id(r.i32("subscription_id")?)
        .with_terminating(r.bool("terminating")?)
        .with_compression_type(r.i8("compression_type")?)
        .with_metrics(r.bytes("metrics")?);
    r.skip_tagged("PushTelemetry request")?;
    Ok(request)
}

fn pushed(call: &Call<'_>, request: &PushTelemetryRequest) -> Result<(), ErrorCode> {
    let id = Uuid(*request.client_instance_id.as_bytes());
    // Kafka reserves zero and one.
    if u128::from_be_bytes(id.0) <= 1 {
        return Err(ErrorCode::INVALID_REQUEST);
    }
    let client_id = call.header.client_id.unwrap_or_default();
    let checked = Pushed {
        subscription_id: request.subscription_id,
        terminating: request.terminating,
        compression: request.compression_type,
        bytes: request.metrics.len(),
    };
    let max_bytes = call.broker.config.telemetry_max_bytes;
    let codec = call.broker.telemetry.lock().push(
        &call.broker.image().settings,
        id,
        (call.origin, client_id),
        &checked,
        max_bytes,
        Instant::now(),
    )?;
    if request.metrics.is_empty() {
        return Ok(());
    }
    let metrics = payload(codec, &request.metrics, max_bytes)?;
    let Some(receiver) = call.broker.metrics_receiver() else { return Ok(()) };
    let received = receiver(ClientMetrics {
        broker: call.broker.id,
        peer: call.peer,
        client_id: client_id.to_owned(),
        client_instance_id: id,
        software: call.origin.software.get().cloned(),
        terminating: request.terminating,
        codec,
        metrics,
    });
    received.map_err(|reason| {
        tracing::debug!(
            broker = call.broker.id,
            reason,
            "the receiver refused metrics of a client"
        );
        ErrorCode::INVALID_RECORD
    })
}

/// Kafka's receivers decompress the payload, and refuse one that they cannot read.
fn payload(codec: Codec, metrics: &Bytes, max_bytes: usize) -> Result<Bytes, ErrorCode> {
    if codec == Codec::None {
        return Ok(metrics.clone());
    }
    let limit = DecompressLimit { max_bytes: max_bytes.saturating_mul(MOST_EXPANSION) };
    let decompressed = decompress(codec, metrics, &limit);
    decompressed.map(Bytes::from).map_err(|_| ErrorCode::INVALID_RECORD)
}
