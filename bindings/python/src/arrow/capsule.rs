//! Capsules of the Arrow PyCapsule interface.

#![expect(unsafe_code, reason = "the schema that a reader requests is a pointer in its capsule")]

use std::{ffi::c_void, sync::Arc};

use arrow_array::{
    Array, RecordBatchIterator, StructArray, ffi::to_ffi, ffi_stream::FFI_ArrowArrayStream,
};
use arrow_schema::{DataType, Fields, Schema, ffi::FFI_ArrowSchema};
use pyo3::{
    exceptions::{PyRuntimeError, PyTypeError},
    prelude::*,
    types::PyCapsule,
};

use super::columns::Layout;

pub(crate) fn raise(error: &arrow_schema::ArrowError) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

pub(super) fn schema<'py>(
    py: Python<'py>,
    columns: &StructArray,
) -> PyResult<Bound<'py, PyCapsule>> {
    schema_of(py, columns.fields())
}

/// The schema of columns with these fields.
pub(crate) fn schema_of<'py>(py: Python<'py>, fields: &Fields) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = FFI_ArrowSchema::try_from(&DataType::Struct(fields.clone()));
    let schema = schema.map_err(|error| raise(&error))?;
    PyCapsule::new_with_value(py, schema, c"arrow_schema")
}

pub(super) fn array<'py>(
    py: Python<'py>,
    columns: &StructArray,
) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
    let (array, schema) = to_ffi(&columns.to_data()).map_err(|error| raise(&error))?;
    let schema = PyCapsule::new_with_value(py, schema, c"arrow_schema")?;
    Ok((schema, PyCapsule::new_with_value(py, array, c"arrow_array")?))
}

pub(super) fn stream<'py>(
    py: Python<'py>,
    columns: &StructArray,
) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = Arc::new(Schema::new(columns.fields().clone()));
    let batch = arrow_array::RecordBatch::from(columns);
    let batches = RecordBatchIterator::new([Ok(batch)], schema);
    let stream = FFI_ArrowArrayStream::new(Box::new(batches));
    PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
}

/// The fields of [`FFI_ArrowSchema`], which are private there. The C data interface defines the layout.
#[repr(C)]
struct RawSchema {
    _format_name_metadata: [*const c_void; 3],
    _flags_n_children: [i64; 2],
    _children_dictionary: [*const c_void; 2],
    /// Null once a consumer has moved the schema out of the capsule. The other fields then dangle.
    release: *const c_void,
}

/// The layout of keys and values in a requested schema. Other requests are ignored, as the interface allows.
pub(crate) fn requested_layout(requested: &Bound<'_, PyAny>) -> PyResult<Option<Layout>> {
    let wrong = |_| PyTypeError::new_err("requested_schema must be a capsule 'arrow_schema'");
    let capsule = requested.cast::<PyCapsule>().map_err(|_| wrong(()))?;
    let pointer = capsule.pointer_checked(Some(c"arrow_schema")).map_err(|_| wrong(()))?;
    // SAFETY: by the interface a capsule of this name has a pointer to an `ArrowSchema`, also after the move of its
    // content. The capsule outlives this call.
    let is_released = unsafe { pointer.cast::<RawSchema>().as_ref() }.release.is_null();
    if is_released {
        return Err(PyTypeError::new_err("requested_schema was consumed before"));
    }
    // SAFETY: as above, and the schema is valid until its release.
    let schema = unsafe { pointer.cast::<FFI_ArrowSchema>().as_ref() };
    // Not a schema of columns, or one with a type that this version does not know.
    let Ok(schema) = Schema::try_from(schema) else { return Ok(None) };
    let is_content = |name: &str| matches!(name, "key" | "value");
    let field = schema.fields().iter().find(|field| is_content(field.name()));
    Ok(match field.map(|field| field.data_type()) {
        Some(DataType::BinaryView) => Some(Layout::View),
        Some(DataType::Binary) => Some(Layout::Binary),
        Some(DataType::LargeBinary) => Some(Layout::LargeBinary),
        _ => None,
    })
}
