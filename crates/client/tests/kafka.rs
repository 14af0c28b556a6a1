//! Kafka's own tools and clients with the embedded cluster, and beside ours on both clusters.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
#[path = "kafka/consumer_protocol.rs"]
mod consumer_protocol;
#[path = "kafka/groups.rs"]
mod groups;
#[path = "kafka/java.rs"]
mod java;
#[path = "kafka/security.rs"]
mod security;
#[path = "kafka/tools.rs"]
mod tools;
#[path = "kafka/transactions.rs"]
mod transactions;
