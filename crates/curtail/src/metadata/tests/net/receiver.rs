//! The receiver of client metrics (KIP-714).

use std::time::Duration;

use bytes::Bytes;
use curtail_wire::{
    ApiKey,
    cold::{
        self, StrBytes,
        messages::{
            GetTelemetrySubscriptionsResponse, PushTelemetryRequest, PushTelemetryResponse,
        },
    },
    header::RequestHeader,
};

/// A subscription to all metrics with delta temporality, and the pushes for it.
#[derive(Debug, Default)]
pub(crate) struct Receiver {
    pub(crate) interval: Duration,
    /// The throttle time of all responses.
    pub(crate) throttle: Duration,
    pub(crate) subscribed: usize,
    pub(crate) pushes: Vec<PushTelemetryRequest>,
}

impl Receiver {
    /// Returns the frame of the response to a request of the KIP.
    pub(super) fn answer(&mut self, header: &RequestHeader<'_>, body: Bytes) -> Option<Vec<u8>> {
        let throttle_ms = self.throttle.as_millis() as i32;
        let (api, id) = (header.api, header.correlation_id);
        let frame = match api {
            ApiKey::GET_TELEMETRY_SUBSCRIPTIONS => {
                self.subscribed += 1;
                let answer = GetTelemetrySubscriptionsResponse::default()
                    .with_throttle_time_ms(throttle_ms)
                    .with_client_instance_id(uuid::Uuid::from_u128(1))
                    .with_subscription_id(1)
                    .with_push_interval_ms(self.interval.as_millis() as i32)
                    .with_telemetry_max_bytes(1 << 20)
                    .with_delta_temporality(true)
                    .with_requested_metrics(vec![StrBytes::from_static_str("*")]);
                cold::encode_response(api, header.version, id, &answer)
            }
            ApiKey::PUSH_TELEMETRY => {
                self.pushes.push(cold::decode_request(header.version, body).unwrap());
                let answer = PushTelemetryResponse::default().with_throttle_time_ms(throttle_ms);
                cold::encode_response(api, header.version, id, &answer)
            }
            _ => return None,
        };
        Some(frame.unwrap())
    }
}
