//! Appends the staged records of one transaction, in the order of the sends.
//!
//! # Invariants
//! - Only a call that borrows the open transaction appends: no record joins a later one.
//! - After a record was refused, later ones are refused too, and the commit fails: a program need not await its sends.

use std::{convert::Infallible, future::pending, mem, sync::Arc};

use curtail::{Error, Result, transaction::Transaction};

use crate::stage::{Arena, Item, Stage};

/// Records between pauses for the runtime's other tasks.
const TURN: usize = 512;

/// The records of a transaction that are not appended yet.
pub(super) struct Feed {
    stage: Arc<Stage>,
    arena: Option<Arena>,
    /// Index of the next item of the arena.
    next: usize,
    spare: Arena,
    refused: Option<Error>,
    has_records: bool,
}

impl Feed {
    pub(super) fn new(stage: Arc<Stage>) -> Self {
        let (arena, spare) = (None, Arena::default());
        Self { stage, arena, next: 0, spare, refused: None, has_records: false }
    }

    /// Whether a record was appended.
    pub(super) fn has_records(&self) -> bool {
        self.has_records
    }

    /// Appends records as they are staged. Cancel safe.
    pub(super) async fn run(&mut self, transaction: &Transaction<'_>) -> Infallible {
        while self.step(transaction).await {}
        pending().await
    }

    /// Appends the records of a closed stage. Fails if any record was refused. Cancel safe.
    pub(super) async fn drain(&mut self, transaction: &Transaction<'_>) -> Result<()> {
        while self.step(transaction).await {}
        self.refused.clone().map_or(Ok(()), Err)
    }

    /// Makes one step. `false` once the stage is closed and empty. Cancel safe: the next call repeats the step.
    async fn step(&mut self, transaction: &Transaction<'_>) -> bool {
        let Some(arena) = &self.arena else {
            let taken = self.stage.take(mem::take(&mut self.spare)).await;
            (self.arena, self.next) = (taken, 0);
            return self.arena.is_some();
        };
        let Some(item) = arena.items.get(self.next) else {
            self.spare = self.arena.take().map(Arena::cleared).unwrap_or_default();
            return true;
        };
        if let Item::Record(entry) = item {
            let headers = arena.headers(entry);
            let record = arena.record(entry, &headers);
            let outlet = arena.outlet(entry);
            let sent = match &self.refused {
                Some(error) => Err(error.clone()),
                None => transaction.send_tagged(record, entry.tag, &outlet.sink).await,
            };
            match sent {
                Ok(()) => self.has_records = true,
                Err(error) => {
                    self.refused.get_or_insert_with(|| abortable(&error));
                    outlet.fail(entry.tag, error);
                }
            }
            self.stage.release(entry.size);
        }
        self.next += 1;
        if self.next.is_multiple_of(TURN) {
            tokio::task::yield_now().await;
        }
        true
    }

    /// Fails the records from an index on.
    fn fail(&self, arena: &Arena, from: usize) {
        for item in &arena.items[from.min(arena.items.len())..] {
            if let Item::Record(entry) = item {
                arena.outlet(entry).fail(entry.tag, Error::TransactionAborted);
                self.stage.release(entry.size);
            }
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.stage.close();
        if let Some(arena) = self.arena.take() {
            self.fail(&arena, self.next);
        }
        self.fail(&self.stage.take_rest(), 0);
    }
}

/// The error of a transaction that lacks a record.
fn abortable(error: &Error) -> Error {
    match error {
        Error::TransactionAbortable { .. } | Error::TransactionFatal { .. } => error.clone(),
        cause => Error::TransactionAbortable { cause: Arc::new(cause.clone()) },
    }
}
