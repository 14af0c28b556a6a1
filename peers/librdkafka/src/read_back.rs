//! Reads a load back, until every record has arrived once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rdkafka::Message as _;
use rdkafka::consumer::BaseConsumer;

use crate::Failure;
use crate::args::Args;
use crate::consume::QUIET_LIMIT;
use crate::open_loop::Fates;

const POLL: Duration = Duration::from_millis(100);
const LOOK: Duration = Duration::from_millis(1);

/// State that the reading thread shares.
#[derive(Default)]
struct State {
    stop: AtomicBool,
    read: AtomicU64,
    failure: Mutex<Option<String>>,
}

/// A reading thread.
pub struct ReadBack {
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

impl ReadBack {
    /// Starts to read with a consumer that is positioned at the beginning of the load.
    pub fn start(args: &Args, consumer: BaseConsumer, fates: Arc<Fates>) -> Self {
        let state = Arc::new(State::default());
        let (shared, warmup) = (Arc::clone(&state), args.warmup);
        let thread = std::thread::spawn(move || {
            while !shared.stop.load(Ordering::Relaxed) {
                let taken = match consumer.poll(POLL) {
                    Some(Ok(message)) => {
                        let (partition, offset) = (message.partition(), message.offset());
                        fates.returned(message.payload(), warmup, partition, offset)
                    }
                    Some(Err(error)) => Err(error.to_string()),
                    None => continue,
                };
                if let Err(error) = taken {
                    let mut failure = shared.failure.lock().unwrap_or_else(PoisonError::into_inner);
                    failure.get_or_insert(error);
                    return;
                }
                shared.read.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self { state, thread: Some(thread) }
    }

    /// Waits until this number of records have been read, warm-up included.
    pub fn wait(&self, records: u64) -> Result<(), Failure> {
        let (mut begun, mut seen) = (Instant::now(), 0);
        loop {
            let failure = self.state.failure.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(failure) = &*failure {
                return Err(failure.clone().into());
            }
            drop(failure);
            let read = self.state.read.load(Ordering::Relaxed);
            if read >= records {
                return Ok(());
            }
            if read > seen {
                (begun, seen) = (Instant::now(), read);
            }
            if begun.elapsed() > QUIET_LIMIT {
                return Err(format!("{} records did not come back", records - read).into());
            }
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for ReadBack {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The thread reports its errors itself and cannot panic otherwise.
            let _ = thread.join();
        }
    }
}
