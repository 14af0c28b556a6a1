//! Bytes of Python objects (bytes-like objects, strings as UTF-8, and `None`), and views of fetched bytes.

#![expect(unsafe_code, reason = "the buffer protocol fills a struct of the interpreter")]

use std::{
    borrow::Cow,
    ffi::{c_int, c_void},
};

use bytes::Bytes;
use pyo3::{
    exceptions::PyTypeError,
    ffi,
    prelude::*,
    types::{PyBytes, PyMemoryView, PyString},
};

/// Fetched bytes with the buffer protocol.
#[pyclass(frozen, module = "curtail_kafka._native")]
pub(crate) struct View(Bytes);

#[pymethods]
impl View {
    /// # Safety
    /// `view` is null or points to a buffer to fill, as the interpreter ensures.
    unsafe fn __getbuffer__(
        slf: &Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let bytes = &slf.get().0;
        // At most `isize::MAX`, as any slice. The buffer is read-only, and holds a reference to the object, whose bytes do
        // not move.
        let (start, length) = (bytes.as_ptr().cast_mut().cast::<c_void>(), bytes.len() as isize);
        // SAFETY: `view` is the interpreter's, and the bytes last as long as the object.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, length, 1, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

/// Returns a read-only view of the bytes, without a copy.
pub(crate) fn view<'py>(py: Python<'py>, bytes: &Bytes) -> PyResult<Bound<'py, PyMemoryView>> {
    PyMemoryView::from(Bound::new(py, View(bytes.clone()))?.as_any())
}

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
