//! The museum of bugs: scripted cases, each after a public bug of a Kafka client.
//!
//! The README has the list of them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "the log of a peer's run is the test's output")]

mod cases;
mod checks;
mod plants;
mod stage;
mod table;
