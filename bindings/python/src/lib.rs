//! Native part of `curtail_kafka`, the Python package of Curtail.
//!
//! Calls from Python run on the event loop's thread; the clients' tasks run on one tokio runtime per process. The two
//! sides meet in [`port`] (results) and [`stage`] (records).
//!
//! # Invariants
//! - No thread of the runtime attaches to the interpreter (clippy's `disallowed-methods`).
//! - The runtime holds tags, never Python objects.

mod admin;
mod arrow;
mod buffer;
mod bulk;
mod closing;
mod config;
mod consumer;
mod counted;
mod doctor;
mod error;
mod events;
mod feeder;
mod group;
mod hold;
mod interpreter;
mod metrics;
mod pending;
mod pipeline;
mod port;
mod producer;
mod progress;
mod rebalance;
mod records;
mod runtime;
mod scan;
mod sent;
mod signal;
mod stage;
mod testing;
mod timing;
mod token;
mod transaction;
mod tree;
mod wait;

use pyo3::prelude::*;

// Without the GIL nothing was tested: a free-threaded interpreter enables it when it imports the module.
#[pymodule(gil_used = true)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    // First: classes belong to the process, and to the interpreter that makes them.
    interpreter::check(module.py())?;
    module.add_class::<admin::Admin>()?;
    module.add_class::<arrow::ArrowRows>()?;
    module.add_class::<arrow::RecordBatch>()?;
    module.add_class::<bulk::Bulk>()?;
    module.add_class::<consumer::Consumer>()?;
    module.add_class::<doctor::Examination>()?;
    module.add_class::<pipeline::Pipeline>()?;
    module.add_class::<port::Call>()?;
    module.add_class::<port::Port>()?;
    module.add_class::<port::RecordMetadata>()?;
    module.add_class::<producer::Producer>()?;
    module.add_class::<rebalance::Rebalance>()?;
    module.add_class::<records::Record>()?;
    module.add_class::<records::Records>()?;
    module.add_class::<scan::ArrowStream>()?;
    module.add_class::<scan::Batches>()?;
    module.add_class::<testing::Cluster>()?;
    module.add_class::<timing::Timing>()?;
    module.add_class::<token::TokenRequest>()?;
    module.add_class::<transaction::Transaction>()?;
    module.add_class::<transaction::TransactionalProducer>()?;
    module.add_function(wrap_pyfunction!(config::admin_properties, module)?)?;
    module.add_function(wrap_pyfunction!(config::consumer_properties, module)?)?;
    module.add_function(wrap_pyfunction!(config::producer_properties, module)?)?;
    module.add_function(wrap_pyfunction!(doctor::start_doctor, module)?)?;
    module.add_function(wrap_pyfunction!(events::close_log, module)?)?;
    module.add_function(wrap_pyfunction!(events::set_log_level, module)?)?;
    module.add_function(wrap_pyfunction!(events::take_log, module)?)?;
    module.add_function(wrap_pyfunction!(port::pending_results, module)?)?;
    module.add_function(wrap_pyfunction!(port::running_loop, module)?)?;
    module.add_function(wrap_pyfunction!(runtime::after_fork_in_child, module)?)?;
    module.add_function(wrap_pyfunction!(runtime::runtime_threads, module)?)?;
    events::install();
    Ok(())
}
