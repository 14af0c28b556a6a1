//! The client against the embedded cluster and against Apache Kafka. One program: it is linked once, and a test that waits
//! leaves the processor to another file's.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod admin;
mod blocking;
mod common;
mod consumer;
mod consumer_faults;
mod extremes;
mod groups;
mod kafka;
mod observed;
mod producer;
mod racks;
mod routing;
mod security;
mod too_large;
mod transactions;
mod truncation;
mod undrained;
mod unknown_topic;
