//! Capsules of the Arrow PyCapsule interface.

#![expect(unsafe_code, reason = "capsules of other libraries contain pointers")]

use std::{
    any::Any,
    ffi::{CStr, c_void},
    panic::{AssertUnwindSafe, catch_unwind},
    ptr::NonNull,
    sync::Arc,
};

use arrow_array::{
    Array, ArrayRef, RecordBatchIterator, StructArray,
    ffi::{FFI_ArrowArray, from_ffi_and_data_type, to_ffi},
    ffi_stream::{ArrayStreamReader, FFI_ArrowArrayStream},
    make_array,
};
use arrow_schema::{ArrowError, DataType, Fields, Schema, ffi::FFI_ArrowSchema};
use pyo3::{
    exceptions::{PyRuntimeError, PyTypeError},
    intern,
    prelude::*,
    types::{PyCapsule, PyTuple},
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

/// The pointer of a capsule with this name.
fn pointer(object: &Bound<'_, PyAny>, name: &'static CStr) -> Option<NonNull<c_void>> {
    object.cast::<PyCapsule>().ok()?.pointer_checked(Some(name)).ok()
}

/// Whether a schema was moved out of its capsule.
///
/// # Safety
/// The pointer is that of a capsule "arrow_schema" that outlives the call.
unsafe fn is_released(schema: NonNull<c_void>) -> bool {
    // SAFETY: by the interface a capsule of this name has a pointer to an `ArrowSchema`, also after the move of its
    // content.
    unsafe { schema.cast::<RawSchema>().as_ref() }.release.is_null()
}

/// Reads what another library exported. The Arrow library panics on malformed schemas and arrays.
fn read<T>(read: impl FnOnce() -> Result<T, ArrowError>) -> Result<T, ArrowError> {
    let malformed = |panic: Box<dyn Any + Send>| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("panic");
        Err(ArrowError::CDataInterface(format!("malformed data: {text}")))
    };
    // What a panic leaves behind is not read again: the error ends the use of the data.
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(malformed)
}

/// Columns of another library.
pub(super) enum Input {
    Stream(ArrayStreamReader),
    Array { kind: DataType, array: Option<Result<ArrayRef, ArrowError>> },
}

impl Input {
    pub(super) fn data_type(&self) -> &DataType {
        use arrow_array::ArrayReader as _;
        match self {
            Self::Stream(stream) => stream.field().data_type(),
            Self::Array { kind, .. } => kind,
        }
    }
}

impl Iterator for Input {
    type Item = Result<ArrayRef, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Stream(stream) => read(|| stream.next().transpose()).transpose(),
            Self::Array { array, .. } => array.take(),
        }
    }
}

/// Takes the stream of an object, or its array.
pub(super) fn import(data: &Bound<'_, PyAny>) -> PyResult<Input> {
    let py = data.py();
    if let Some(export) = data.getattr_opt(intern!(py, "__arrow_c_stream__"))? {
        return stream_of(&export.call0()?);
    }
    if let Some(export) = data.getattr_opt(intern!(py, "__arrow_c_array__"))? {
        return array_of(&export.call0()?);
    }
    let kind = data.get_type();
    let text = format!(
        "data must have __arrow_c_stream__ or __arrow_c_array__, as tables of pyarrow and data frames of Polars, not be {kind}"
    );
    Err(PyTypeError::new_err(text))
}

fn wrong(method: &str) -> PyErr {
    let text = format!("{method} of data must return capsules of Arrow that were not consumed");
    PyTypeError::new_err(text)
}

fn stream_of(capsule: &Bound<'_, PyAny>) -> PyResult<Input> {
    let wrong = || wrong("__arrow_c_stream__");
    let stream = pointer(capsule, c"arrow_array_stream").ok_or_else(wrong)?;
    // SAFETY: by the interface a capsule of this name has a pointer to an `ArrowArrayStream`, whose content a consumer
    // may move out. The capsule outlives this call.
    let stream = unsafe { FFI_ArrowArrayStream::from_raw(stream.cast().as_ptr()) };
    if stream.release().is_none() || stream.get_next().is_none() {
        return Err(wrong());
    }
    read(|| ArrayStreamReader::try_new(stream)).map(Input::Stream).map_err(|error| raise(&error))
}

fn array_of(capsules: &Bound<'_, PyAny>) -> PyResult<Input> {
    let wrong = || wrong("__arrow_c_array__");
    let pair = capsules.cast::<PyTuple>().map_err(|_| wrong())?;
    let (schema, array): (Bound<'_, PyAny>, Bound<'_, PyAny>) =
        pair.extract().map_err(|_| wrong())?;
    let schema = pointer(&schema, c"arrow_schema").ok_or_else(wrong)?;
    let array = pointer(&array, c"arrow_array").ok_or_else(wrong)?;
    // SAFETY: the capsules outlive this call. By the interface they have pointers to an `ArrowSchema`, which is valid until
    // its release, and to an `ArrowArray`, whose content a consumer may move out.
    let (schema, array) = unsafe {
        if is_released(schema) {
            return Err(wrong());
        }
        let array = FFI_ArrowArray::from_raw(array.cast().as_ptr());
        (schema.cast::<FFI_ArrowSchema>().as_ref(), array)
    };
    if array.is_released() {
        return Err(wrong());
    }
    let kind = read(|| DataType::try_from(schema)).map_err(|error| raise(&error))?;
    // SAFETY: by the interface the array has the type of the schema.
    let data = read(|| unsafe { from_ffi_and_data_type(array, kind.clone()) }.map(make_array));
    Ok(Input::Array { kind, array: Some(data) })
}

/// The layout of keys and values in a requested schema. Other requests are ignored, as the interface allows.
pub(crate) fn requested_layout(requested: &Bound<'_, PyAny>) -> PyResult<Option<Layout>> {
    let wrong = || PyTypeError::new_err("requested_schema must be a capsule 'arrow_schema'");
    let pointer = pointer(requested, c"arrow_schema").ok_or_else(wrong)?;
    // SAFETY: the capsule outlives this call.
    if unsafe { is_released(pointer) } {
        return Err(PyTypeError::new_err("requested_schema was consumed before"));
    }
    // SAFETY: as above; the schema was not released.
    let schema = unsafe { pointer.cast::<FFI_ArrowSchema>().as_ref() };
    // Not a schema of columns, or one with a type that this version does not know.
    let Ok(schema) = read(|| Schema::try_from(schema)) else { return Ok(None) };
    let is_content = |name: &str| matches!(name, "key" | "value");
    let field = schema.fields().iter().find(|field| is_content(field.name()));
    Ok(match field.map(|field| field.data_type()) {
        Some(DataType::BinaryView) => Some(Layout::View),
        Some(DataType::Binary) => Some(Layout::Binary),
        Some(DataType::LargeBinary) => Some(Layout::LargeBinary),
        _ => None,
    })
}
