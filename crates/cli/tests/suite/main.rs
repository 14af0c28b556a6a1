//! The command, run as a user runs it. One program: it is linked once, and a test that waits leaves the processor to
//! another file's.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod admin;
mod bad_input;
mod cluster;
mod commands;
mod common;
mod docs;
mod kills;
mod lab;
mod perf;
mod publish;
