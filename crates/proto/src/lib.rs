//! A Kafka client's decisions as pure state machines, without sockets, clock, threads or randomness.
//!
//! Each call takes the time and the random draws it needs as arguments, and returns the next step. The crate `curtail`
//! connects the machines to tokio; the simulation runs the same code.
//!
//! | module | decides |
//! |---|---|
//! | [`accumulator`] | which records share a batch, which batch is sent next, in which order batches are retried |
//! | [`classify`] | how a broker's response to a produce request affects its batch |
//! | [`link`] | what a broker's connection sends next, which response belongs to which request, what happens in time |
//! | [`membership`] | what a consumer group member requests from its coordinator, and when partitions change owner |
//! | [`metadata`] | the leader of each partition, as an immutable snapshot; leader epochs only go forward |
//! | [`partitioner`] | the partition of a record that names none |
//! | [`path`] | what a broker may be sent, how long a record must expect to wait there, when its responses are late |
//! | [`budget`] | which caller may take how much of `buffer.memory`, and which is next |
//! | [`backoff`] | how long to wait before a retry |
//! | [`later`] | deadlines that cannot overflow |
//! | [`fetcher`] | which request goes to a broker next to fetch records or look offsets up, within which limits |
//! | [`fetch_session`] | which partitions a fetch request adds to, changes in and drops from its session (KIP-227) |
//! | [`sasl`] | how a client authenticates, and whether the broker proves its identity |
//! | [`assignor`] | which consumer group member reads which partitions |
//! | [`position`] | a consumer's position, and which responses are too old to count |
//! | [`telemetry`] | when a client requests its metrics subscription and when it pushes metrics (KIP-714) |
//! | [`transaction`] | what a transactional producer requests from its coordinators, and what the responses mean |

// `Instant + Duration` panics for durations that a caller may pass; see `later`.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

pub mod accumulator;
pub mod assignor;
pub mod backoff;
pub mod budget;
pub mod classify;
pub mod fetch_session;
pub mod fetcher;
pub mod later;
pub mod link;
pub mod membership;
pub mod metadata;
pub mod partitioner;
pub mod path;
#[doc(hidden)]
pub mod plant;
pub mod position;
pub mod sasl;
pub mod telemetry;
mod topic_partition;
pub mod transaction;

pub use topic_partition::TopicPartition;
