//! A batch of records as Python sees it.

use std::{ops::Range, sync::Arc};

use pyo3::{
    intern,
    prelude::*,
    types::{PyCapsule, PyModule},
};

use super::{Columns, Layout, capsule};
use crate::records::{RecordsIterator, Rows};

/// Records of one `poll_batch`, as columns.
#[pyclass(frozen, module = "curtail_kafka")]
pub(crate) struct RecordBatch {
    rows: Arc<Rows>,
    range: Range<usize>,
    columns: Columns,
    layout: Layout,
}

impl RecordBatch {
    pub(crate) fn new(
        rows: Arc<Rows>,
        range: Range<usize>,
        columns: Columns,
        layout: Layout,
    ) -> Self {
        Self { rows, range, columns, layout }
    }

    /// The columns in the layout that the reader requests.
    fn columns(&self, py: Python<'_>, requested: Option<&Bound<'_, PyAny>>) -> PyResult<Columns> {
        let wanted = requested.map(capsule::requested_layout).transpose()?.flatten();
        match wanted {
            Some(layout) if layout != self.layout => {
                let rows = &self.rows[self.range.clone()];
                let again =
                    py.detach(|| self.columns.with_layout(rows, self.rows.batches(), layout));
                again.map_err(|error| capsule::raise(&error))
            }
            _ => Ok(self.columns.clone()),
        }
    }
}

#[pymethods]
impl RecordBatch {
    #[getter]
    fn num_rows(&self) -> usize {
        self.range.len()
    }

    fn __len__(&self) -> usize {
        self.range.len()
    }

    fn __iter__(&self) -> RecordsIterator {
        RecordsIterator::new(self.rows.clone(), self.range.clone())
    }

    /// Returns a `pyarrow.RecordBatch` that shares the memory.
    fn to_arrow<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let arrow = PyModule::import(py, intern!(py, "pyarrow"))?;
        arrow.call_method1(intern!(py, "record_batch"), (slf,))
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        capsule::schema(py, &self.columns.0)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        capsule::array(py, &self.columns(py, requested_schema)?.0)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        capsule::stream(py, &self.columns(py, requested_schema)?.0)
    }

    fn __repr__(&self) -> String {
        let names: Vec<&str> =
            self.columns.0.fields().iter().map(|field| field.name().as_str()).collect();
        format!("<RecordBatch: {} rows of {}>", self.range.len(), names.join(", "))
    }
}
