//! The states of a Kafka client as pure machines: no sockets, no clock, no threads, no randomness of their own.
//!
//! Every machine takes the time and the random draws it needs as arguments and answers with what to do next.
//! The crate `curtail` joins them to tokio; the simulation runs the very same code.
//!
//! | module | what it decides |
//! |---|---|
//! | [`accumulator`] | which records share a batch, which batch may be sent next, in which order failures are sent again |
//! | [`classify`] | what a broker's answer to a produce request means for its batch |
//! | [`inflight`] | which answer belongs to which request |
//! | [`membership`] | what a member of a consumer group asks its coordinator, and when partitions change hands |
//! | [`metadata`] | who leads what, as an immutable snapshot; leader epochs only go forward |
//! | [`partitioner`] | where a record without a partition goes |
//! | [`load`] | how long a record added now has to expect to wait at a broker |
//! | [`budget`] | who may take how much of `buffer.memory`, and who is next |
//! | [`pipelining`] | how many small requests to have under way on a connection |
//! | [`backoff`] | how long to wait before trying again |
//! | [`later`] | deadlines that cannot overflow |
//! | [`fetch_session`] | which partitions a fetch request adds to, changes in and drops from its session (KIP-227) |
//! | [`suspicion`] | from when on a silent broker counts as being in trouble |
//! | [`sasl`] | what a client says to prove who it is, and whether the broker is who it should be |
//! | [`assignor`] | which member of a consumer group reads which partitions |
//! | [`position`] | where a consumer stands, and which answers are too old to count |
//! | [`transaction`] | what a transactional producer asks its coordinators, and what their answers mean |

// `Instant + Duration` panics for durations that a caller may pass; see `later`.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

pub mod accumulator;
pub mod assignor;
pub mod backoff;
pub mod budget;
pub mod classify;
pub mod fetch_session;
pub mod inflight;
pub mod later;
pub mod load;
pub mod membership;
pub mod metadata;
pub mod partitioner;
pub mod pipelining;
#[doc(hidden)]
pub mod plant;
pub mod position;
pub mod sasl;
pub mod suspicion;
pub mod transaction;
