//! The controller's metadata on disk: one line per append, replayed at the start.

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use curtail_wire::Uuid;
use serde::{Deserialize, Serialize};

use crate::{
    acl::Acl,
    config::{Endpoint, ListenerName},
    disk::{Disk, DiskFile},
    image::{BrokerImage, Endpoints, PartitionImage, PartitionKey, TopicImage},
    quota::{Entity, Limit},
    sasl::{Credential, Hash},
    settings::{Given, Whose},
    topic_config::TopicConfig,
};

const FILE: &str = "cluster-metadata.jsonl";

/// One change of the metadata.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Change {
    /// The first line: the cluster's id and its number of brokers (unknown in files of earlier
    /// versions).
    Cluster {
        id: String,
        brokers: Option<u32>,
    },
    Topic(TopicImage),
    Partition {
        key: PartitionKey,
        partition: PartitionImage,
    },
    DeleteTopic(Uuid),
    /// Ids below `end` may have been assigned.
    ProducerIds {
        end: i64,
    },
    Acl(Acl),
    DeleteAcl(Acl),
    /// A limit's value; `None` if it was removed.
    Quota {
        entity: Entity,
        limit: Limit,
        value: Option<f64>,
    },
    /// A user's credential; `None` if it was removed.
    Credential {
        user: String,
        mechanism: Hash,
        credential: Option<Arc<Credential>>,
    },
    /// All overrides of a broker, a group or client metrics.
    Settings {
        whose: Whose,
        given: Given,
    },
    /// A registration, for a controller that restarts while its brokers run.
    Broker(BrokerImage),
    /// The end of a registration on request.
    RemoveBroker(i32),
    /// The version of the metadata after the preceding changes.
    Version(u64),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Cluster {
        id: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        brokers: Option<u32>,
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
    Broker {
        id: i32,
        /// Earlier versions wrote `host` and `port` of their only listener. Without endpoints a
        /// broker is hidden from clients until it registers again.
        #[serde(default)]
        endpoints: Vec<EndpointLine>,
        inner: SocketAddr,
        epoch: i64,
        fenced: bool,
    },
    RemoveBroker(i32),
    Version(u64),
}

#[derive(Serialize, Deserialize)]
struct EndpointLine {
    listener: String,
    host: String,
    port: u16,
}

impl EndpointLine {
    fn all(endpoints: &Endpoints) -> Vec<Self> {
        let line = |(listener, endpoint): (&ListenerName, &Endpoint)| Self {
            listener: listener.to_string(),
            host: endpoint.host().to_owned(),
            port: endpoint.port(),
        };
        endpoints.iter().map(line).collect()
    }

    fn endpoint(&self) -> Option<(ListenerName, Endpoint)> {
        Some((ListenerName::new(&self.listener)?, Endpoint::stored(&self.host, self.port)))
    }
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
            Self::Cluster { id, brokers } => Line::Cluster { id: id.clone(), brokers: *brokers },
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
            Self::Broker(broker) => Line::Broker {
                id: broker.id,
                endpoints: EndpointLine::all(&broker.endpoints),
                inner: broker.inner,
                epoch: broker.epoch,
                fenced: broker.fenced,
            },
            Self::RemoveBroker(id) => Line::RemoveBroker(*id),
            Self::Version(version) => Line::Version(*version),
        }
    }

    fn from_line(line: Line) -> Option<Self> {
        Some(match line {
            Line::Cluster { id, brokers } => Self::Cluster { id, brokers },
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
            Line::Broker { id, endpoints, inner, epoch, fenced } => {
                let endpoints = endpoints.iter().map(EndpointLine::endpoint);
                let endpoints = Arc::new(endpoints.collect::<Option<Endpoints>>()?);
                Self::Broker(BrokerImage { id, endpoints, inner, epoch, fenced })
            }
            Line::RemoveBroker(id) => Self::RemoveBroker(id),
            Line::Version(version) => Self::Version(version),
        })
    }
}

/// The file that changes are appended to.
///
/// # Invariants
/// - [`Journal::append`] returns `Ok` only once the changes survive a crash of the machine.
/// - After a failed sync the file's content is unknown: a later sync may succeed without the lost
///   pages. The next append therefore replaces the whole file.
pub(super) struct Journal {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    /// `None` after a failed sync.
    file: Option<Box<dyn DiskFile>>,
    /// Whether appends are synced; only a planted bug disables it.
    pub(super) syncs: bool,
}

/// Encodes changes as one line: a CRC-32C of the JSON in hexadecimal, a space, and the JSON.
///
/// Changes of one append share a line, so that a torn append damages only the last line.
fn encode(changes: &[Change], out: &mut Vec<u8>) -> io::Result<()> {
    let lines: Vec<Line> = changes.iter().map(Change::to_line).collect();
    let json = serde_json::to_vec(&lines)?;
    out.extend_from_slice(format!("{:08x} ", crc32c::crc32c(&json)).as_bytes());
    out.extend_from_slice(&json);
    out.push(b'\n');
    Ok(())
}

/// Decodes a line; `None` if it is damaged.
fn decode(line: &[u8]) -> Option<Vec<Change>> {
    // Lines of earlier versions have no checksum and one change each.
    if line.first() == Some(&b'{') {
        return Some(vec![Change::from_line(serde_json::from_slice(line).ok()?)?]);
    }
    let (sum, json) = line.split_at_checked(9)?;
    let sum = std::str::from_utf8(sum).ok()?.strip_suffix(' ')?;
    if u32::from_str_radix(sum, 16).ok()? != crc32c::crc32c(json) {
        return None;
    }
    let lines: Vec<Line> = serde_json::from_slice(json).ok()?;
    lines.into_iter().map(Change::from_line).collect()
}

/// Returns the changes that an earlier run left in `dir`; none if the journal is missing or empty.
///
/// A damaged last line is an append that a crash tore: it was never acknowledged and is dropped.
///
/// # Errors
/// `InvalidData` if an earlier line is damaged.
pub(super) fn read(disk: &dyn Disk, dir: &Path) -> io::Result<Vec<Change>> {
    let path = dir.join(FILE);
    if !disk.exists(&path) {
        return Ok(Vec::new());
    }
    let bytes = disk.read_all(&path)?;
    let mut lines: Vec<&[u8]> = bytes.split(|b| *b == b'\n').collect();
    // Empty unless the last line lacks its newline.
    let unfinished = lines.pop().is_some_and(|rest| !rest.is_empty());
    let mut changes = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        match decode(line) {
            Some(decoded) => changes.extend(decoded),
            // The first line was written with the file in one step, so it cannot be torn.
            None if index > 0 && index + 1 == lines.len() && !unfinished => {
                tracing::warn!(file = %path.display(), "torn last line of the cluster metadata dropped");
            }
            None => return Err(damaged(&path, index + 1)),
        }
    }
    if unfinished {
        if lines.is_empty() {
            return Err(damaged(&path, 1));
        }
        tracing::warn!(file = %path.display(), "torn last line of the cluster metadata dropped");
    }
    Ok(changes)
}

fn damaged(path: &Path, line: usize) -> io::Error {
    let reason = format!(
        "line {line} of {} is damaged; restore the file from a copy, or move the directory away to start an empty cluster",
        path.display()
    );
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// Refuses a directory with logs but without metadata, because its brokers would delete the logs.
///
/// # Errors
/// `InvalidData` if a partition's directory exists.
pub(super) fn refuse_orphans(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    let brokers = match disk.list(dir) {
        Ok(entries) => entries.into_iter().filter(|path| is_numbered(path, "broker")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for broker in brokers {
        // A broker path that is no directory has no logs. The broker's start reports it.
        let logs = disk.list(&broker).unwrap_or_default();
        if let Some(log) = logs.iter().find(|path| is_numbered(path, "")) {
            let log = log.strip_prefix(dir).unwrap_or(log).display();
            let reason = format!(
                "it has logs ({log}) but {FILE} is missing or empty; restore that file from a copy, \
                 or move the directory away to start an empty cluster"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
    }
    Ok(())
}

/// Returns whether a path ends in a name, a hyphen and a number. An empty `name` matches any name.
fn is_numbered(path: &Path, name: &str) -> bool {
    let last = path.file_name().and_then(|last| last.to_str()).unwrap_or_default();
    last.rsplit_once('-').is_some_and(|(before, number)| {
        (before == name || name.is_empty()) && number.parse::<u32>().is_ok()
    })
}

impl Journal {
    /// Replaces the file in `dir` with `snapshot` and appends to it.
    pub(super) fn create(disk: Arc<dyn Disk>, dir: &Path, snapshot: &[Change]) -> io::Result<Self> {
        disk.create_dir_all(dir)?;
        let mut journal = Self { disk, dir: dir.to_owned(), file: None, syncs: true };
        journal.rewrite(snapshot)?;
        Ok(journal)
    }

    fn rewrite(&mut self, snapshot: &[Change]) -> io::Result<()> {
        let mut text = Vec::new();
        for change in snapshot {
            encode(std::slice::from_ref(change), &mut text)?;
        }
        let path = self.dir.join(FILE);
        self.disk.write_durable(&path, &text)?;
        self.file = Some(self.disk.open_append(&path)?);
        Ok(())
    }

    /// Makes changes durable. `snapshot` returns the whole state including them, in case the file
    /// must be replaced.
    ///
    /// # Errors
    /// The disk failed. The file may contain the changes or not; the next append decides.
    pub(super) fn append(
        &mut self,
        changes: &[Change],
        snapshot: impl FnOnce() -> Vec<Change>,
    ) -> io::Result<()> {
        let Some(mut file) = self.file.take() else { return self.rewrite(&snapshot()) };
        let mut line = Vec::new();
        encode(changes, &mut line)?;
        let before = file.len();
        if let Err(error) = file.append(&line) {
            // Earlier lines are intact, and a full disk may have no space for a second copy of
            // them.
            let restored = file.truncate(before).and_then(|()| file.sync());
            self.file = restored.is_ok().then_some(file);
            return Err(error);
        }
        if self.syncs
            && let Err(error) = file.sync()
        {
            // Best effort: a refused change should not reappear after a restart.
            drop(file.truncate(before).and_then(|()| file.sync()));
            return Err(error);
        }
        self.file = Some(file);
        Ok(())
    }
}
