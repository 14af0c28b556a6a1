//! Sends records open loop from a given start time and writes the outcome of each.

use std::sync::Arc;

use confluent_kafka::producer::{Producer as _, ProducerRecord, callback};
use tokio::runtime::Runtime;

use crate::Failure;
use crate::args::{Args, Until};
use crate::measure::Report;
use crate::open_loop::{self, Fates};
use crate::settings::{self, Producer};

pub fn run(args: &Args, runtime: &Runtime) -> Result<Report, Failure> {
    if args.until == Until::Read {
        return Err("this driver's load ends a latency with the acknowledgement only".into());
    }
    let context = runtime.enter();
    let producer = settings::producer(args, &[])?;
    drop(context);
    let fates = Arc::new(Fates::new(args.records));
    let send = |slot, key: Option<&[u8]>, value: &[u8]| {
        let fates = Arc::clone(&fates);
        let done = callback::new(move |metadata, error| match (metadata, error) {
            (_, Some(error)) => fates.failed(error),
            (Some(metadata), None) => {
                fates.acknowledged(slot, metadata.partition(), metadata.offset())
            }
            (None, None) => {}
        });
        let record = ProducerRecord::with_key(args.topic.clone(), key, Some(value));
        runtime.block_on(Producer::send(&producer, record, Some(Box::new(done))))?;
        Ok(())
    };
    let drain = || Ok(runtime.block_on(producer.flush())?);
    let (client, version) = (settings::CLIENT, settings::version());
    let report = open_loop::run(args, &fates, client, version, send, drain);
    runtime.block_on(producer.close())?;
    report
}
