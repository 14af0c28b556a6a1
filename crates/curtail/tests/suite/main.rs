//! Tests of the client against the embedded cluster and Apache Kafka. One program is linked once, and while a test
//! waits, tests of other files run.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod admin;
mod blocking;
mod common;
mod compaction;
mod completions;
mod completions_of_threads;
mod completions_of_transactions;
mod consumer;
mod consumer_faults;
mod exactly_once;
mod extremes;
mod groups;
mod injected;
mod io_thread;
mod kafka;
mod listeners;
mod observed;
mod producer;
mod proxy;
mod racks;
mod routing;
mod security;
mod shutdown;
mod socks5;
mod spans;
mod telemetry;
mod too_large;
mod transactions;
mod truncation;
mod undrained;
mod unknown_topic;
mod window;
