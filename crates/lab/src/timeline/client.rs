//! Collects the client's trace events (`curtail::TRACE_TARGET`).

use std::{
    fmt::{self, Write as _},
    sync::Arc,
    time::Instant,
};

use curtail::TRACE_TARGET;
use parking_lot::Mutex;
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

use crate::perf::{Error, Result};

/// One event: when, and its fields by name.
#[derive(Clone, Debug)]
pub(super) struct Traced {
    pub(super) at: Instant,
    pub(super) fields: Vec<(&'static str, String)>,
}

impl Traced {
    /// A field's text; empty if the event has no such field.
    pub(super) fn get(&self, name: &str) -> &str {
        self.fields.iter().find(|(field, _)| *field == name).map_or("", |(_, text)| text)
    }

    /// A field's number.
    pub(super) fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.get(name).parse().ok()
    }
}

/// Receives the events of every client in this process.
#[derive(Clone, Debug, Default)]
pub(super) struct Collector(Arc<Mutex<Vec<Traced>>>);

impl Collector {
    /// Installs the process's `tracing` subscriber and collects its events.
    ///
    /// # Errors
    /// If the process already has a `tracing` subscriber.
    pub(super) fn install() -> Result<Self> {
        let collector = Self::default();
        let failed = |error| Error::Options(format!("the client cannot be traced: {error}"));
        tracing::subscriber::set_global_default(collector.clone()).map_err(failed)?;
        Ok(collector)
    }

    /// Takes what was collected since the last call, in order of time.
    pub(super) fn take(&self) -> Vec<Traced> {
        let mut events = std::mem::take(&mut *self.0.lock());
        events.sort_by_key(|event| event.at);
        events
    }
}

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == TRACE_TARGET
            && *metadata.level() == Level::TRACE
            && metadata.is_event()
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut traced = Traced { at: Instant::now(), fields: Vec::new() };
        event.record(&mut Fields(&mut traced.fields));
        self.0.lock().push(traced);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

struct Fields<'a>(&'a mut Vec<(&'static str, String)>);

impl Visit for Fields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.push((field.name(), value.to_owned()));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = String::new();
        let _ = write!(text, "{value:?}");
        self.0.push((field.name(), text));
    }
}
