//! Bytes of Python objects: bytes-like objects, strings as UTF-8, and `None`.

use std::borrow::Cow;

use pyo3::{
    exceptions::PyTypeError,
    prelude::*,
    types::{PyBytes, PyString},
};

/// Returns the object's bytes. Immutable objects are borrowed.
pub(crate) fn bytes<'a>(
    object: &'a Bound<'_, PyAny>,
    what: &str,
) -> PyResult<Option<Cow<'a, [u8]>>> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(Some(Cow::Borrowed(bytes.as_bytes())));
    }
    if object.is_none() {
        return Ok(None);
    }
    if let Ok(text) = object.cast::<PyString>() {
        return Ok(Some(Cow::Borrowed(text.to_str()?.as_bytes())));
    }
    let wrong = |_| {
        let kind = object.get_type();
        let text = format!("{what} must be a bytes-like object, str or None, not {kind}");
        PyTypeError::new_err(text)
    };
    // Elements of any format and stride count as their bytes.
    let view = object.py().import("builtins")?.getattr("memoryview")?.call1((object,));
    let copy = view.map_err(wrong)?.call_method0("tobytes")?;
    Ok(Some(Cow::Owned(copy.cast_into::<PyBytes>()?.as_bytes().to_vec())))
}
