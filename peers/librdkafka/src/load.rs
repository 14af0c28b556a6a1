//! Sends records open loop from a given start time and writes the outcome of each.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::Message as _;
use rdkafka::client::ClientContext;
use rdkafka::config::FromClientConfigAndContext as _;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext};

use crate::Failure;
use crate::args::{Args, Until};
use crate::e2e::{consumer_at_end, polled};
use crate::measure::Report;
use crate::open_loop::{self, Fates, Place};
use crate::properties::{self, Role};
use crate::read_back::ReadBack;

/// Longer than `delivery.timeout.ms`, which is five minutes here.
const DRAIN_LIMIT: Duration = Duration::from_secs(310);

struct Context {
    fates: Arc<Fates>,
    until: Until,
}

impl ClientContext for Context {}

impl ProducerContext for Context {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, slot: usize) {
        match (result, self.until) {
            (Ok(message), Until::Acknowledged) => {
                self.fates.acknowledged(slot, message.partition(), message.offset());
            }
            (Ok(_), Until::Read) => {}
            (Err((error, _)), _) => self.fates.failed(error),
        }
    }
}

pub fn run(args: &Args) -> Result<Report, Failure> {
    let mut config = properties::producer(&args.bootstrap);
    properties::apply(&mut config, &args.properties, Role::Producer, args.until == Until::Read)?;
    properties::settle_idempotence(&mut config);
    let fates = Arc::new(Fates::new(args.records));
    let producers = (0..args.producers).map(|_| {
        let context = Context { fates: Arc::clone(&fates), until: args.until };
        BaseProducer::from_config_and_context(&config, context).map(Arc::new)
    });
    let producers: Vec<Arc<BaseProducer<Context>>> = producers.collect::<Result<_, _>>()?;
    // The sender sleeps, so other threads must collect the reports.
    polled(&producers, || send(args, &producers, &fates))
}

fn send(
    args: &Args,
    producers: &[Arc<BaseProducer<Context>>],
    fates: &Arc<Fates>,
) -> Result<Report, Failure> {
    let reading = match args.until {
        Until::Acknowledged => None,
        Until::Read => {
            let consumer = consumer_at_end(args, &[])?;
            Some(ReadBack::start(args, consumer, Arc::clone(fates)))
        }
    };
    let sent = Cell::new(0);
    let send = |slot, place: Place, key: Option<&[u8]>, value: &[u8]| {
        let mut record: BaseRecord<'_, [u8], [u8], usize> =
            BaseRecord::with_opaque_to(&args.topic, slot).payload(value);
        record.key = key;
        record.partition = place.partition;
        sent.set(sent.get() + 1);
        enqueue(&producers[place.producer], record)
    };
    let drain = || {
        producers.iter().try_for_each(|producer| drain(producer))?;
        reading.as_ref().map_or(Ok(()), |reading| reading.wait(sent.get()))
    };
    let (client, version) = (properties::CLIENT, properties::version());
    open_loop::run(args, fates, client, version, send, drain)
}

/// Waits for room in librdkafka's queue when it is full.
fn enqueue(
    producer: &BaseProducer<Context>,
    mut record: BaseRecord<'_, [u8], [u8], usize>,
) -> Result<(), Failure> {
    loop {
        match producer.send(record) {
            Ok(()) => return Ok(()),
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), refused)) => {
                record = refused;
                producer.poll(Duration::from_millis(1));
            }
            Err((error, _)) => return Err(error.into()),
        }
    }
}

/// Waits until every record has its report.
fn drain(producer: &BaseProducer<Context>) -> Result<(), Failure> {
    let begun = Instant::now();
    while producer.in_flight_count() > 0 {
        if begun.elapsed() > DRAIN_LIMIT {
            return Err(format!("records without a report after {DRAIN_LIMIT:?}").into());
        }
        producer.poll(Duration::from_millis(1));
    }
    Ok(())
}
