//! Sends records open loop from a given start time, reads them back if asked to, and writes the outcome of each.

use std::cell::Cell;
use std::sync::Arc;

use confluent_kafka::consumer::Consumer as _;
use confluent_kafka::producer::{Producer as _, ProducerRecord, callback};
use tokio::runtime::Runtime;

use crate::Failure;
use crate::args::Args;
use crate::consume::QUIET_LIMIT;
use crate::measure::Report;
use crate::open_loop::{self, Fates, Place};
use crate::read_back::{ReadBack, Reader};
use crate::settings::{self, Consumer, Producer};

pub fn run(args: &Args, runtime: &Runtime) -> Result<Report, Failure> {
    let context = runtime.enter();
    let fates = Arc::new(Fates::new(args.records));
    let consumer = settings::consumer_at_end(args, &[]);
    let read_back = ReadBack::start(args, runtime, consumer, &fates)?;
    let producers = (0..args.producers).map(|_| settings::producer(args, &[]));
    let producers: Vec<_> = producers.collect::<Result<_, _>>()?;
    drop(context);
    let is_end = read_back.is_none();
    let sent = Cell::new(0);
    let send = |slot, place: Place, key: Option<&[u8]>, value: &[u8]| {
        let fates = Arc::clone(&fates);
        let done = callback::new(move |metadata, error| match (metadata, error) {
            (_, Some(error)) => fates.failed(error),
            (Some(metadata), None) if is_end => {
                fates.acknowledged(slot, metadata.partition(), metadata.offset());
            }
            (_, None) => {}
        });
        let (topic, partition) = (args.topic.clone(), place.partition);
        let record = ProducerRecord::with_partition_key(topic, partition, key, Some(value))?;
        let producer = &producers[place.producer];
        runtime.block_on(Producer::send(producer, record, Some(Box::new(done))))?;
        sent.set(sent.get() + 1);
        Ok(())
    };
    let drain = || {
        for producer in &producers {
            runtime.block_on(producer.flush())?;
        }
        match &read_back {
            Some(read_back) => runtime.block_on(read_back.wait(sent.get())),
            None => Ok(()),
        }
    };
    let (client, version) = (settings::CLIENT, settings::version());
    let report = open_loop::run(args, &fates, client, version, send, drain);
    for producer in &producers {
        runtime.block_on(producer.close())?;
    }
    report
}

impl Reader for Consumer {
    async fn read(&mut self, fates: &Fates, warmup: u64) -> Result<u64, String> {
        let records = self.poll(QUIET_LIMIT).await.map_err(|error| error.to_string())?;
        let mut read = 0;
        for record in &records {
            let value = record.value().map(Vec::as_slice);
            fates.returned(value, warmup, record.partition(), record.offset())?;
            read += 1;
        }
        Ok(read)
    }
}
