//! A real Apache Kafka for tests and comparisons.
//!
//! The jars of one release come from Maven Central by `kafka/pom.xml`, once per target directory.
//! [`ApacheCluster`] starts one or three KRaft brokers (each broker and controller in one process)
//! on free loopback ports, and can kill, freeze, stop and restart each of them.
//! [`ApacheCluster::run_tool`] and [`Toolchain::tool`] run Kafka's own tools.
//!
//! A test begins with [`require_or_skip`]: without Java 17 or Maven it prints why it is skipped. If
//! the environment variable `CI` is set it panics instead, because the test must run there.
//!
//! Nothing outlives the test: every cluster has a watchdog (a small `sh`), which kills the brokers
//! and removes their directory when the process that started them ends, in whatever way.
//!
//! ```no_run
//! let Some(toolchain) = curtail_apache::require_or_skip("my_test") else {
//!     return Ok(());
//! };
//! let cluster = curtail_apache::ApacheCluster::builder()
//!     .toolchain(toolchain)
//!     .property("num.partitions", "6")
//!     .start()?;
//! let topics = cluster.run_tool(
//!     "org.apache.kafka.tools.TopicCommand",
//!     &["--bootstrap-server", &cluster.bootstrap(), "--list"],
//!     b"",
//! )?;
//! assert!(topics.success());
//! # Ok::<(), curtail_apache::Error>(())
//! ```

mod archive;
mod cluster;
mod error;
mod ports;
mod probe;
mod process;
mod program;
mod tool;
mod toolchain;

pub use cluster::{ApacheCluster, ApacheClusterBuilder, Broker};
pub use error::Error;
pub use program::Program;
pub use tool::{Output, Tool};
pub use toolchain::{KAFKA_VERSION, Missing, Toolchain, available, require_or_skip};
