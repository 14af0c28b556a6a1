//! Tests of the embedded cluster over its sockets. They are one program, which is linked once;
//! while a test waits, the tests of other files use the CPU.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod access;
mod alter_configs;
mod chaos;
mod compaction;
mod consumer_groups;
mod coordinator;
mod described;
mod durable;
mod faults;
mod groups;
mod listeners;
mod offsets_by_id;
mod operators;
mod plants;
mod produce_fetch;
mod proxy;
mod replication;
mod requests;
mod security;
mod simulated;
mod streams;
mod support;
mod telemetry;
mod transactions;
