//! Receivers of a record's outcome: the holder of its [`Delivery`], or a [`CompletionSink`] by the record's tag.

use std::sync::Arc;

use super::{
    completions::CompletionSink,
    delivery::{Completion, Delivery, Placement},
};

/// A way to receive a record's outcome. The append path is compiled for each.
pub(super) trait Claim: Copy {
    /// What the sender of the record holds.
    type Receipt;

    /// The record has joined a batch as the `index`th, with `timestamp`.
    fn joined(self, batch: &mut Completion, index: u32, timestamp: i64) -> Self::Receipt;

    /// The record begins to wait for its topic's metadata. `partition` is -1 if unknown.
    fn waits(self, topic: Arc<str>, partition: i32) -> (Placement, Self::Receipt);
}

/// The sender holds a [`Delivery`].
#[derive(Clone, Copy, Debug)]
pub(super) struct ByDelivery;

impl Claim for ByDelivery {
    type Receipt = Delivery;

    fn joined(self, batch: &mut Completion, index: u32, timestamp: i64) -> Delivery {
        Delivery::new(batch.result().clone(), index, timestamp)
    }

    fn waits(self, topic: Arc<str>, partition: i32) -> (Placement, Delivery) {
        let placement = Placement::new(topic, partition, None);
        let delivery = Delivery::waiting(placement.ticket().clone());
        (placement, delivery)
    }
}

/// The sink receives the tag with the batch's outcome.
#[derive(Clone, Copy, Debug)]
pub(super) struct ByTag<'a> {
    pub(super) sink: &'a CompletionSink,
    pub(super) tag: u64,
}

impl Claim for ByTag<'_> {
    type Receipt = ();

    fn joined(self, batch: &mut Completion, index: u32, _timestamp: i64) {
        batch.tag(self, index);
    }

    fn waits(self, topic: Arc<str>, partition: i32) -> (Placement, ()) {
        (Placement::new(topic, partition, Some((self.sink.clone(), self.tag))), ())
    }
}

/// For a record that waited for its topic: a flush follows its delivery, and a sink may receive the outcome as well.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waited<'a>(pub(super) Option<ByTag<'a>>);

impl Claim for Waited<'_> {
    type Receipt = Delivery;

    fn joined(self, batch: &mut Completion, index: u32, timestamp: i64) -> Delivery {
        if let Some(tag) = self.0 {
            tag.joined(batch, index, timestamp);
        }
        ByDelivery.joined(batch, index, timestamp)
    }

    fn waits(self, topic: Arc<str>, partition: i32) -> (Placement, Delivery) {
        ByDelivery.waits(topic, partition)
    }
}
