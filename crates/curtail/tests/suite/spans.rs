//! Spans of the feature `tracing`, as a subscriber receives them.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use curtail::{
    Consumer, ConsumerConfig, ConsumerRecord, Producer, ProducerConfig, Record,
    TransactionalProducer,
    trace::{InjectTraceContext, TARGET, TraceContext},
};
use tracing::{
    Dispatch, Instrument, Subscriber,
    field::{Field, Visit},
    info_span,
    span::{Attributes, Id, Record as Recorded},
    subscriber::DefaultGuard,
};
use tracing_subscriber::{Layer, layer::Context, layer::SubscriberExt, registry::LookupSpan};

use crate::common::Backend;

/// A span of the client.
#[derive(Clone, Debug, Default)]
struct Seen {
    name: &'static str,
    parent: Option<String>,
    fields: BTreeMap<&'static str, String>,
    is_closed: bool,
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }
}

/// Collects the client's spans.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Seen>>>);

impl Collector {
    fn all(&self) -> Vec<Seen> {
        self.0.lock().unwrap().clone()
    }

    /// The spans with this name in OpenTelemetry.
    fn named(&self, name: &str) -> Vec<Seen> {
        let is =
            |seen: &Seen| seen.fields.get("otel.name").map_or(seen.name, String::as_str) == name;
        self.all().into_iter().filter(is).collect()
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Collector {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        if span.metadata().target() != TARGET {
            return;
        }
        let parent = span.parent().map(|parent| parent.name().to_owned());
        let mut seen = Seen { name: span.name(), parent, ..Seen::default() };
        attributes.record(&mut seen);
        let mut all = self.0.lock().unwrap();
        // The ids of closed spans are used again.
        span.extensions_mut().insert(all.len());
        all.push(seen);
    }

    fn on_record(&self, id: &Id, values: &Recorded<'_>, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        if let Some(place) = span.extensions().get::<usize>() {
            values.record(&mut self.0.lock().unwrap()[*place]);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let span = context.span(&id).unwrap();
        if let Some(place) = span.extensions().get::<usize>() {
            self.0.lock().unwrap()[*place].is_closed = true;
        }
    }
}

/// Collects the spans of this thread.
///
/// While a process has at most one subscriber, `tracing` caches for each span whether the current thread wants it. A thread
/// without a subscriber, such as another test's, would switch a span off for all. Two more subscribers prevent that.
fn collect_in(collector: &Collector) -> DefaultGuard {
    static ENOUGH: OnceLock<[Dispatch; 2]> = OnceLock::new();
    let empty = || Dispatch::new(tracing_subscriber::registry());
    ENOUGH.get_or_init(|| [empty(), empty()]);
    let subscriber = tracing_subscriber::registry().with(collector.clone());
    tracing::subscriber::set_default(subscriber)
}

fn has(seen: &Seen, expected: &[(&str, &str)]) {
    for (name, value) in expected {
        assert_eq!(seen.fields.get(name).map(String::as_str), Some(*value), "{name} of {seen:?}");
    }
}

fn context() -> TraceContext {
    let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    TraceContext::parse(text).unwrap().state("vendor=1")
}

async fn first_record(consumer: &mut Consumer) -> ConsumerRecord {
    loop {
        let records = consumer.poll(Duration::from_secs(1)).await.unwrap();
        if let Some(record) = records.into_iter().next() {
            return record;
        }
    }
}

#[tokio::test]
async fn calls_and_requests_are_spans_and_records_carry_the_trace_context() {
    let collector = Collector::default();
    let _collecting = collect_in(&collector);
    let backend = Backend::embedded(1).await;
    backend.create_topic("spans", 1, 1).await;

    let config =
        ProducerConfig::new(backend.bootstrap()).interceptor(InjectTraceContext::new(|| {
            let within = tracing::Span::current().metadata().map(tracing::Metadata::name);
            (within == Some("send")).then(context)
        }));
    let producer = Producer::new(config).unwrap();
    let sending = async { producer.send(Record::to("spans").value("v")).await.unwrap().await };
    sending.instrument(info_span!("application")).await.unwrap();
    let delivery = producer.try_send(Record::to("spans").value("w")).unwrap();
    delivery.await.unwrap();
    let large = "x".repeat(2 << 20);
    producer.send(Record::to("spans").value(&large)).await.unwrap_err();
    producer.close().await.unwrap();

    let sends = collector.named("send spans");
    assert_eq!(sends.len(), 3);
    assert!(sends.iter().all(|send| send.is_closed));
    assert_eq!(sends[0].parent.as_deref(), Some("application"));
    for (send, offset) in sends.iter().zip(["0", "1"]) {
        has(
            send,
            &[
                ("otel.kind", "producer"),
                ("messaging.system", "kafka"),
                ("messaging.operation.name", "send"),
                ("messaging.operation.type", "send"),
                ("messaging.client.id", "curtail"),
                ("messaging.destination.name", "spans"),
                ("messaging.destination.partition.id", "0"),
                ("messaging.kafka.offset", offset),
            ],
        );
    }
    has(&sends[2], &[("error.type", "record_too_large"), ("otel.status_code", "ERROR")]);
    let produced = collector.named("Produce");
    has(
        &produced[0],
        &[
            ("otel.kind", "client"),
            ("messaging.batch.message_count", "1"),
            ("server.address", "127.0.0.1"),
        ],
    );
    assert!(produced.iter().all(|request| request.parent.is_none() && request.is_closed));

    let config = ConsumerConfig::new(backend.bootstrap())
        .group_id("spanned")
        .auto_offset_reset(curtail::config::OffsetReset::Earliest);
    let mut consumer = Consumer::new(config).unwrap();
    consumer.subscribe(["spans"]).unwrap();
    let record = first_record(&mut consumer).await;
    assert_eq!(TraceContext::of(&record), Some(context()));
    async { consumer.commit().await }.instrument(info_span!("application")).await.unwrap();
    consumer.close().await;

    let polls = collector.named("poll");
    let group = ("messaging.consumer.group.name", "spanned");
    let full = polls
        .iter()
        .find(|p| p.fields.get("messaging.batch.message_count").is_some_and(|n| n != "0"));
    has(full.unwrap(), &[("messaging.operation.type", "receive"), group]);
    let rebalances = collector.named("rebalance");
    assert_eq!(rebalances.len(), 1, "{rebalances:?}");
    assert!(rebalances[0].is_closed && !rebalances[0].fields.contains_key("error.type"));
    has(&rebalances[0], &[group]);
    let commits = collector.named("commit");
    assert_eq!(commits[0].parent.as_deref(), Some("application"));
    assert!(commits.iter().all(|commit| commit.is_closed));
    has(&commits[0], &[("messaging.operation.type", "settle"), ("partitions", "1"), group]);
    assert_eq!(collector.named("OffsetCommit")[0].parent.as_deref(), Some("commit"));
    assert!(!collector.named("Fetch").is_empty() && !collector.named("JoinGroup").is_empty());
}

#[tokio::test]
async fn a_transaction_is_a_span_until_its_end() {
    let collector = Collector::default();
    let _collecting = collect_in(&collector);
    let backend = Backend::embedded(1).await;
    backend.create_topic("spans", 1, 1).await;
    let config = ProducerConfig::new(backend.bootstrap()).transactional_id("spanned");
    let mut producer = TransactionalProducer::new(config).unwrap();
    producer.init_transactions().await.unwrap();
    let transaction = producer.begin_transaction().await.unwrap();
    transaction.send(Record::to("spans").value("v")).await.unwrap().await.unwrap();
    let open = collector.named("transaction");
    assert!(open.len() == 1 && !open[0].is_closed, "{open:?}");
    transaction.commit().await.unwrap();
    let ended = collector.named("transaction");
    assert!(ended.len() == 1 && ended[0].is_closed, "{ended:?}");
    has(&ended[0], &[("transactional.id", "spanned")]);
    producer.close().await.unwrap();
}
