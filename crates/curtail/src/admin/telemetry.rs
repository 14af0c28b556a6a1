//! The id of the client for client metrics (KIP-714). An [`Admin`] has no metrics to push.

use std::time::Duration;

use curtail_wire::{
    ErrorCode, Uuid,
    cold::messages::{GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse},
};

use super::{Admin, Call, broker_error};
use crate::{Result, telemetry::DISABLED};

impl Admin {
    /// Returns the id that a broker assigns to this client for its metrics (KIP-714), always the same one. Waits for it up
    /// to `timeout`. As in Java, this needs `enable.metrics.push=true`, which is not the default of an admin client.
    ///
    /// # Errors
    /// [`Error::IllegalState`](crate::Error::IllegalState) with `enable.metrics.push=false`. [`Error::UnsupportedVersion`](crate::Error::UnsupportedVersion) if the broker takes no
    /// metrics: those of Apache Kafka do so with a plugin that receives metrics.
    ///
    /// # Cancel safety
    /// Cancel safe.
    #[doc(alias = "clientInstanceId")]
    pub fn client_instance_id(&self, timeout: Duration) -> Call<'_, Uuid> {
        Box::pin(async move {
            if !self.shared.config.common.enable_metrics_push {
                return Err(DISABLED);
            }
            if let Some(id) = self.shared.client_instance_id.get() {
                return Ok(*id);
            }
            let ask = Box::new(|_| -> Call<'_, Uuid> { Box::pin(self.assigned_id()) });
            let id = self.retried_within("the client instance id", timeout, ask).await?;
            // Two calls at once agree on the first id.
            Ok(*self.shared.client_instance_id.get_or_init(|| id))
        })
    }

    async fn assigned_id(&self) -> Result<Uuid> {
        let request = GetTelemetrySubscriptionsRequest::default();
        let answer: GetTelemetrySubscriptionsResponse = self.ask_any(0..=0, |_| request).await?;
        let refused = |code| broker_error("GetTelemetrySubscriptions", code, None);
        ErrorCode(answer.error_code).ok().map_err(refused)?;
        Ok(Uuid(*answer.client_instance_id.as_bytes()))
    }
}
