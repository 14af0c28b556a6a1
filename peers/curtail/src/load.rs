//! Sends records open loop from a given start time and writes the outcome of each.

use std::cell::RefCell;
use std::sync::Arc;

use curtail::{Consumer, Error, Record, RecordMetadata};
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
    let context = runtime.enter();
    let fates = Arc::new(Fates::new(args.records));
    let consumer = settings::consumer_at_end(args, &[]);
    let read_back = ReadBack::start(args, runtime, consumer, &fates)?;
    let producers = (0..args.producers).map(|_| settings::producer(args, &[]));
    let producers: Vec<_> = producers.collect::<Result<_, _>>()?;
    drop(context);
    let told = {
        let (fates, is_end) = (Arc::clone(&fates), read_back.is_none());
        move |slot, outcome: Result<RecordMetadata, Error>| match outcome {
            Ok(written) if is_end => {
                fates.acknowledged(slot, written.partition, written.offset.unwrap_or(-1));
            }
            Ok(_) => {}
            Err(error) => fates.failed(error),
        }
    };
    let start = || AwaitEach::start(runtime.handle(), told.clone());
    let awaiting = RefCell::new((start(), 0));
    let send = |slot, place: Place, key: Option<&[u8]>, value: &[u8]| {
        let mut record = Record::to(&args.topic).value(value);
        if let Some(key) = key {
            record = record.key(key);
        }
        if let Some(partition) = place.partition {
            record = record.partition(partition);
        }
        let delivery = runtime.block_on(producers[place.producer].send(record))?;
        let (awaiting, sent) = &mut *awaiting.borrow_mut();
        awaiting.push(slot, delivery);
        *sent += 1;
        Ok(())
    };
    let drain = || {
        let (awaiting, sent) = &mut *awaiting.borrow_mut();
        runtime.block_on(std::mem::replace(awaiting, start()).finish())?;
        match &read_back {
            Some(read_back) => runtime.block_on(read_back.wait(*sent)),
            None => Ok(()),
        }
    };
    let (client, version) = (settings::CLIENT, settings::version());
    let report = open_loop::run(args, &fates, client, version, send, drain);
    for producer in producers {
        runtime.block_on(producer.close())?;
    }
    report
}

impl Reader for Consumer {
    async fn read(&mut self, fates: &Fates, warmup: u64) -> Result<u64, String> {
        let records = self.poll(QUIET_LIMIT).await.map_err(|error| error.report().to_string())?;
        let mut read = 0;
        for record in &records {
            fates.returned(record.value(), warmup, record.partition(), record.offset())?;
            read += 1;
        }
        Ok(read)
    }
}
