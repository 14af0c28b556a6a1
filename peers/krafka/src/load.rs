//! Sends records open loop from a given start time, reads them back if asked to, and writes the outcome of each.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use krafka::consumer::Consumer;
use krafka::producer::RecordMetadata;
use tokio::runtime::Runtime;

use crate::Failure;
use crate::args::Args;
use crate::await_each::AwaitEach;
use crate::consume::QUIET_LIMIT;
use crate::measure::Report;
use crate::open_loop::{self, Fates, Place};
use crate::read_back::{ReadBack, Reader};
use crate::settings;

pub fn run(args: &Args, runtime: &Runtime) -> Result<Report, Failure> {
    let kafka = runtime.block_on(settings::connect(args))?;
    let fates = Arc::new(Fates::new(args.records));
    let consumer = settings::consumer_at_end(args, &kafka);
    let read_back = ReadBack::start(args, runtime, consumer, &fates)?;
    let producers = (0..args.producers)
        .map(|_| runtime.block_on(settings::producer(args, &kafka).build()))
        .collect::<Result<Vec<_>, _>>()?;
    let told = {
        let (fates, is_end) = (Arc::clone(&fates), read_back.is_none());
        move |slot, outcome: krafka::Result<RecordMetadata>| match outcome {
            Ok(written) if is_end => {
                fates.acknowledged(slot, written.partition, written.offset);
            }
            Ok(_) => {}
            Err(error) => fates.failed(error),
        }
    };
    let start = || AwaitEach::start(runtime.handle(), told.clone());
    let (awaiting, sent) = (RefCell::new(start()), Cell::new(0));
    let send = |slot, place: Place, key: Option<&[u8]>, value: &[u8]| {
        let mut record = settings::record(args, key, value);
        record.partition = place.partition;
        let delivery = runtime.block_on(producers[place.producer].enqueue(record))?;
        awaiting.borrow().push(slot, delivery);
        sent.set(sent.get() + 1);
        Ok(())
    };
    let drain = || {
        runtime.block_on(awaiting.replace(start()).finish())?;
        match &read_back {
            Some(read_back) => runtime.block_on(read_back.wait(sent.get())),
            None => Ok(()),
        }
    };
    let (client, version) = (settings::CLIENT, settings::VERSION.into());
    let report = open_loop::run(args, &fates, client, version, send, drain);
    for producer in &producers {
        runtime.block_on(producer.close())?;
    }
    report
}

impl Reader for Consumer {
    async fn read(&mut self, fates: &Fates, warmup: u64) -> Result<u64, String> {
        let records = self.poll(QUIET_LIMIT).await.map_err(|error| error.to_string())?;
        for record in &records {
            fates.returned(record.value.as_deref(), warmup, record.partition, record.offset)?;
        }
        Ok(records.len() as u64)
    }
}
