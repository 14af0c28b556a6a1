//! The consumer as a stream of records.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures_core::Stream;

use super::{Consumer, idle::Idle};
use crate::{ConsumerRecord, Result};

/// Stream of records, returned by [`Consumer::stream`].
#[derive(Debug)]
pub struct RecordStream<'a> {
    consumer: &'a mut Consumer,
    idle: Idle,
}

/// Stream of records that owns its consumer, returned by [`Consumer::into_stream`].
#[derive(Debug)]
pub struct IntoStream {
    consumer: Consumer,
    idle: Idle,
}

impl<'a> RecordStream<'a> {
    pub(super) fn new(consumer: &'a mut Consumer) -> Self {
        Self { consumer, idle: Idle::default() }
    }
}

impl IntoStream {
    pub(super) fn new(consumer: Consumer) -> Self {
        Self { consumer, idle: Idle::default() }
    }

    /// Returns the consumer, with the records that were not returned yet.
    pub fn into_inner(self) -> Consumer {
        self.consumer
    }
}

impl Stream for RecordStream<'_> {
    type Item = Result<ConsumerRecord>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let me = self.get_mut();
        poll_one(me.consumer, &mut me.idle, cx)
    }
}

impl Stream for IntoStream {
    type Item = Result<ConsumerRecord>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let me = self.get_mut();
        poll_one(&mut me.consumer, &mut me.idle, cx)
    }
}

fn poll_one(
    consumer: &mut Consumer,
    idle: &mut Idle,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<ConsumerRecord>>> {
    let proceed = ready!(tokio::task::coop::poll_proceed(cx));
    let one = consumer.poll_one(cx);
    let one = ready!(idle.after(&consumer.shared, one));
    proceed.made_progress();
    Poll::Ready(Some(one))
}
