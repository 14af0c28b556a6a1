//! The arguments of a send in Python, as a staged record.

use std::{borrow::Cow, sync::Arc, time::SystemTime};

use pyo3::{
    exceptions::PyTypeError,
    prelude::*,
    types::{PyMapping, PyString},
};

use crate::{
    buffer,
    port::Port,
    stage::{NewRecord, Outlet, Refused, Stage},
};

type Headers<'a> = Vec<(Cow<'a, str>, Option<Cow<'a, [u8]>>)>;

/// The arguments of a send.
pub(crate) struct Sent<'a, 'py> {
    pub(crate) topic: &'a Bound<'py, PyString>,
    pub(crate) value: Option<&'a Bound<'py, PyAny>>,
    pub(crate) key: Option<&'a Bound<'py, PyAny>>,
    pub(crate) partition: Option<i32>,
    pub(crate) headers: Option<&'a Bound<'py, PyAny>>,
    pub(crate) timestamp: Option<i64>,
}

impl<'py> Sent<'_, 'py> {
    /// Copies the record into the stage, and returns the future of its metadata.
    pub(crate) fn stage(
        self,
        port: &Port,
        stage: &Stage,
        outlet: &Arc<Outlet>,
        is_quiet: bool,
    ) -> PyResult<Result<Bound<'py, PyAny>, Refused>> {
        let py = self.topic.py();
        self.record(|record| {
            let (tag, future) = port.future(py, record.timestamp, is_quiet)?;
            match stage.push(&NewRecord { tag, ..record }, outlet) {
                Ok(()) => Ok(Ok(future)),
                Err(refused) => {
                    port.withdraw(py, tag)?;
                    Ok(Err(refused))
                }
            }
        })?
    }

    /// Calls a function with the record, whose tag is 0.
    pub(crate) fn record<T>(self, place: impl FnOnce(NewRecord<'_>) -> T) -> PyResult<T> {
        let topic = self.topic.to_str()?;
        let value = self.value.map(|value| buffer::bytes(value, "value")).transpose()?.flatten();
        let key = self.key.map(|key| buffer::bytes(key, "key")).transpose()?.flatten();
        let pairs = self.headers.map(pairs).transpose()?.unwrap_or_default();
        let headers = header_list(&pairs)?;
        let headers: Vec<(&str, Option<&[u8]>)> =
            headers.iter().map(|(name, value)| (&**name, value.as_deref())).collect();
        Ok(place(NewRecord {
            topic,
            partition: self.partition,
            key: key.as_deref(),
            value: value.as_deref(),
            headers: &headers,
            timestamp: self.timestamp.unwrap_or_else(now),
            tag: 0,
        }))
    }
}

/// Milliseconds since 1970-01-01 UTC.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// The pairs of a mapping, or of an iterable of pairs.
fn pairs<'py>(
    headers: &Bound<'py, PyAny>,
) -> PyResult<Vec<(Bound<'py, PyString>, Bound<'py, PyAny>)>> {
    let items = match headers.cast::<PyMapping>() {
        Ok(mapping) => mapping.items()?.into_any(),
        Err(_) => headers.clone(),
    };
    let wrong = |_| {
        PyTypeError::new_err(
            "headers must be a mapping or pairs of a str and a bytes-like object, str or None",
        )
    };
    items.try_iter()?.map(|pair| pair?.extract().map_err(wrong)).collect()
}

fn header_list<'a>(pairs: &'a [(Bound<'_, PyString>, Bound<'_, PyAny>)]) -> PyResult<Headers<'a>> {
    let header = |(name, value): &'a (Bound<'_, PyString>, Bound<'_, PyAny>)| {
        Ok((Cow::Borrowed(name.to_str()?), buffer::bytes(value, "the value of a header")?))
    };
    pairs.iter().map(header).collect()
}
