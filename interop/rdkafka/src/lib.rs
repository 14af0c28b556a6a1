//! Pins the crate whose tests run.
