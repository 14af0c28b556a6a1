//! Spans of a producer and a consumer, as a collector receives them: one trace from the send to the processing.
//!
//! A program would use the crates `tracing-opentelemetry` and `opentelemetry-otlp` in place of [`Collector`].
#![allow(clippy::print_stdout)]

use std::{
    error::Error,
    fmt,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use curtail::{
    Consumer, ConsumerConfig, Producer, ProducerConfig, Record,
    config::OffsetReset,
    trace::{InjectTraceContext, TARGET, TraceContext},
};
use curtail_examples::Brokers;
use tracing::{
    Instrument, Span, Subscriber,
    field::{Field, Visit},
    info_span,
    span::{Attributes, Id, Record as Recorded},
};
use tracing_subscriber::{
    Layer, Registry,
    layer::{Context, SubscriberExt},
    registry::LookupSpan,
    util::SubscriberInitExt,
};

/// Prints each span of the client and of this program when it ends.
struct Collector;

/// The program's own spans.
const OWN: &str = "shop";

/// A span's place in its trace, and its fields.
struct Seen {
    begun: Instant,
    context: TraceContext,
    fields: String,
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // The context of another process makes this span a part of its trace.
        if field.name() == "traceparent" {
            let sender = TraceContext::parse(&format!("{value:?}"));
            self.context =
                sender.and_then(|sender| child_of(&sender)).unwrap_or(self.context.clone());
        } else {
            self.fields += &format!(" {}={value:?}", field.name());
        }
    }
}

/// A random number would be an id, too.
fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn child_of(parent: &TraceContext) -> Option<TraceContext> {
    TraceContext::new(parent.trace_id(), next_id().to_be_bytes(), parent.flags())
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Collector {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if ![TARGET, OWN].contains(&span.metadata().target()) {
            return;
        }
        let parent = span
            .parent()
            .and_then(|parent| parent.extensions().get::<Seen>().map(|seen| seen.context.clone()));
        let context = match &parent {
            Some(parent) => child_of(parent),
            None => {
                TraceContext::new(u128::from(next_id()).to_be_bytes(), next_id().to_be_bytes(), 1)
            }
        };
        let Some(context) = context else { return };
        let mut seen = Seen { begun: Instant::now(), context, fields: String::new() };
        attributes.record(&mut seen);
        span.extensions_mut().insert(seen);
    }

    fn on_record(&self, id: &Id, values: &Recorded<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(seen) = span.extensions_mut().get_mut::<Seen>() {
            values.record(seen);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        if let Some(Seen { begun, context, fields }) = span.extensions().get::<Seen>() {
            println!("{} {context} {:?}{fields}", span.name(), begun.elapsed());
        }
    }
}

/// The trace context of the current span, as the collector knows it.
fn current() -> Option<TraceContext> {
    let of = |(id, subscriber): (&Id, &tracing::Dispatch)| {
        let span = subscriber.downcast_ref::<Registry>()?.span(id)?;
        let context = span.extensions().get::<Seen>()?.context.clone();
        Some(context)
    };
    Span::current().with_subscriber(of).flatten()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::registry().with(Collector).init();
    let brokers = Brokers::of_this_program().await?;

    let config =
        ProducerConfig::new(brokers.bootstrap()).interceptor(InjectTraceContext::new(current));
    let producer = Producer::new(config)?;
    let order = info_span!(target: OWN, "order", customer = 7);
    let placed = async {
        let delivery = producer.send(Record::to("orders").key("7").value("three chairs")).await?;
        delivery.await?;
        Ok::<_, curtail::Error>(current())
    };
    let placed = placed.instrument(order).await?;
    producer.close().await?;

    let config = ConsumerConfig::new(brokers.bootstrap())
        .group_id("shipping")
        .auto_offset_reset(OffsetReset::Earliest);
    let mut consumer = Consumer::new(config)?;
    consumer.subscribe(["orders"])?;
    let record = loop {
        if let Some(record) = consumer.poll(Duration::from_secs(1)).await?.into_iter().next() {
            break record;
        }
    };
    let sender = TraceContext::of(&record);
    let process = info_span!(
        target: OWN,
        "process",
        otel.kind = "consumer",
        messaging.operation.name = "process",
        traceparent = sender.as_ref().map(tracing::field::display),
    );
    let processed = process.in_scope(current);
    drop(process);
    consumer.commit().await?;
    consumer.close().await;

    let trace = |context: Option<TraceContext>| context.map(|context| context.trace_id());
    let (placed, processed) = (trace(placed), trace(processed));
    println!("one trace: {}", placed.is_some() && placed == processed);
    Ok(())
}
