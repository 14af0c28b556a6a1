//! What a program pays to await each delivery, without a client: `await_floor RECORDS`.
//!
//! The same task as in the driver (`AwaitEach`) awaits futures that stand for deliveries: 600 share a result, as the
//! records of a batch do, and another task sets the results in order. Prints CPU time per record.

#[path = "../src/await_each.rs"]
mod await_each;

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use await_each::AwaitEach;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

type Failure = Box<dyn std::error::Error>;

const RECORDS_PER_BATCH: usize = 600;
/// Batches whose result is not yet set.
const IN_FLIGHT: usize = 20;

#[derive(Default)]
struct Batch {
    result: OnceLock<u64>,
    waiting: Mutex<Vec<Waker>>,
}

impl Batch {
    fn waiting(&self) -> MutexGuard<'_, Vec<Waker>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self) {
        let _ = self.result.set(0);
        let waiting = std::mem::take(&mut *self.waiting());
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// Stands for a delivery: a reference to the batch and whether its waker is kept.
struct Awaited {
    batch: Arc<Batch>,
    is_kept: bool,
}

impl Future for Awaited {
    type Output = u64;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<u64> {
        if let Some(result) = self.batch.result.get() {
            return Poll::Ready(*result);
        }
        let mut waiting = self.batch.waiting();
        if let Some(result) = self.batch.result.get() {
            return Poll::Ready(*result);
        }
        if !self.is_kept {
            waiting.push(context.waker().clone());
        }
        drop(waiting);
        self.is_kept = true;
        Poll::Pending
    }
}

/// Sets the results in order, each once [`IN_FLIGHT`] batches are behind it.
async fn set_in_order(mut sent: UnboundedReceiver<Arc<Batch>>) {
    let mut in_flight = VecDeque::new();
    while let Some(batch) = sent.recv().await {
        in_flight.push_back(batch);
        if in_flight.len() > IN_FLIGHT {
            in_flight.pop_front().iter().for_each(|batch: &Arc<Batch>| batch.set());
        }
    }
    in_flight.iter().for_each(|batch| batch.set());
}

fn cpu() -> Result<Duration, Failure> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let us = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(Duration::from_micros(us.unsigned_abs()))
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let records: usize = std::env::args().nth(1).ok_or("usage: await_floor RECORDS")?.parse()?;
    let done = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&done);
    let awaiting = AwaitEach::start(&Handle::current(), move |_: usize, _| {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let (sender, receiver) = unbounded_channel();
    let setting = tokio::spawn(set_in_order(receiver));
    let begun = cpu()?;
    let mut batch = Arc::new(Batch::default());
    for index in 0..records {
        if index > 0 && index % RECORDS_PER_BATCH == 0 {
            sender.send(std::mem::take(&mut batch))?;
            // The window: as many records wait as a producer would have in flight.
            let most = (IN_FLIGHT + 4) * RECORDS_PER_BATCH;
            while index - done.load(Ordering::Relaxed) > most {
                tokio::task::yield_now().await;
            }
        }
        awaiting.push(index, Awaited { batch: Arc::clone(&batch), is_kept: false });
    }
    sender.send(batch)?;
    drop(sender);
    setting.await?;
    awaiting.finish().await?;
    let used = cpu()? - begun;
    println!("{:.3} us of CPU time per record", used.as_secs_f64() * 1e6 / records as f64);
    Ok(())
}
