//! Results of the admin client as values of Python: data classes of `curtail_kafka.admin`, and dictionaries.

use std::{collections::BTreeMap, time::Duration};

use curtail::{
    Error, Result, TopicPartition, Uuid,
    admin::{
        Acl, AclFilter, AclOperation, AclPattern, AclPatternFilter, AclPermission, AclResource,
        BrokerDescription, ClusterDescription, ConfigEntry, ConfigResource, ConfigSource,
        ConfigSynonym, Each, Elected, Features, FencedProducer, GroupDescription, GroupKind,
        GroupListing, GroupState, ListedOffset, LogDir, LogDirMove, LogDirReplica,
        MemberDescription, OngoingReassignment, PartitionDescription, ProducerState,
        QuorumDescription, QuorumReplica, ScramCredential, ScramMechanism, TopicDescription,
        TopicListing, TransactionDescription, TransactionListing,
    },
    transaction::OffsetAndMetadata,
};

use crate::tree::Tree;

/// Conversion of a result.
pub(super) trait ToTree {
    fn tree(self) -> Tree;
}

/// Results by item, as a dictionary.
pub(super) fn each<K: ToTree, T: ToTree>(each: Each<K, T>) -> Tree {
    dict(each)
}

/// Results whose values are results by item.
pub(super) fn each_of_each<K: ToTree, L: ToTree, T: ToTree>(outer: Each<K, Each<L, T>>) -> Tree {
    let inner = |inner: Result<Each<L, T>>| inner.map_or_else(error, each);
    Tree::Dict(outer.into_iter().flat_map(|(key, each)| [key.tree(), inner(each)]).collect())
}

fn dict<K: ToTree, V: ToTree>(items: impl IntoIterator<Item = (K, V)>) -> Tree {
    let items = items.into_iter().flat_map(|(key, value)| [key.tree(), value.tree()]);
    Tree::Dict(items.collect())
}

fn error(error: Error) -> Tree {
    Tree::Error(Box::new(error))
}

macro_rules! numbers {
    ($($type:ty: $variant:ident),*) => {$(
        impl ToTree for $type {
            fn tree(self) -> Tree {
                Tree::$variant(self.into())
            }
        }
    )*};
}

numbers! { bool: Bool, i16: Int, i32: Int, i64: Int, u16: Int, u64: Unsigned, f64: Float, String: Text }

impl ToTree for usize {
    fn tree(self) -> Tree {
        Tree::Unsigned(self as u64)
    }
}

impl ToTree for (i16, i16) {
    fn tree(self) -> Tree {
        Tree::Tuple(vec![self.0.tree(), self.1.tree()])
    }
}

/// Enums, as Kafka's names.
macro_rules! named {
    ($($type:ty)*) => {$(
        impl ToTree for $type {
            fn tree(self) -> Tree {
                Tree::Text(self.name().to_string())
            }
        }
    )*};
}

named! { AclOperation AclPattern AclPermission AclResource ConfigSource GroupKind GroupState ScramMechanism }

/// Data classes with the same names and fields.
macro_rules! data_classes {
    ($($type:ident { $($field:ident)* })*) => {$(
        impl ToTree for $type {
            fn tree(self) -> Tree {
                let fields = vec![$(self.$field.tree()),*];
                Tree::Object(stringify!($type), &[$(stringify!($field)),*], fields)
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
    FencedProducer { producer_id producer_epoch }
    LogDirMove { broker partition path }
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

impl ToTree for LogDir {
    fn tree(self) -> Tree {
        let fields = vec![
            self.path.tree(),
            self.state.tree(),
            self.replicas.tree(),
            self.total_bytes.tree(),
            self.usable_bytes.tree(),
        ];
        let names = &["path", "error", "replicas", "total_bytes", "usable_bytes"];
        Tree::Object("LogDir", names, fields)
    }
}

impl ToTree for () {
    fn tree(self) -> Tree {
        Tree::None
    }
}

impl<T: ToTree> ToTree for Result<T> {
    fn tree(self) -> Tree {
        self.map_or_else(error, ToTree::tree)
    }
}

impl<T: ToTree> ToTree for Option<T> {
    fn tree(self) -> Tree {
        self.map_or(Tree::None, ToTree::tree)
    }
}

impl<T: ToTree> ToTree for Vec<T> {
    fn tree(self) -> Tree {
        Tree::List(self.into_iter().map(ToTree::tree).collect())
    }
}

impl<K: ToTree, V: ToTree> ToTree for BTreeMap<K, V> {
    fn tree(self) -> Tree {
        dict(self)
    }
}

impl ToTree for TopicPartition {
    fn tree(self) -> Tree {
        Tree::from(&self)
    }
}

impl ToTree for Duration {
    fn tree(self) -> Tree {
        self.as_secs_f64().tree()
    }
}

impl ToTree for Uuid {
    fn tree(self) -> Tree {
        Tree::Object("UUID", &["bytes"], vec![Tree::Bytes(self.0.to_vec())])
    }
}

impl ToTree for AclPatternFilter {
    fn tree(self) -> Tree {
        Tree::Name(match self {
            Self::Any => "any",
            Self::Match => "match",
            Self::Only(pattern) => pattern.name(),
        })
    }
}

impl ToTree for Elected {
    fn tree(self) -> Tree {
        Tree::Name(match self {
            Self::Now => "now",
            _ => "already",
        })
    }
}

impl ToTree for ConfigResource {
    fn tree(self) -> Tree {
        let (kind, name) = super::from_python::resource_names(&self);
        Tree::Object("ConfigResource", &[], vec![Tree::Name(kind), name.tree()])
    }
}

/// The entity of a quota. A dictionary could not be a key.
pub(super) struct Entity(pub(super) BTreeMap<String, Option<String>>);

impl ToTree for Entity {
    fn tree(self) -> Tree {
        Tree::Object("QuotaEntity", &[], vec![self.0.tree()])
    }
}
