//! The same clients for plain threads.
//!
//! [`Producer`], [`TransactionalProducer`], [`Consumer`] and `Admin` match those of the crate's root in settings, errors and
//! guarantees. Their methods block the calling thread. Each client has its own runtime on a separate thread. Between
//! calls that thread reads responses, keeps deadlines and fetches ahead. With `curtail.io.thread` the process's I/O thread
//! does so for all clients.
//!
//! A blocking call inside an async context would stop the other tasks of its thread, indefinitely if it waits for one
//! of them. It fails with [`Error::IllegalState`]. This includes `spawn_blocking`, which tokio cannot distinguish:
//! use a plain thread, or the async client.
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

#[cfg(feature = "admin")]
mod admin;
mod completions;
mod consumer;
mod producer;
mod transaction;

use std::{
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Waker},
};

use tokio::{
    runtime::{EnterGuard, Handle},
    sync::oneshot,
};

#[cfg(feature = "admin")]
pub use self::admin::Admin;
pub use self::{
    completions::Completions,
    consumer::{Consumer, Iter},
    producer::{Delivery, Producer},
    transaction::{Transaction, TransactionalProducer},
};
use crate::{Error, Result};

/// A runtime on a separate thread; it ends with the last clone.
#[derive(Clone, Debug)]
struct Runtime {
    handle: Handle,
    /// Dropping it ends the thread and its tasks.
    _stop: Arc<oneshot::Sender<()>>,
}

impl Runtime {
    fn start() -> Result<Self> {
        refuse_in_async_context()?;
        let (stop, stopped) = oneshot::channel::<()>();
        // Nothing is ever sent: the wait ends when the sender is dropped.
        let until = async { drop(stopped.await) };
        let handle = crate::runtime::start_thread("curtail-blocking", until)?;
        Ok(Self { handle, _stop: Arc::new(stop) })
    }

    /// Runs a future on the calling thread. The runtime's thread drives sockets and timers.
    fn block_on<T>(&self, future: impl Future<Output = T>) -> Result<T> {
        refuse_in_async_context()?;
        // The future is dropped inside, too.
        let _entered = self.enter();
        // `dyn`: one copy of tokio's wait for each type of result, not for each call.
        let mut future = pin!(future);
        Ok(self.handle.block_on(future.as_mut() as Pin<&mut dyn Future<Output = T>>))
    }

    /// Completes a send. Most complete at the first poll, without a wait.
    fn complete<T>(&self, send: impl Future<Output = Result<T>>) -> Result<T> {
        refuse_in_async_context()?;
        let mut send = pin!(send);
        let first = {
            let _entered = self.enter();
            send.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        };
        match first {
            Poll::Ready(sent) => sent,
            Poll::Pending => self.block_on(send)?,
        }
    }

    /// Enters the runtime, for calls that do not wait but may start tasks.
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
