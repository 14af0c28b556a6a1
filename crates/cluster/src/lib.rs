//! An embedded cluster of brokers that speak the Kafka protocol, for development, tests and
//! measurement.
//!
//! It runs in the caller's process: [`Cluster::start`] puts a controller and the brokers on the
//! current tokio runtime, each broker on a separate port. The cluster uses Kafka's mechanisms, so
//! that measurements on it reflect them. Followers fetch over TCP, and the high watermark is the
//! position of the slowest in-sync replica. A connection's responses keep the order of its
//! requests, and each broker receives metadata changes independently. Fault injection
//! ([`ClusterHandle`]) is part of the interface.
//!
//! It is not a production store.

/// The code in the package's README compiles in the test run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod acl;
mod admission;
mod broker;
mod client_files;
mod cluster;
pub mod config;
mod controller;
mod coordinator;
pub mod disk;
mod error;
mod faults;
#[doc(hidden)]
pub mod fuzzing;
mod gate;
mod handlers;
mod image;
pub mod log;
mod observer;
mod private_file;
pub mod proxy;
mod quota;
mod replica;
mod sasl;
mod session;
mod settings;
mod storage;
mod telemetry;
mod topic_config;
mod transaction;

pub use client_files::{ClientFile, ClientLogin};
pub use cluster::{BrokerHandle, Cluster, ClusterHandle, CoordinatorKey};
#[doc(hidden)]
pub use config::Plant;
pub use config::{
    Assignor, Authorizer, ClientAuth, ClusterConfig, ConfigError, Effect, Endpoint, Host, Listener,
    ListenerAddress, ListenerName, ListenerProtocols, Listeners, Mechanism, ParseListenersError,
    Password, ReplicaSelector, Resize, Retention, Security, SecurityProtocol, Storage, User,
    UserError,
};
pub use controller::{Controller, brokers_of};
pub use curtail_wire::{ApiKey, ErrorCode, Uuid, compression::Codec};
pub use error::ClusterError;
pub use faults::{
    ActiveFault, Corrupt, Cut, CutClients, Delay, DelayMetadata, Direction, Disconnect, Fault,
    FaultError, InjectedError, Injection, KafkaRelease, KafkaVersion, OnBroker, ParseFaultError,
    Requests, Sender, Silence, SlowDisk, Throttle, Time, When, WrongLeader,
};
pub use observer::{HandledRequest, Observer};
pub use session::SessionMetrics;
pub use telemetry::ClientMetrics;
pub use topic_config::is_topic_setting;
