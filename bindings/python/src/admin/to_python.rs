//! Results of the admin client as Python values: data classes of `curtail_kafka.admin`, and dictionaries.

use std::{collections::BTreeMap, time::Duration};

use curtail::{
    Result, TopicPartition,
    admin::{
        Acl, AclFilter, AclOperation, AclPattern, AclPatternFilter, AclPermission, AclResource,
        BrokerDescription, ClusterDescription, ConfigEntry, ConfigResource, ConfigSource,
        ConfigSynonym, Each, Elected, Features, GroupDescription, GroupKind, GroupListing,
        GroupState, ListedOffset, LogDir, LogDirReplica, MemberDescription, OngoingReassignment,
        PartitionDescription, ProducerState, QuorumDescription, QuorumReplica, ScramCredential,
        ScramMechanism, TopicDescription, TopicListing, TransactionDescription, TransactionListing,
    },
    transaction::OffsetAndMetadata,
};
use pyo3::{
    IntoPyObjectExt, intern,
    prelude::*,
    types::{PyBytes, PyDict, PyList, PyModule},
};

use crate::error;

/// Conversion of a result.
pub(super) trait ToPython {
    fn to_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>>;
}

/// Converts a value.
pub(super) fn value(py: Python<'_>, value: impl ToPython) -> PyResult<Py<PyAny>> {
    Ok(value.to_python(py)?.unbind())
}

/// Converts results by item to a dictionary.
pub(super) fn each<K: ToPython, T: ToPython>(
    py: Python<'_>,
    each: Each<K, T>,
) -> PyResult<Py<PyAny>> {
    Ok(dict(py, each)?.into_any().unbind())
}

/// Converts results whose values are results by item.
pub(super) fn each_of_each<K: ToPython, L: ToPython, T: ToPython>(
    py: Python<'_>,
    outer: Each<K, Each<L, T>>,
) -> PyResult<Py<PyAny>> {
    let all = PyDict::new(py);
    for (key, inner) in outer {
        let inner = match inner {
            Ok(inner) => dict(py, inner)?.into_any(),
            Err(error) => error::value(py, &error)?,
        };
        all.set_item(key.to_python(py)?, inner)?;
    }
    Ok(all.into_any().unbind())
}

fn dict<K: ToPython, V: ToPython>(
    py: Python<'_>,
    items: impl IntoIterator<Item = (K, V)>,
) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    for (key, value) in items {
        dict.set_item(key.to_python(py)?, value.to_python(py)?)?;
    }
    Ok(dict)
}

fn class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    PyModule::import(py, intern!(py, "curtail_kafka.admin"))?.getattr(name)
}

macro_rules! plain {
    ($($type:ty),*) => {$(
        impl ToPython for $type {
            fn to_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
                self.into_bound_py_any(py)
            }
        }
    )*};
}

plain! { bool, i16, i32, i64, u16, u64, usize, f64, String, (i16, i16) }

/// Enums, as Kafka's names.
macro_rules! named {
    ($($type:ty)*) => {$(
        impl ToPython for $type {
            fn to_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
                self.name().into_bound_py_any(py)
            }
        }
    )*};
}

named! { AclOperation AclPattern AclPermission AclResource ConfigSource GroupKind GroupState ScramMechanism }

/// Data classes with the same names and fields.
macro_rules! data_classes {
    ($($type:ident { $($field:ident)* })*) => {$(
        impl ToPython for $type {
            fn to_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
                let fields = PyDict::new(py);
                $(fields.set_item(intern!(py, stringify!($field)), self.$field.to_python(py)?)?;)*
                class(py, stringify!($type))?.call((), Some(&fields))
            }
        }
    )*};
}

data_classes! {
    Acl { resource name pattern principal host operation permission }
    AclFilter { resource name pattern principal host operation permission }
    BrokerDescription { id host port rack }
    ClusterDescription { cluster_id controller brokers }
    ConfigEntry { name value source read_only sensitive synonyms }
    ConfigSynonym { name value source }
    Features { finalized epoch supported }
    GroupDescription { group_id kind state assignor coordinator epoch assignment_epoch members }
    GroupListing { group_id protocol_type state kind }
    ListedOffset { offset timestamp leader_epoch }
    LogDirReplica { size offset_lag is_future }
    MemberDescription {
        member_id group_instance_id client_id host rack epoch topics topic_regex assignment target
    }
    OffsetAndMetadata { offset leader_epoch metadata }
    OngoingReassignment { replicas adding removing }
    PartitionDescription { partition leader leader_epoch replicas isr offline }
    ProducerState {
        producer_id producer_epoch last_sequence last_timestamp coordinator_epoch transaction_start
    }
    QuorumDescription { leader leader_epoch high_watermark voters observers }
    QuorumReplica { id log_end_offset last_caught_up }
    ScramCredential { mechanism iterations }
    TopicDescription { name id internal partitions }
    TopicListing { name id internal partitions }
    TransactionDescription {
        coordinator state producer_id producer_epoch timeout started partitions
    }
    TransactionListing { transactional_id producer_id state }
}

impl ToPython for LogDir {
    fn to_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let fields = PyDict::new(py);
        fields.set_item("path", self.path)?;
        fields.set_item("error", self.state.to_python(py)?)?;
        fields.set_item("replicas", self.replicas.to_python(py)?)?;
        fields.set_item("total_bytes", self.total_bytes)?;
        fields.set_item("usable_bytes", self.usable_bytes)?;
        class(py, "LogDir")?.call((), Some(&fields))
    }
}

impl ToPython for () {
    fn to_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        Ok(py.None().into_bound(py))
    }
}

impl<T: ToPython> ToPython for Result<T> {
    fn to_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        match self {
            Ok(value) => value.to_python(py),
            Err(error) => error::value(py, &error),
        }
    }
}

impl<T: ToPython> ToPython for Option<T> {
    fn to_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        self.map_or_else(|| ().to_python(py), |value| value.to_python(py))
    }
}

impl<T: ToPython> ToPython for Vec<T> {
    fn to_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let items: Vec<_> =
            self.into_iter().map(|item| item.to_python(py)).collect::<PyResult<_>>()?;
        Ok(PyList::new(py, items)?.into_any())
    }
}

impl<K: ToPython, V: ToPython> ToPython for BTreeMap<K, V> {
    fn to_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        Ok(dict(py, self)?.into_any())
    }
}

impl ToPython for TopicPartition {
    fn to_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        class(py, "TopicPartition")?.call1((&*self.topic, self.partition))
    }
}

impl ToPython for Duration {
    fn to_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        self.as_secs_f64().to_python(py)
    }
}

/// A topic id.
impl ToPython for [u8; 16] {
    fn to_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let fields = PyDict::new(py);
        fields.set_item("bytes", PyBytes::new(py, &self))?;
        class(py, "UUID")?.call((), Some(&fields))
    }
}

impl ToPython for AclPatternFilter {
    fn to_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        match self {
            Self::Any => "any",
            Self::Match => "match",
            Self::Only(pattern) => pattern.name(),
        }
        .into_bound_py_any(py)
    }
}

impl ToPython for Elected {
    fn to_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        match self {
            Self::Now => "now",
            _ => "already",
        }
        .into_bound_py_any(py)
    }
}

impl ToPython for ConfigResource {
    fn to_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let (kind, name) = super::from_python::resource_names(&self);
        class(py, "ConfigResource")?.call1((kind, name))
    }
}

/// The entity of a quota. A dictionary could not be a key.
pub(super) struct Entity(pub(super) BTreeMap<String, Option<String>>);

impl ToPython for Entity {
    fn to_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        class(py, "QuotaEntity")?.call1((self.0.to_python(py)?,))
    }
}
