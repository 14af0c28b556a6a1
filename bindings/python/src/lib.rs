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
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::admin::Admin;
    #[pymodule_export]
    use super::arrow::{ArrowRows, RecordBatch};
    #[pymodule_export]
    use super::bulk::Bulk;
    #[pymodule_export]
    use super::config::{admin_properties, consumer_properties, producer_properties};
    #[pymodule_export]
    use super::consumer::Consumer;
    #[pymodule_export]
    use super::doctor::{Examination, start_doctor};
    #[pymodule_export]
    use super::events::{close_log, set_log_level, take_log};
    #[pymodule_export]
    use super::pipeline::Pipeline;
    #[pymodule_export]
    use super::port::{Call, Port, RecordMetadata, pending_results, running_loop};
    #[pymodule_export]
    use super::producer::Producer;
    #[pymodule_export]
    use super::rebalance::Rebalance;
    #[pymodule_export]
    use super::records::{Record, Records};
    #[pymodule_export]
    use super::runtime::{after_fork_in_child, runtime_threads};
    #[pymodule_export]
    use super::scan::{ArrowStream, Batches};
    #[pymodule_export]
    use super::testing::Cluster;
    #[pymodule_export]
    use super::timing::Timing;
    #[pymodule_export]
    use super::token::TokenRequest;
    #[pymodule_export]
    use super::transaction::{Transaction, TransactionalProducer};

    #[pymodule_init]
    fn init(_module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::events::install();
        Ok(())
    }
}
