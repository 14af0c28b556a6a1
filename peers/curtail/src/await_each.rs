//! A task that awaits each delivery on its own.

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

use crate::Failure;

/// Sends deliveries to the task. The outcome is reported with the record's `T`.
pub struct AwaitEach<T, D> {
    hand: UnboundedSender<(T, D)>,
    task: JoinHandle<()>,
}

impl<T, D> AwaitEach<T, D>
where
    T: Send + 'static,
    D: Future<Output: Send> + Send + 'static,
{
    pub fn start(runtime: &Handle, told: impl FnMut(T, D::Output) + Send + 'static) -> Self {
        let (hand, handed) = unbounded_channel();
        Self { hand, task: runtime.spawn(await_all(handed, told)) }
    }

    pub fn push(&self, record: T, delivery: D) {
        // The task ends only after this sender.
        let _ = self.hand.send((record, delivery));
    }

    /// Waits for the last outcome.
    pub async fn finish(self) -> Result<(), Failure> {
        drop(self.hand);
        Ok(self.task.await?)
    }
}

async fn await_all<T, D: Future>(
    mut handed: UnboundedReceiver<(T, D)>,
    mut told: impl FnMut(T, D::Output),
) {
    let mut waiting = FuturesUnordered::new();
    let mut is_open = true;
    while is_open || !waiting.is_empty() {
        tokio::select! {
            next = handed.recv(), if is_open => match next {
                Some((record, delivery)) => waiting.push(async { (record, delivery.await) }),
                None => is_open = false,
            },
            Some((record, outcome)) = waiting.next() => told(record, outcome),
        }
    }
}
