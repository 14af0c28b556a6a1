//! Exceptions that the interpreter raises later, on its main thread.

#![expect(unsafe_code, reason = "PyO3 has no interface for pending calls")]

use std::ffi::{c_int, c_void};

use pyo3::{ffi, prelude::*};

/// Lets the interpreter raise an exception on its main thread, at the next place where it handles signals.
pub(crate) fn raise_soon(py: Python<'_>, exception: PyErr) {
    let exception = exception.into_value(py).into_ptr();
    // SAFETY: the call owns the reference to the exception.
    if unsafe { ffi::Py_AddPendingCall(Some(raise), exception.cast()) } != 0 {
        // The interpreter has no room for another call. Other exceptions are pending then.
        // SAFETY: the reference was not passed on.
        drop(unsafe { Bound::from_owned_ptr(py, exception) });
    }
}

extern "C" fn raise(exception: *mut c_void) -> c_int {
    // SAFETY: the interpreter makes pending calls on its main thread, which is attached.
    let py = unsafe { Python::assume_attached() };
    // SAFETY: `raise_soon` passes an owned reference, and each call is made once.
    let exception = unsafe { Bound::from_owned_ptr(py, exception.cast()) };
    PyErr::from_value(exception).restore(py);
    -1
}
