//! The task that requests a client's subscription and pushes its metrics.

use std::{sync::Arc, time::Duration};

use curtail_proto::telemetry::{Selector, Step, Subscription};
use curtail_wire::{
    ErrorCode, Uuid,
    cold::messages::{
        GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse, PushTelemetryRequest,
        PushTelemetryResponse,
    },
    compression::{Codec, Compression},
};
use tokio::time::{Instant, sleep_until};

use super::{
    Telemetry,
    payload::{Collected, Ledger},
};
use crate::{
    Error, Result,
    metadata::{ControlConnection, Throttled},
};

/// Runs until the machine has no further step, or the client is gone.
pub(super) async fn run(telemetry: Arc<Telemetry>, control: ControlConnection) {
    let mut ledger = Ledger::default();
    loop {
        let step = telemetry.machine.lock().step(Instant::now().into_std());
        match step {
            Step::Wait(until) => tokio::select! {
                biased;
                () = telemetry.changed.notified() => {}
                () = sleep_until(Instant::from_std(until)) => {}
            },
            Step::Subscribe(id) => subscribe(&telemetry, &control, id).await,
            Step::Push { terminating } => {
                push(&telemetry, &control, &mut ledger, terminating).await;
            }
            Step::End => break,
        }
    }
    telemetry.ended.send_replace(true);
}

async fn subscribe(telemetry: &Telemetry, control: &ControlConnection, id: Uuid) {
    let request = GetTelemetrySubscriptionsRequest::default()
        .with_client_instance_id(uuid::Uuid::from_bytes(id.0));
    let answer = async {
        control.borrow::<GetTelemetrySubscriptionsRequest>(true).await?.request(request).await
    };
    let answer: Result<GetTelemetrySubscriptionsResponse> = answer.await;
    let (now, unit) = (Instant::now().into_std(), control.env().entropy.unit());
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return failed(telemetry, error, unit),
    };
    let throttle = answer.throttle();
    let mut machine = telemetry.machine.lock();
    if let Err(code) = ErrorCode(answer.error_code).ok() {
        let what = "GetTelemetrySubscriptions".into();
        *telemetry.problem.lock() = Some(Error::Broker { what, code, message: None });
        return machine.refused(code, throttle, now);
    }
    machine.subscribed(subscription(&answer), throttle, now, unit);
    let assigned = machine.client_instance_id();
    drop(machine);
    telemetry.client_instance_id.send_if_modified(|id| std::mem::replace(id, assigned) != assigned);
}

fn subscription(answer: &GetTelemetrySubscriptionsResponse) -> Subscription {
    let codecs = answer.accepted_compression_types.iter();
    let codecs = codecs.filter_map(|id| Codec::from_id(u8::try_from(*id).ok()?));
    Subscription {
        client_instance_id: Uuid(*answer.client_instance_id.as_bytes()),
        id: answer.subscription_id,
        interval: Subscription::interval_of(answer.push_interval_ms),
        codecs: codecs.collect(),
        max_bytes: Subscription::max_bytes_of(answer.telemetry_max_bytes),
        delta: answer.delta_temporality,
        metrics: Selector::new(answer.requested_metrics.iter().map(ToString::to_string).collect()),
    }
}

async fn push(
    telemetry: &Telemetry,
    control: &ControlConnection,
    ledger: &mut Ledger,
    terminating: bool,
) {
    // Before the metrics are collected: without a connection, the next push must cover the time of this one. The last push
    // does not wait for a new connection.
    let borrowed = match control.borrow::<PushTelemetryRequest>(!terminating).await {
        Ok(borrowed) => borrowed,
        Err(error) => return failed(telemetry, error, control.env().entropy.unit()),
    };
    let (subscription, codec) = {
        let machine = telemetry.machine.lock();
        (machine.subscription().cloned(), machine.codec())
    };
    let source = telemetry.source.upgrade();
    let (Some(source), Some(subscription)) = (source, subscription) else {
        telemetry.machine.lock().end();
        return;
    };
    let collected = ledger.collect(
        source.snapshot(),
        &source.attributes(),
        &subscription,
        control.env().wall.now_ms(),
    );
    drop(source);
    let (codec, metrics) = compressed(codec, &collected);
    let request = PushTelemetryRequest::default()
        .with_client_instance_id(uuid::Uuid::from_bytes(subscription.client_instance_id.0))
        .with_subscription_id(subscription.id)
        .with_terminating(terminating)
        .with_compression_type(codec.id() as i8)
        .with_metrics(metrics.into());
    let answer: PushTelemetryResponse = match borrowed.request(request).await {
        Ok(answer) => answer,
        Err(error) => {
            // The broker may have the values: differences are not sent again.
            ledger.sent(collected);
            return failed(telemetry, error, control.env().entropy.unit());
        }
    };
    let code = ErrorCode(answer.error_code);
    if code.is_error() {
        tracing::debug!(%code, "client metrics refused");
    } else {
        ledger.sent(collected);
    }
    let now = Instant::now().into_std();
    telemetry.machine.lock().pushed(code, answer.throttle(), now);
}

impl Throttled for GetTelemetrySubscriptionsResponse {
    fn throttle(&self) -> Duration {
        millis(self.throttle_time_ms)
    }
}

impl Throttled for PushTelemetryResponse {
    fn throttle(&self) -> Duration {
        millis(self.throttle_time_ms)
    }
}

/// Compresses a payload, unless that makes it larger.
fn compressed(codec: Codec, collected: &Collected) -> (Codec, Vec<u8>) {
    let mut out = Vec::new();
    match Compression::from(codec).compress(&collected.payload, &mut out) {
        Ok(()) if out.len() < collected.payload.len() => (codec, out),
        _ => (Codec::None, collected.payload.clone()),
    }
}

fn failed(telemetry: &Telemetry, error: Error, unit: f64) {
    tracing::debug!(error = %error.report(), "no response to client metrics");
    *telemetry.problem.lock() = Some(error);
    telemetry.machine.lock().failed(Instant::now().into_std(), unit);
}

fn millis(ms: i32) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}
