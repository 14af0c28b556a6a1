//! Metrics of the clients as dictionaries: times in seconds, sizes in bytes, under the names of the Rust client.

use std::time::{Duration, Instant};

use curtail::metrics::{
    BrokerMetrics, ConsumerMetrics, Distribution, FetchMetrics, GroupMetrics, PartitionLag,
    ProducerMetrics,
};
use pyo3::{exceptions::PyRuntimeError, prelude::*};

use crate::tree::{Build, Tree};

const NANOSECOND: f64 = 1e-9;
/// In place of a time at which the turn ends: the program waits for its metrics.
const FAR: Duration = Duration::from_secs(3600);

/// Builds the dictionary at once.
pub(crate) fn object(py: Python<'_>, tree: Tree) -> PyResult<Py<PyAny>> {
    let built = Build::new(tree).run(py, Instant::now() + FAR)?;
    built.ok_or_else(|| PyRuntimeError::new_err("the metrics are incomplete"))
}

macro_rules! dict {
    ($($name:ident: $value:expr),* $(,)?) => {
        Tree::Dict(vec![$(Tree::Name(stringify!($name)), $value),*])
    };
}

fn count(value: u64) -> Tree {
    Tree::Unsigned(value)
}

fn size(value: usize) -> Tree {
    Tree::Unsigned(value as u64)
}

fn seconds(value: Duration) -> Tree {
    Tree::Float(value.as_secs_f64())
}

fn distribution(of: &Distribution, unit: f64) -> Tree {
    let value = |value: u64| Tree::Float(value as f64 * unit);
    dict! {
        count: count(of.count()),
        mean: Tree::Float(of.mean() * unit),
        p50: value(of.p50()),
        p99: value(of.p99()),
        p999: value(of.p999()),
        p9999: value(of.p9999()),
        max: value(of.max()),
    }
}

fn times(of: &Distribution) -> Tree {
    distribution(of, NANOSECOND)
}

fn sizes(of: &Distribution) -> Tree {
    distribution(of, 1.0)
}

fn by<K, V>(all: impl IntoIterator<Item = (K, V)>, pair: impl Fn(K, V) -> [Tree; 2]) -> Tree {
    Tree::Dict(all.into_iter().flat_map(|(key, value)| pair(key, value)).collect())
}

pub(crate) fn producer(metrics: &ProducerMetrics) -> Tree {
    dict! {
        client_id: Tree::Text(metrics.client_id.clone()),
        period: seconds(metrics.period),
        buffer_total_bytes: size(metrics.buffer_total_bytes),
        buffer_available_bytes: size(metrics.buffer_available_bytes),
        buffer_wait: times(&metrics.buffer_wait),
        window_wait: times(&metrics.window_wait),
        buffer_exhausted_total: count(metrics.buffer_exhausted_total),
        metadata_wait: times(&metrics.metadata_wait),
        flush_time: times(&metrics.flush_time),
        record_error_total: count(metrics.record_error_total),
        leaderless_bytes: size(metrics.leaderless_bytes),
        certificates_outdated: Tree::Bool(metrics.certificates_outdated),
        all_brokers: broker(&metrics.all_brokers()),
        brokers: by(&metrics.brokers, |id, of| [Tree::Int(i64::from(*id)), broker(of)]),
    }
}

fn broker(metrics: &BrokerMetrics) -> Tree {
    dict! {
        queue_time: times(&metrics.queue_time),
        write_time: times(&metrics.write_time),
        request_latency: times(&metrics.request_latency),
        delivery_time: times(&metrics.delivery_time),
        throttle_time: times(&metrics.throttle_time),
        batch_size: sizes(&metrics.batch_size),
        records_per_batch: sizes(&metrics.records_per_batch),
        request_size: sizes(&metrics.request_size),
        record_send_total: count(metrics.record_send_total),
        record_retry_total: count(metrics.record_retry_total),
        record_error_total: count(metrics.record_error_total),
        batch_refused_total: count(metrics.batch_refused_total),
        batch_split_total: count(metrics.batch_split_total),
        request_total: count(metrics.request_total),
        response_total: count(metrics.response_total),
        outgoing_byte_total: count(metrics.outgoing_byte_total),
        incoming_byte_total: count(metrics.incoming_byte_total),
        connection_creation_total: count(metrics.connection_creation_total),
        connection_close_total: count(metrics.connection_close_total),
        connection_count: count(metrics.connection_count),
        requests_in_flight: size(metrics.requests_in_flight),
        queue_bytes: size(metrics.queue_bytes),
    }
}

pub(crate) fn consumer(metrics: &ConsumerMetrics) -> Tree {
    let lag = |of: &PartitionLag| {
        dict! { lag: of.lag.map_or(Tree::None, Tree::Int), buffered_bytes: size(of.buffered_bytes) }
    };
    dict! {
        client_id: Tree::Text(metrics.client_id.clone()),
        period: seconds(metrics.period),
        records_consumed_total: count(metrics.records_consumed_total),
        bytes_consumed_total: count(metrics.bytes_consumed_total),
        connection_creation_total: count(metrics.connection_creation_total),
        poll_idle_time: seconds(metrics.poll_idle_time),
        certificates_outdated: Tree::Bool(metrics.certificates_outdated),
        all_brokers: fetches(&metrics.all_brokers()),
        brokers: by(&metrics.brokers, |id, of| [Tree::Int(i64::from(*id)), fetches(of)]),
        group: metrics.group.as_ref().map_or(Tree::None, group),
        partitions: by(&metrics.partitions, |at, of| [Tree::from(at), lag(of)]),
    }
}

fn fetches(metrics: &FetchMetrics) -> Tree {
    dict! {
        fetch_latency: times(&metrics.fetch_latency),
        buffer_time: times(&metrics.buffer_time),
        fetch_size: sizes(&metrics.fetch_size),
        throttle_time: times(&metrics.throttle_time),
        fetch_total: count(metrics.fetch_total),
        fetch_beside_session_total: count(metrics.fetch_beside_session_total),
        session_open_total: count(metrics.session_open_total),
    }
}

fn group(metrics: &GroupMetrics) -> Tree {
    dict! {
        commit_latency: times(&metrics.commit_latency),
        heartbeat_latency: times(&metrics.heartbeat_latency),
        join_time: times(&metrics.join_time),
        sync_time: times(&metrics.sync_time),
        rebalance_latency: times(&metrics.rebalance_latency),
        failed_rebalance_total: count(metrics.failed_rebalance_total),
        partition_revoked_latency: times(&metrics.partition_revoked_latency),
        partition_assigned_latency: times(&metrics.partition_assigned_latency),
        partition_lost_latency: times(&metrics.partition_lost_latency),
        since_rebalance: metrics.since_rebalance.map_or(Tree::None, seconds),
        since_heartbeat: metrics.since_heartbeat.map_or(Tree::None, seconds),
    }
}
