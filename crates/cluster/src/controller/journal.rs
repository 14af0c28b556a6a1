//! The controller's memory on disk: one JSON line per change, replayed at the start.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use curtail_wire::Uuid;
use serde::{Deserialize, Serialize};

use crate::{
    acl::Acl,
    disk::{Disk, DiskFile},
    image::{PartitionImage, PartitionKey, TopicImage},
    quota::{Entity, Limit},
    sasl::{Credential, Hash},
    settings::{Given, Whose},
    topic_config::TopicConfig,
};

const FILE: &str = "cluster-metadata.jsonl";

/// One change of the metadata.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Change {
    /// The first line: whose metadata this is.
    Cluster {
        id: String,
    },
    Topic(TopicImage),
    Partition {
        key: PartitionKey,
        partition: PartitionImage,
    },
    DeleteTopic(Uuid),
    /// Ids below `end` may have been handed out.
    ProducerIds {
        end: i64,
    },
    Acl(Acl),
    DeleteAcl(Acl),
    /// A limit's value, or none if it is gone.
    Quota {
        entity: Entity,
        limit: Limit,
        value: Option<f64>,
    },
    /// What is kept of a user's password, or none if it is gone.
    Credential {
        user: String,
        mechanism: Hash,
        credential: Option<Arc<Credential>>,
    },
    /// All that is given to a broker or a group.
    Settings {
        whose: Whose,
        given: Given,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Cluster {
        id: String,
    },
    Topic {
        name: String,
        id: String,
        config: BTreeMap<String, String>,
        partitions: Vec<PartitionLine>,
    },
    Partition {
        topic: String,
        index: i32,
        partition: PartitionLine,
    },
    DeleteTopic {
        topic: String,
    },
    ProducerIds {
        end: i64,
    },
    Acl(Acl),
    DeleteAcl(Acl),
    Quota {
        entity: Entity,
        limit: Limit,
        value: Option<f64>,
    },
    Credential {
        user: String,
        mechanism: Hash,
        credential: Option<Credential>,
    },
    Settings {
        whose: Whose,
        given: Given,
    },
}

#[derive(Serialize, Deserialize)]
struct PartitionLine {
    leader: i32,
    leader_epoch: i32,
    partition_epoch: i32,
    isr: Vec<i32>,
    replicas: Vec<i32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    adding: Vec<i32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    removing: Vec<i32>,
}

impl From<&PartitionImage> for PartitionLine {
    fn from(p: &PartitionImage) -> Self {
        Self {
            leader: p.leader,
            leader_epoch: p.leader_epoch,
            partition_epoch: p.partition_epoch,
            isr: p.isr.to_vec(),
            replicas: p.replicas.to_vec(),
            adding: p.adding.to_vec(),
            removing: p.removing.to_vec(),
        }
    }
}

impl From<PartitionLine> for PartitionImage {
    fn from(p: PartitionLine) -> Self {
        Self {
            leader: p.leader,
            leader_epoch: p.leader_epoch,
            partition_epoch: p.partition_epoch,
            isr: p.isr.into(),
            replicas: p.replicas.into(),
            adding: p.adding.into(),
            removing: p.removing.into(),
        }
    }
}

impl Change {
    fn to_line(&self) -> Line {
        match self {
            Self::Cluster { id } => Line::Cluster { id: id.clone() },
            Self::Topic(topic) => Line::Topic {
                name: topic.name.to_string(),
                id: topic.id.to_string(),
                config: topic.config.given().clone(),
                partitions: topic.partitions.iter().map(PartitionLine::from).collect(),
            },
            Self::Partition { key, partition } => Line::Partition {
                topic: key.topic.to_string(),
                index: key.index,
                partition: partition.into(),
            },
            Self::DeleteTopic(id) => Line::DeleteTopic { topic: id.to_string() },
            Self::ProducerIds { end } => Line::ProducerIds { end: *end },
            Self::Acl(acl) => Line::Acl(acl.clone()),
            Self::DeleteAcl(acl) => Line::DeleteAcl(acl.clone()),
            Self::Quota { entity, limit, value } => {
                Line::Quota { entity: entity.clone(), limit: *limit, value: *value }
            }
            Self::Credential { user, mechanism, credential } => Line::Credential {
                user: user.clone(),
                mechanism: *mechanism,
                credential: credential.as_deref().cloned(),
            },
            Self::Settings { whose, given } => {
                Line::Settings { whose: whose.clone(), given: given.clone() }
            }
        }
    }

    fn from_line(line: Line) -> Option<Self> {
        Some(match line {
            Line::Cluster { id } => Self::Cluster { id },
            Line::Topic { name, id, config, partitions } => Self::Topic(TopicImage {
                name: name.into(),
                id: id.parse().ok()?,
                config: Arc::new(TopicConfig::new(config).ok()?),
                partitions: partitions.into_iter().map(PartitionImage::from).collect(),
            }),
            Line::Partition { topic, index, partition } => Self::Partition {
                key: PartitionKey { topic: topic.parse().ok()?, index },
                partition: partition.into(),
            },
            Line::DeleteTopic { topic } => Self::DeleteTopic(topic.parse().ok()?),
            Line::ProducerIds { end } => Self::ProducerIds { end },
            Line::Acl(acl) => Self::Acl(acl),
            Line::DeleteAcl(acl) => Self::DeleteAcl(acl),
            Line::Quota { entity, limit, value } => Self::Quota { entity, limit, value },
            Line::Credential { user, mechanism, credential } => {
                Self::Credential { user, mechanism, credential: credential.map(Arc::new) }
            }
            Line::Settings { whose, given } => Self::Settings { whose, given },
        })
    }
}

/// The file changes are appended to.
pub(super) struct Journal {
    file: Box<dyn DiskFile>,
}

fn encode(changes: &[Change]) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    for change in changes {
        serde_json::to_writer(&mut text, &change.to_line())?;
        text.push(b'\n');
    }
    Ok(text)
}

/// The changes an earlier run left in `dir`. A last line without its end was torn by a kill and is dropped.
pub(super) fn read(disk: &dyn Disk, dir: &Path) -> io::Result<Vec<Change>> {
    let path = dir.join(FILE);
    if !disk.exists(&path) {
        return Ok(Vec::new());
    }
    let bytes = disk.read_all(&path)?;
    let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
    let lines = bytes[..whole].split(|b| *b == b'\n').filter(|line| !line.is_empty());
    lines
        .zip(1..)
        .map(|(line, number)| {
            let parsed = serde_json::from_slice(line).ok().and_then(Change::from_line);
            parsed.ok_or_else(|| invalid(&path, number))
        })
        .collect()
}

fn invalid(path: &Path, line: usize) -> io::Error {
    let reason = format!("{}: line {line} is not cluster metadata", path.display());
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

impl Journal {
    /// Replaces what is in `dir` by `snapshot` and appends from there.
    pub(super) fn create(disk: &dyn Disk, dir: &Path, snapshot: &[Change]) -> io::Result<Self> {
        disk.create_dir_all(dir)?;
        let path: PathBuf = dir.join(FILE);
        disk.write_atomic(&path, &encode(snapshot)?)?;
        Ok(Self { file: disk.open_append(&path)? })
    }

    /// Appends changes.
    pub(super) fn append(&mut self, changes: &[Change]) -> io::Result<()> {
        let before = self.file.len();
        let written = self.file.append(&encode(changes)?);
        if written.is_err() {
            self.file.truncate(before)?;
        }
        written
    }
}
