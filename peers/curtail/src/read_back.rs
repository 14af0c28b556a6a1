//! Reads a load back, until every record has arrived once.

use std::sync::Arc;

use curtail::{Consumer, ConsumerRecord};
use tokio::sync::watch::{Receiver, channel};
use tokio::time::timeout;

use crate::Failure;
use crate::args::Args;
use crate::consume::QUIET_LIMIT;
use crate::open_loop::{Fates, slot_of};

/// Number of records read, or why reading has ended.
type Progress = Result<u64, String>;

/// A reading task. It ends with the runtime.
pub struct ReadBack(Receiver<Progress>);

impl ReadBack {
    /// Starts to read with a consumer that is positioned at the beginning of the load.
    pub fn start(args: &Args, mut consumer: Consumer, fates: Arc<Fates>) -> Self {
        let (tell, told) = channel(Ok(0));
        let warmup = args.warmup;
        tokio::spawn(async move {
            let mut read = 0;
            let mut progress = Ok(0);
            while progress.is_ok() {
                progress = match consumer.poll(QUIET_LIMIT).await {
                    Ok(records) => {
                        let taken = records.into_iter().try_for_each(|record| {
                            read += 1;
                            take(&record, warmup, &fates)
                        });
                        taken.map(|()| read)
                    }
                    Err(error) => Err(error.to_string()),
                };
                // The previous value is not needed.
                let _ = tell.send_replace(progress.clone());
            }
        });
        Self(told)
    }

    /// Waits until this number of records have been read, warm-up included.
    pub async fn wait(&self, records: u64) -> Result<(), Failure> {
        let mut told = self.0.clone();
        let all = |progress: &Progress| progress.as_ref().map_or(true, |read| *read >= records);
        let progress = timeout(QUIET_LIMIT, told.wait_for(all)).await;
        let progress = progress.map_err(|_| "records did not come back")?;
        progress?.clone()?;
        Ok(())
    }
}

fn take(record: &ConsumerRecord, warmup: u64, fates: &Fates) -> Result<(), String> {
    let (partition, offset) = (record.partition(), record.offset());
    let slot = record.value().and_then(|value| slot_of(value, warmup));
    match slot.filter(|slot| fates.awaits(*slot)) {
        Some(slot) => fates.acknowledged(slot, partition, offset),
        None => {
            let text = format!("partition {partition}, offset {offset}");
            return Err(format!("{text} came twice or is not of this load"));
        }
    }
    Ok(())
}
