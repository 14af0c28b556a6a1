//! Reads a load back, until every record has arrived once.

use std::sync::Arc;

use tokio::runtime::Runtime;
use tokio::sync::watch::{Receiver, channel};
use tokio::time::timeout;

use crate::Failure;
use crate::args::{Args, Until};
use crate::consume::QUIET_LIMIT;
use crate::open_loop::Fates;

/// A consumer that is positioned at the beginning of the load.
pub trait Reader: Send + 'static {
    /// Waits for the next records, gives them their fates, and returns how many there were.
    fn read(
        &mut self,
        fates: &Fates,
        warmup: u64,
    ) -> impl Future<Output = Result<u64, String>> + Send;
}

/// A reading task. It ends with the runtime.
pub struct ReadBack(Receiver<Result<u64, String>>);

impl ReadBack {
    /// Starts to read, if latencies end with the poll that returned the record.
    pub fn start(
        args: &Args,
        runtime: &Runtime,
        reader: impl Future<Output = Result<impl Reader, Failure>>,
        fates: &Arc<Fates>,
    ) -> Result<Option<Self>, Failure> {
        if args.until == Until::Acknowledged {
            return Ok(None);
        }
        let mut reader = runtime.block_on(reader)?;
        let (fates, warmup) = (Arc::clone(fates), args.warmup);
        let (tell, told) = channel(Ok(0));
        runtime.spawn(async move {
            let mut progress = Ok(0);
            while let Ok(read) = progress {
                progress = reader.read(&fates, warmup).await.map(|more| read + more);
                // The previous value is not needed.
                let _ = tell.send_replace(progress.clone());
            }
        });
        Ok(Some(Self(told)))
    }

    /// Waits until this number of records have been read, warm-up included.
    pub async fn wait(&self, records: u64) -> Result<(), Failure> {
        let mut told = self.0.clone();
        let all = |progress: &Result<u64, String>| {
            progress.as_ref().map_or(true, |read| *read >= records)
        };
        let progress = timeout(QUIET_LIMIT, told.wait_for(all)).await;
        let progress = progress.map_err(|_| "records did not come back")?;
        progress?.clone()?;
        Ok(())
    }
}
