//! No spans.

use std::{future::Future, io, net::SocketAddr};

use curtail_wire::{ApiKey, ErrorCode};

use crate::{Error, Record, RecordMetadata, Result};

/// Nothing.
#[derive(Debug, Default)]
pub(crate) struct Span;

impl Span {
    pub(crate) const NONE: Self = Self;

    pub(crate) fn send(_: &str, _: &Record<'_>) -> Self {
        Self
    }

    pub(crate) fn request(_: &str, _: &str, _: ApiKey) -> Self {
        Self
    }

    pub(crate) fn produce(
        _: &str,
        _: impl FnOnce() -> io::Result<SocketAddr>,
        _: impl FnOnce() -> u64,
    ) -> Self {
        Self
    }

    pub(crate) fn poll(_: &str, _: Option<&str>) -> Self {
        Self
    }

    pub(crate) fn rebalance(_: &str, _: &str) -> Self {
        Self
    }

    pub(crate) fn commit(_: &str, _: Option<&str>, _: usize) -> Self {
        Self
    }

    pub(crate) fn transaction(_: &str, _: Option<&str>) -> Self {
        Self
    }

    pub(crate) fn received(&self, _: usize) {}

    pub(crate) fn delivered(&mut self, _: &Result<RecordMetadata>) {}

    pub(crate) fn refused(&self, _: impl FnOnce() -> Option<ErrorCode>) {}

    pub(crate) fn failed(&self, _: &Error) {}

    pub(crate) fn broken_off(&self, _: &'static str) {}

    pub(crate) fn end(self) {}

    pub(crate) fn end_of<T>(&self, _: &Result<T>) {}

    pub(crate) fn within<T>(&self, work: impl FnOnce() -> T) -> T {
        work()
    }

    pub(crate) fn wrap<F: Future>(&self, future: F) -> F {
        future
    }
}
