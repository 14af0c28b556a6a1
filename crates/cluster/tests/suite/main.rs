//! The embedded cluster, spoken to over its sockets. One program: it is linked once, and a test that waits leaves the
//! processor to another file's.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod access;
mod alter_configs;
mod chaos;
mod compaction;
mod consumer_groups;
mod coordinator;
mod described;
mod durable;
mod groups;
mod plants;
mod produce_fetch;
mod replication;
mod requests;
mod security;
mod simulated;
mod support;
mod transactions;
