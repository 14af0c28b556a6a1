//! Columns of fetched records in Arrow's format, and the capsules through which other libraries take them.
//!
//! Keys and values are views into the fetched batches. Copied are values of at most 12 bytes (a view contains them), values
//! that would retain a batch for a small part of it, headers, and the other columns.
//!
//! [`ArrowRows`] is the opposite direction: columns of other libraries as records to send.

mod batch;
pub(crate) mod capsule;
mod columns;
mod source;

pub(crate) use self::{
    batch::RecordBatch,
    columns::{Columns, Layout, Wanted},
    source::{ArrowRows, Source},
};
