//! Replicas: logs with a role, their replication, and the requests that wait for them.

pub(crate) mod fetcher;
pub(crate) mod partition;
mod progress;
pub(crate) mod purgatory;
#[cfg(test)]
mod tests;
