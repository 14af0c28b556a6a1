//! The interpreter that imports the module.

#![expect(unsafe_code, reason = "PyO3 has no interface for interpreters")]

use pyo3::{exceptions::PyImportError, ffi, prelude::*};

/// Refuses sub-interpreters: the runtime, its ports and the classes belong to the process.
pub(crate) fn check(_py: Python<'_>) -> PyResult<()> {
    // SAFETY: the thread is attached to an interpreter, which lives as long as this call.
    let id = unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) };
    // The main interpreter is the first one.
    match id {
        0 => Ok(()),
        _ => Err(PyImportError::new_err("curtail_kafka cannot be used in a sub-interpreter")),
    }
}
