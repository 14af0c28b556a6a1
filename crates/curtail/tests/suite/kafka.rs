//! Kafka's own tools and clients with the embedded cluster, and together with this client on both clusters.

mod assignors;
mod consumer_protocol;
mod groups;
mod java;
mod security;
mod telemetry;
mod tools;
mod transactions;
