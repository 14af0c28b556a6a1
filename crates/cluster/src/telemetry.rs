//! Metrics of clients (KIP-714): their subscriptions on one broker, as Kafka's `ClientMetricsManager`, and the receiver.
//!
//! As in Apache Kafka without a plugin, clients are not offered the APIs while there is no receiver.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::{Arc, OnceLock},
    time::Duration,
};

use bytes::Bytes;
use curtail_wire::{ErrorCode, Uuid, compression::Codec};
use parking_lot::RwLock;
use tokio::time::Instant;

use crate::settings::{Changed, DEFAULT_INTERVAL, Given, Subscription, subscriptions};

/// Codecs that clients may use, the preferred one first. A payload without compression is always accepted.
pub(crate) const CODECS: [Codec; 4] = [Codec::Zstd, Codec::Lz4, Codec::Gzip, Codec::Snappy];

/// The request for all metrics.
const ALL: &str = "*";

/// Instances per broker.
const MOST_INSTANCES: usize = 16_384;

/// A silent client is forgotten after three push intervals, and no sooner than this.
const LEAST_EXPIRY: Duration = Duration::from_secs(60);

/// Metrics that a client has pushed, as the receiver of [`ClusterHandle::receive_client_metrics`] gets them.
///
/// [`ClusterHandle::receive_client_metrics`]: crate::ClusterHandle::receive_client_metrics
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientMetrics {
    /// The broker that has received them.
    pub broker: i32,
    /// Address of the client.
    pub peer: IpAddr,
    /// The client id; empty if the client has none.
    pub client_id: String,
    /// The id that a broker has assigned to the client.
    pub client_instance_id: Uuid,
    /// Name and version of the client's software, if it has named it (KIP-511).
    pub software: Option<(String, String)>,
    /// Whether the client says that these are its last.
    pub terminating: bool,
    /// The codec of the payload in the request.
    pub codec: Codec,
    /// The payload, decompressed: `MetricsData` of OpenTelemetry's protocol, version 1, in protobuf.
    pub metrics: Bytes,
}

/// Receives pushed metrics. With an error the client's push is refused with INVALID_RECORD.
pub(crate) type Receiver = Arc<dyn Fn(ClientMetrics) -> Result<(), String> + Send + Sync>;

/// Holds the receiver.
#[derive(Default)]
pub(crate) struct Receivers(RwLock<Option<Receiver>>);

impl Receivers {
    pub(crate) fn set(&self, receiver: Option<Receiver>) {
        *self.0.write() = receiver;
    }

    pub(crate) fn get(&self) -> Option<Receiver> {
        self.0.read().clone()
    }

    /// Returns whether there is a receiver.
    pub(crate) fn is_present(&self) -> bool {
        self.0.read().is_some()
    }
}

/// The connection of a request, as subscriptions distinguish clients.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) ip: IpAddr,
    pub(crate) port: u16,
    /// Identifies the connection on its broker.
    pub(crate) connection: u64,
    /// Name and version of the software, once the client has named them (KIP-511).
    pub(crate) software: OnceLock<(String, String)>,
}

impl Origin {
    pub(crate) fn new(ip: IpAddr, port: u16, connection: u64) -> Self {
        Self { ip, port, connection, software: OnceLock::new() }
    }

    /// Returns what `match` of a subscription compares.
    fn attributes(&self, id: Uuid, client_id: &str) -> BTreeMap<&'static str, String> {
        let mut attributes = BTreeMap::from([
            ("client_instance_id", id.to_string()),
            ("client_id", client_id.to_owned()),
            ("client_source_address", self.ip.to_string()),
            ("client_source_port", self.port.to_string()),
        ]);
        if let Some((name, version)) = self.software.get() {
            attributes.insert("client_software_name", name.clone());
            attributes.insert("client_software_version", version.clone());
        }
        attributes
    }
}

/// What a client is subscribed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) id: i32,
    pub(crate) metrics: BTreeSet<String>,
    pub(crate) interval: Duration,
}

impl Asked {
    /// Merges the subscriptions that apply to a client.
    fn of<'a>(client: Uuid, applicable: impl Iterator<Item = &'a Subscription>) -> Self {
        let (mut metrics, mut interval) = (BTreeSet::new(), DEFAULT_INTERVAL);
        for subscription in applicable {
            metrics.extend(subscription.metrics.iter().cloned());
            interval = interval.min(subscription.interval);
        }
        if metrics.contains(ALL) {
            metrics = BTreeSet::from([ALL.to_owned()]);
        }
        Self { id: subscription_id(&metrics, interval, client), metrics, interval }
    }
}

/// Kafka's id of a subscription: the CRC-32C of the metrics and the interval, XORed with the hash of the client's id. The
/// order of several metrics is that of a Java set there, and of their names here.
fn subscription_id(metrics: &BTreeSet<String>, interval: Duration, client: Uuid) -> i32 {
    let list: Vec<&str> = metrics.iter().map(String::as_str).collect();
    let text = format!("[{}]{}", list.join(", "), interval.as_millis());
    let bits = u128::from_be_bytes(client.0);
    let halves = (bits >> 64) as u64 ^ bits as u64;
    let hash = (halves >> 32) as u32 ^ halves as u32;
    (crc32c::crc32c(text.as_bytes()) ^ hash) as i32
}

/// The clients that have asked one broker for their subscriptions.
#[derive(Debug, Default)]
pub(crate) struct Instances {
    by_id: BTreeMap<Uuid, Instance>,
    /// The subscriptions in force, and the settings that they were made from.
    subscriptions: Vec<Subscription>,
    made_from: BTreeMap<String, Arc<Given>>,
    /// Increases with each change of a subscription.
    version: u64,
}

#[derive(Debug)]
struct Instance {
    asked: Asked,
    version: u64,
    /// The connection that it was made for.
    connection: u64,
    last_get: Option<Instant>,
    last_push: Option<Instant>,
    terminating: bool,
    expires: Instant,
}

impl Instance {
    /// As `maybeUpdateGetRequestTimestamp` of Kafka.
    fn may_get(&mut self, now: Instant) -> bool {
        let last = self.last_get.max(self.last_push);
        let may =
            last.is_none_or(|last| now.saturating_duration_since(last) >= self.asked.interval);
        if may {
            self.last_get = Some(now);
        }
        may
    }

    /// As `maybeUpdatePushRequestTimestamp` of Kafka: the first push after a subscription may come early, because clients
    /// spread their first pushes.
    fn may_push(&mut self, now: Instant) -> bool {
        let is_first = self.last_get > self.last_push;
        let interval = self.asked.interval;
        let may = is_first
            || self.last_push.is_none_or(|last| now.saturating_duration_since(last) >= interval);
        if may {
            self.last_push = Some(now);
        }
        may
    }
}

/// The checked part of a PushTelemetry request.
pub(crate) struct Pushed {
    pub(crate) subscription_id: i32,
    pub(crate) terminating: bool,
    pub(crate) compression: i8,
    pub(crate) bytes: usize,
}

impl Instances {
    /// Returns a client's subscription.
    ///
    /// # Errors
    /// THROTTLING_QUOTA_EXCEEDED before the end of the push interval. As in Kafka also after a push was refused because the
    /// subscription had changed: its exception for that case never applies.
    pub(crate) fn get(
        &mut self,
        changed: &Changed,
        id: Uuid,
        (origin, client_id): (&Origin, &str),
        now: Instant,
    ) -> Result<Asked, ErrorCode> {
        let instance = self.instance(changed, id, (origin, client_id), now);
        match instance.may_get(now) {
            true => Ok(instance.asked.clone()),
            false => Err(ErrorCode::THROTTLING_QUOTA_EXCEEDED),
        }
    }

    /// Checks a push. Returns the codec of its payload.
    ///
    /// # Errors
    /// Kafka's error code.
    pub(crate) fn push(
        &mut self,
        changed: &Changed,
        id: Uuid,
        client: (&Origin, &str),
        pushed: &Pushed,
        max_bytes: usize,
        now: Instant,
    ) -> Result<Codec, ErrorCode> {
        let instance = self.instance(changed, id, client, now);
        let checked = Self::check(instance, pushed, max_bytes, now);
        instance.terminating = pushed.terminating;
        checked
    }

    fn check(
        instance: &mut Instance,
        pushed: &Pushed,
        max_bytes: usize,
        now: Instant,
    ) -> Result<Codec, ErrorCode> {
        if instance.terminating {
            return Err(ErrorCode::INVALID_REQUEST);
        }
        if !instance.may_push(now) && !pushed.terminating {
            return Err(ErrorCode::THROTTLING_QUOTA_EXCEEDED);
        }
        if pushed.subscription_id != instance.asked.id {
            return Err(ErrorCode::UNKNOWN_SUBSCRIPTION_ID);
        }
        let codec = u8::try_from(pushed.compression).ok().and_then(Codec::from_id);
        let codec = codec.ok_or(ErrorCode::UNSUPPORTED_COMPRESSION_TYPE)?;
        if pushed.bytes > max_bytes {
            return Err(ErrorCode::TELEMETRY_TOO_LARGE);
        }
        Ok(codec)
    }

    /// Forgets the client of a connection that has ended.
    pub(crate) fn disconnected(&mut self, connection: u64) {
        self.by_id.retain(|_, instance| instance.connection != connection);
    }

    /// Returns a client's instance, a new one if its subscription may have changed.
    fn instance(
        &mut self,
        changed: &Changed,
        id: Uuid,
        (origin, client_id): (&Origin, &str),
        now: Instant,
    ) -> &mut Instance {
        self.refresh(changed);
        self.by_id.retain(|_, instance| instance.expires > now);
        if self.by_id.get(&id).is_none_or(|known| known.version != self.version) {
            self.by_id.remove(&id);
            self.make_room();
        }
        let Self { by_id, subscriptions, version, .. } = self;
        let instance = by_id.entry(id).or_insert_with(|| {
            let attributes = origin.attributes(id, client_id);
            let applicable = subscriptions.iter().filter(|one| one.is_for(&attributes));
            Instance {
                asked: Asked::of(id, applicable),
                version: *version,
                connection: origin.connection,
                last_get: None,
                last_push: None,
                terminating: false,
                expires: now,
            }
        });
        instance.expires = now + LEAST_EXPIRY.max(instance.asked.interval * 3);
        instance
    }

    fn make_room(&mut self) {
        if self.by_id.len() < MOST_INSTANCES {
            return;
        }
        let first = self.by_id.iter().min_by_key(|(_, instance)| instance.expires);
        if let Some(id) = first.map(|(id, _)| *id) {
            self.by_id.remove(&id);
        }
    }

    /// Takes over changed subscriptions.
    fn refresh(&mut self, changed: &Changed) {
        let found: Vec<_> = subscriptions(changed).collect();
        let is_same = found.len() == self.made_from.len()
            && found.iter().all(|(name, given, _)| self.made_from.get(*name) == Some(given));
        if is_same {
            return;
        }
        self.version += 1;
        self.made_from =
            found.iter().map(|(name, given, _)| ((*name).to_owned(), Arc::clone(given))).collect();
        self.subscriptions = found.into_iter().map(|(_, _, subscription)| subscription).collect();
    }
}
