//! The command as a user runs it. All files form one program: it is linked once, and while a test waits,
//! others use the CPU.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod admin;
mod bad_input;
mod clients;
mod cluster;
mod commands;
mod common;
mod docs;
mod dump_log;
mod faults;
mod kills;
mod lab;
mod listeners;
mod perf;
mod profile;
mod proxy;
mod publish;
mod shell;
mod tools;
