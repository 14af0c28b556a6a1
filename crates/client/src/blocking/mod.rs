//! The same clients for plain threads.
//!
//! [`Producer`], [`TransactionalProducer`] and [`Consumer`] here are those of the crate's root, with the same settings, errors and guarantees, and
//! methods that block the calling thread instead of being awaited. Each client owns a runtime on a thread of its own,
//! which reads answers, keeps deadlines and fetches ahead while the application does something else.
//!
//! A blocking call inside an async context would keep the other tasks of its thread from running, for ever if one of
//! them is what it waits for. It is refused with [`Error::IllegalState`]. That goes for `spawn_blocking` too, because
//! tokio does not tell the two apart: use a plain thread, or the async client.
//!
//! ```no_run
//! use std::time::Duration;
//! use curtail::{ConsumerConfig, ProducerConfig, Record, TopicPartition, blocking};
//!
//! # fn main() -> curtail::Result<()> {
//! let producer = blocking::Producer::new(ProducerConfig::new("localhost:9092"))?;
//! let written = producer.send(Record::to("payments").key("account-7").value("42.00"))?.wait()?;
//! println!("partition {} offset {:?}", written.partition, written.offset);
//! producer.close()?;
//!
//! let mut consumer = blocking::Consumer::new(ConsumerConfig::new("localhost:9092"))?;
//! let partition = TopicPartition::new("payments", written.partition);
//! consumer.assign([partition.clone()]);
//! consumer.seek_to_beginning([&partition])?;
//! for record in consumer.poll(Duration::from_secs(1))? {
//!     println!("{} {:?}", record.offset(), record.value());
//! }
//! consumer.close()
//! # }
//! ```

mod consumer;
mod producer;
mod transaction;

use std::{sync::Arc, thread};

use tokio::{
    runtime::{Builder, EnterGuard, Handle},
    sync::oneshot,
};

pub use self::{
    consumer::{Consumer, Iter},
    producer::{Delivery, Producer},
    transaction::{Transaction, TransactionalProducer},
};
use crate::{Error, Result};

/// A runtime on a thread of its own; it ends with the last clone.
#[derive(Clone, Debug)]
struct Runtime {
    handle: Handle,
    /// Dropped, it ends the thread, and with the thread the tasks.
    _stop: Arc<oneshot::Sender<()>>,
}

impl Runtime {
    fn start() -> Result<Self> {
        refuse_in_async_context()?;
        let failed = |error: std::io::Error| Error::Thread { reason: error.to_string().into() };
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        thread::Builder::new()
            .name("curtail-blocking".into())
            .spawn(move || {
                // Nothing is ever sent: this ends when the sender goes.
                let _ = runtime.block_on(stopped);
            })
            .map_err(failed)?;
        Ok(Self { handle, _stop: Arc::new(stop) })
    }

    /// Runs a future on the calling thread; sockets and timers are driven on the runtime's own.
    fn block_on<T>(&self, future: impl Future<Output = T>) -> Result<T> {
        refuse_in_async_context()?;
        Ok(self.handle.block_on(future))
    }

    /// For calls that do not wait but may start tasks.
    fn enter(&self) -> EnterGuard<'_> {
        self.handle.enter()
    }
}

fn refuse_in_async_context() -> Result<()> {
    match Handle::try_current() {
        Err(_) => Ok(()),
        Ok(_) => Err(Error::IllegalState(
            "a blocking call inside an async context; use curtail::Producer or curtail::Consumer there, \
             or call from a plain thread",
        )),
    }
}
