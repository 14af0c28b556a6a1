use curtail_wire::{ApiKey, cold};
use proptest::prelude::*;

use super::*;

fn decoded(body: &Bytes) -> Result<PushTelemetryRequest, DecodeError> {
    read(&mut Reader::new(body, ApiKey::PUSH_TELEMETRY.encoding(0)))
}

proptest! {
    /// What `kafka-protocol` writes is read, however large the payload, and a part of it is an error.
    #[test]
    fn requests_are_read_whole_or_refused(
        id: [u8; 16],
        subscription_id: i32,
        terminating: bool,
        compression: i8,
        size in prop_oneof![0_usize..300, (1_usize << 20) - 2..(1 << 20) + 2],
        cut in 0.0..1.0_f64,
    ) {
        let request = PushTelemetryRequest::default()
            .with_client_instance_id(uuid::Uuid::from_bytes(id))
            .with_subscription_id(subscription_id)
            .with_terminating(terminating)
            .with_compression_type(compression)
            .with_metrics(vec![7; size].into());
        let body = cold::encode(0, &request).unwrap();
        prop_assert_eq!(decoded(&body).unwrap(), request);
        let part = body.slice(..(body.len() as f64 * cut) as usize);
        prop_assert!(decoded(&part).is_err());
    }

    #[test]
    fn any_bytes_are_read_or_refused(body in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decoded(&body.into());
    }

    /// No payload decompresses beyond its limit, and no bytes are a panic.
    #[test]
    fn payload_is_bounded(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        id in 0_u8..5,
        max_bytes in 1_usize..100,
    ) {
        let codec = Codec::from_id(id).unwrap();
        if let Ok(metrics) = payload(codec, &bytes.into(), max_bytes) {
            prop_assert!(codec == Codec::None || metrics.len() <= max_bytes * MOST_EXPANSION);
        }
    }
}
