//! The cluster of an experiment and its faults.

#[cfg(feature = "apache")]
mod apache;
mod embedded;
#[cfg(feature = "apache")]
mod jmx;
#[cfg(feature = "apache")]
mod proxy;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use curtail::error::Report;
use curtail::{
    Admin, AdminConfig, ConsumerConfig, ProducerConfig, TopicPartition,
    admin::{Election, NewTopic, PartitionDescription, Reassignment, TopicDescription},
    security::{Mechanism, SecurityConfig},
};
use curtail_cluster::{
    ClusterConfig, ClusterHandle, Fault, Listeners, Observer, Requests, SecurityProtocol, Time,
    User,
};
use tokio::runtime::Runtime;

#[cfg(feature = "apache")]
use self::apache::Apache;
use self::embedded::Embedded;
use super::{ClusterKind, Setting, load::sleep_until};
use crate::{
    perf::{Error, Result, client_runtime},
    timeline::{READER, Served, Timeline, Tracer},
};

/// Requirements of an experiment for its cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct Needs {
    /// Brokers of an embedded cluster. Apache Kafka has three, unless `one_is_enough`.
    pub(crate) brokers: u32,
    /// Whether a single broker is enough on Apache Kafka, too.
    #[cfg_attr(not(feature = "apache"), expect(dead_code, reason = "for Apache Kafka only"))]
    pub(crate) one_is_enough: bool,
    /// Broker settings by Kafka's names, over the defaults of Apache Kafka.
    pub(crate) properties: Vec<(&'static str, String)>,
    /// Broker settings of the user, over the experiment's.
    pub(crate) own_properties: Vec<(String, String)>,
    /// Whether the experiment kills, slows or moves brokers, which a user's cluster does not allow.
    pub(crate) faults: bool,
    /// The broker that [`Testbed::slow`] is used on, if any.
    #[cfg_attr(not(feature = "apache"), expect(dead_code, reason = "for Apache Kafka only"))]
    pub(crate) slow: Option<i32>,
    /// Whether clients and brokers are traced for timelines of slow records.
    pub(crate) trace: bool,
    /// Whether clients use SASL_SSL (PLAIN, with a certificate that the cluster creates). Embedded only.
    pub(crate) sasl_ssl: bool,
    /// Security settings of clients at an existing cluster.
    pub(crate) security: Option<SecurityConfig>,
}

/// Schedule of a broker that is frozen repeatedly.
#[derive(Clone, Copy, Debug)]
pub(super) struct Faltering {
    pub(super) from: Instant,
    pub(super) until: Instant,
    /// From the beginning of one freeze to that of the next.
    pub(super) period: Duration,
    /// Length of a freeze.
    pub(super) frozen: Duration,
}

/// Invocation of one of Kafka's tools.
pub(crate) struct KafkaTool<'a> {
    pub(crate) class: &'a str,
    pub(crate) args: &'a [&'a str],
    /// Release of the Java client that it uses, if not that of the tool.
    pub(crate) clients: Option<&'a str>,
    /// Timeout.
    pub(crate) limit: Duration,
}

/// Fetch session counters of brokers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sessions {
    pub(super) sessions: u64,
    pub(super) partitions: u64,
    /// Since the brokers started.
    pub(super) evictions: u64,
}

impl Needs {
    /// All broker settings; a later value replaces an earlier one.
    fn properties(&self) -> impl Iterator<Item = (&str, &str)> {
        let needed = self.properties.iter().map(|(name, value)| (*name, value.as_str()));
        let own = self.own_properties.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        needed.chain(own)
    }
}

impl Sessions {
    /// Sums over all brokers of a cluster in this process.
    pub(super) fn of(cluster: &ClusterHandle) -> Self {
        let ids = cluster.broker_ids().into_iter();
        ids.filter_map(|id| cluster.fetch_sessions(id)).fold(Self::default(), |sum, of| Self {
            sessions: sum.sessions + of.sessions as u64,
            partitions: sum.partitions + of.partitions as u64,
            evictions: sum.evictions + of.evictions,
        })
    }
}

/// The cluster of an experiment. It stops when this is dropped, unless it already existed.
pub struct Testbed {
    cluster: Cluster,
    /// Security settings of clients.
    security: SecurityConfig,
    tracer: Option<Tracer>,
    /// Runtime and client for topics and descriptions. `None` without a cluster.
    admin: Option<(Runtime, Admin)>,
}

enum Cluster {
    None,
    Embedded(Embedded),
    #[cfg(feature = "apache")]
    Apache(Box<Apache>),
    Foreign(String),
}

impl Testbed {
    /// A testbed for an experiment that needs no cluster.
    #[must_use]
    pub fn none() -> Self {
        Self {
            cluster: Cluster::None,
            security: SecurityConfig::default(),
            tracer: None,
            admin: None,
        }
    }

    /// Starts the cluster of a setting.
    pub(super) fn start(setting: &Setting, needs: &Needs) -> Result<Self> {
        let own_properties = setting.cluster_properties.clone();
        let security = setting.security.clone();
        let trace = setting.why;
        Self::on(&setting.cluster, &Needs { trace, own_properties, security, ..needs.clone() })
    }

    /// Starts a cluster of this kind, or connects to the one it names.
    pub(crate) fn on(cluster: &ClusterKind, needs: &Needs) -> Result<Self> {
        let cluster = match cluster {
            ClusterKind::Embedded => {
                let mut config =
                    ClusterConfig { brokers: needs.brokers, ..ClusterConfig::default() };
                for (name, value) in needs.properties() {
                    config.set(name, value).map_err(|e| Error::Cluster(e.to_string()))?;
                }
                if needs.sasl_ssl {
                    config.listeners = Listeners::local(SecurityProtocol::SaslSsl);
                    config.security.users = vec![User::new(USER, PASSWORD)];
                }
                Cluster::Embedded(Embedded::start(config)?)
            }
            ClusterKind::Apache | ClusterKind::Bootstrap(_) if needs.sasl_ssl => {
                let text = "SASL_SSL is measured on the embedded cluster only";
                return Err(Error::Options(text.into()));
            }
            ClusterKind::Sim => {
                return Err(Error::Options("the simulation starts its own cluster".into()));
            }
            ClusterKind::Apache => start_apache(needs)?,
            ClusterKind::Bootstrap(_) if needs.faults => {
                let text =
                    "this experiment kills or freezes brokers; run it on `embedded` or `apache`";
                return Err(Error::Options(text.into()));
            }
            ClusterKind::Bootstrap(_) if !needs.own_properties.is_empty() => {
                let text = "broker properties are for a cluster that the run starts";
                return Err(Error::Options(text.into()));
            }
            ClusterKind::Bootstrap(servers) => Cluster::Foreign(servers.clone()),
        };
        let security = needs.security.clone().unwrap_or_else(|| security(&cluster));
        let tracer = needs.trace.then(Tracer::install).transpose()?;
        let mut testbed = Self { cluster, security, tracer, admin: None };
        let runtime = client_runtime()?;
        let context = runtime.enter();
        let admin = Admin::new(testbed.admin_config(&testbed.bootstrap()))?;
        drop(context);
        testbed.admin = Some((runtime, admin));
        Ok(testbed)
    }

    /// `bootstrap.servers`; empty without a cluster.
    #[must_use]
    pub fn bootstrap(&self) -> String {
        match &self.cluster {
            Cluster::None => String::new(),
            Cluster::Embedded(embedded) => embedded.cluster().bootstrap(),
            #[cfg(feature = "apache")]
            Cluster::Apache(apache) => apache.bootstrap(),
            Cluster::Foreign(servers) => servers.clone(),
        }
    }

    /// Discards the trace so far.
    pub(super) fn begin_timeline(&self) -> Result<()> {
        if let Some(tracer) = &self.tracer {
            let _ = tracer.take(Instant::now(), Vec::new(), self.served()?);
        }
        Ok(())
    }

    /// The trace of a load to this topic whose first record was due at `start`; `None` without `--why`.
    pub(super) fn timeline(&self, topic: &str, start: Instant) -> Result<Option<Timeline>> {
        let Some(tracer) = &self.tracer else { return Ok(None) };
        let id = self.describe(topic)?.id.map(|id| id.to_string());
        let topics = std::iter::once(topic.to_owned()).chain(id).collect();
        Ok(Some(tracer.take(start, topics, self.served()?)))
    }

    /// Requests that the brokers have logged as served since the last call.
    fn served(&self) -> Result<Vec<Served>> {
        match &self.cluster {
            #[cfg(feature = "apache")]
            Cluster::Apache(apache) => apache.served(),
            _ => Ok(Vec::new()),
        }
    }

    /// A producer's settings: Kafka's defaults, for this cluster.
    pub(crate) fn producer(&self) -> ProducerConfig {
        ProducerConfig::new(self.bootstrap()).security(self.security.clone())
    }

    /// A consumer's settings: Kafka's defaults, for this cluster, and a `client.id` that timelines know.
    pub(crate) fn consumer(&self) -> ConsumerConfig {
        ConsumerConfig::new(self.bootstrap()).security(self.security.clone()).client_id(READER)
    }

    fn admin_config(&self, servers: &str) -> AdminConfig {
        AdminConfig::new(servers).security(self.security.clone())
    }

    /// The brokers' ids; empty if unknown.
    #[must_use]
    pub fn broker_ids(&self) -> Vec<i32> {
        match &self.cluster {
            Cluster::Embedded(embedded) => embedded.cluster().broker_ids(),
            #[cfg(feature = "apache")]
            Cluster::Apache(apache) => apache.broker_ids(),
            Cluster::None | Cluster::Foreign(_) => Vec::new(),
        }
    }

    /// The address of one broker.
    pub(super) fn address(&self, id: i32) -> Result<String> {
        match &self.cluster {
            Cluster::Embedded(embedded) => embedded
                .cluster()
                .broker(id)
                .map(|broker| broker.endpoint().to_string())
                .ok_or_else(|| unknown(id)),
            #[cfg(feature = "apache")]
            Cluster::Apache(apache) => apache.address(id),
            Cluster::None | Cluster::Foreign(_) => Err(unknown(id)),
        }
    }

    /// Creates a topic and waits until each broker reports every partition with a leader and all its replicas
    /// in sync.
    ///
    /// # Errors
    /// As the CreateTopics API.
    pub fn create_topic(&self, name: &str, partitions: i32, replicas: i16) -> Result<()> {
        self.create_topic_with(name, partitions, replicas, &[])
    }

    /// As [`Testbed::create_topic`], with settings of the topic.
    ///
    /// # Errors
    /// As the CreateTopics API.
    pub(crate) fn create_topic_with(
        &self,
        name: &str,
        partitions: i32,
        replicas: i16,
        settings: &[(&str, &str)],
    ) -> Result<()> {
        let (runtime, admin) = self.admin()?;
        let new = NewTopic::new(name).partitions(partitions).replication_factor(replicas);
        let new = settings.iter().fold(new, |new, (name, value)| new.config(*name, *value));
        runtime.block_on(async {
            for (_, created) in admin.create_topics(&[new]).await? {
                created?;
            }
            Ok::<_, curtail::Error>(())
        })?;
        self.await_healthy(name, usize::try_from(partitions).unwrap_or(0))
    }

    /// Deletes a topic.
    ///
    /// # Errors
    /// As the DeleteTopics API.
    pub fn delete_topic(&self, name: &str) -> Result<()> {
        let (runtime, admin) = self.admin()?;
        for (_, deleted) in runtime.block_on(admin.delete_topics(&[name]))? {
            deleted?;
        }
        Ok(())
    }

    /// Describes a topic, as any broker reports it.
    ///
    /// # Errors
    /// As the Metadata API.
    pub fn describe(&self, topic: &str) -> Result<TopicDescription> {
        let (runtime, admin) = self.admin()?;
        describe(runtime, admin, topic)
    }

    /// Waits until each broker lists every partition with a leader and all its replicas in sync.
    pub(crate) fn await_healthy(&self, topic: &str, partitions: usize) -> Result<()> {
        let (runtime, any) = self.admin()?;
        let mut admins = Vec::new();
        for id in self.broker_ids() {
            let _context = runtime.enter();
            admins.push(Admin::new(self.admin_config(&self.address(id)?))?);
        }
        if admins.is_empty() {
            admins.push(any.clone());
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        for admin in &admins {
            loop {
                let healthy = describe(runtime, admin, topic).is_ok_and(|topic| {
                    let whole = |p: &PartitionDescription| {
                        p.leader.is_some() && p.isr.len() == p.replicas.len()
                    };
                    topic.partitions.len() == partitions && topic.partitions.iter().all(whole)
                });
                if healthy {
                    break;
                }
                if Instant::now() > deadline {
                    let text = format!("not all replicas of {topic} are in sync after 60 s");
                    return Err(Error::Unexpected(text));
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(())
    }

    fn admin(&self) -> Result<&(Runtime, Admin)> {
        self.admin.as_ref().ok_or_else(|| Error::Options("no cluster is available".into()))
    }

    /// Kills a broker (SIGKILL).
    pub(crate) fn kill(&self, id: i32) -> Result<()> {
        match &self.cluster {
            Cluster::Embedded(embedded) => {
                embedded.cluster().kill(id);
                Ok(())
            }
            #[cfg(feature = "apache")]
            Cluster::Apache(apache) => apache.kill(id),
            Cluster::None | Cluster::Foreign(_) => Err(unbreakable()),
        }
    }

    /// Shuts a broker down (SIGTERM), which moves its leaders first.
    pub(super) fn stop(&self, id: i32) -> Result<()> {
        match &self.cluster {
            Cluster::Embedded(embedded) => embedded.stop(id),
            #[cfg(feature = "apache")]
            Cluster::Apache(apache) => apache.stop(id),
            Cluster::None | Cluster::Foreign(_) => Err(unbreakable()),
        }
    }

    /// Restarts a killed or stopped broker and waits until it serves requests.
    pub(crate) fn restart(&self, id: i32) -> Result<()> {
        match &self.cluster {
            Cluster::Embedded(embedded) => embedded.restart(id),
            #[cfg(feature = "apache")]
            Cluster::Apache(apache) => apache.restart(id),
            Cluster::None | Cluster::Foreign(_) => Err(unbreakable()),
        }
    }

    /// Freezes a broker (SIGSTOP).
    pub(super) fn freeze(&self, id: i32) -> Result<()> {
        match &self.cluster {
            Cluster::Embedded(embedded) => {
                embedded.cluster().freeze(id);
                Ok(())
            }
            #[cfg(feature = "apache")]
            Cluster::Apache(apache) => apache.freeze(id),
            Cluster::None | Cluster::Foreign(_) => Err(unbreakable()),
        }
    }

    /// Resumes a frozen broker (SIGCONT).
    pub(super) fn thaw(&self, id: i32) -> Result<()> {
        match &self.cluster {
            Cluster::Embedded(embedded) => {
                embedded.cluster().thaw(id);
                Ok(())
            }
            #[cfg(feature = "apache")]
            Cluster::Apache(apache) => apache.thaw(id),
            Cluster::None | Cluster::Foreign(_) => Err(unbreakable()),
        }
    }

    /// Makes a broker falter during a period: it is frozen for the first part of each cycle, as by garbage
    /// collection.
    pub(super) fn falter(&self, id: i32, faltering: &Faltering) -> Result<()> {
        let mut at = faltering.from;
        while at < faltering.until {
            sleep_until(at, Duration::ZERO);
            self.freeze(id)?;
            sleep_until(at, faltering.frozen);
            self.thaw(id)?;
            at += faltering.period;
        }
        Ok(())
    }

    /// Delays one broker's responses to produce requests.
    ///
    /// An embedded broker waits before each response and, as Kafka does, handles no other request of that
    /// connection during the wait. On Apache Kafka a proxy in front of the broker delays all its responses.
    pub(super) fn slow(&self, id: i32, delay: Duration) -> Result<()> {
        match &self.cluster {
            Cluster::Embedded(embedded) => {
                embedded.cluster().delay(Some(id), Some(PRODUCE), delay);
                Ok(())
            }
            #[cfg(feature = "apache")]
            Cluster::Apache(apache) => apache.slow(id, delay),
            Cluster::None | Cluster::Foreign(_) => Err(unbreakable()),
        }
    }

    /// Delays responses to these requests until [`Testbed::end_delays`]. Embedded only.
    pub(super) fn delay(&self, requests: Vec<Requests>, by: Duration) -> Result<()> {
        let Cluster::Embedded(embedded) = &self.cluster else { return Err(unbreakable()) };
        for requests in requests {
            let injected = embedded.cluster().inject(Fault::delay(requests, Time::Fixed(by)));
            injected.map_err(|error| Error::Cluster(Report::new(&error).to_string()))?;
        }
        Ok(())
    }

    /// Ends the delays of [`Testbed::delay`]. Embedded only.
    pub(super) fn end_delays(&self) -> Result<()> {
        let Cluster::Embedded(embedded) = &self.cluster else { return Err(unbreakable()) };
        embedded.cluster().lift_all();
        Ok(())
    }

    /// Registers an observer at the brokers; returns `false` if they cannot be observed.
    pub(super) fn observe(&self, observer: Arc<dyn Observer>) -> bool {
        let Cluster::Embedded(embedded) = &self.cluster else { return false };
        embedded.cluster().observe(observer);
        true
    }

    /// Removes the observer.
    pub(super) fn stop_observing(&self) {
        if let Cluster::Embedded(embedded) = &self.cluster {
            embedded.cluster().stop_observing();
        }
    }

    /// Fetch session counters of all brokers together.
    pub(super) fn fetch_sessions(&self) -> Result<Sessions> {
        match &self.cluster {
            Cluster::Embedded(embedded) => Ok(Sessions::of(embedded.cluster())),
            #[cfg(feature = "apache")]
            Cluster::Apache(apache) => apache.fetch_sessions(),
            Cluster::None | Cluster::Foreign(_) => Err(unbreakable()),
        }
    }

    /// Runs one of Kafka's tools and returns its output; `None` if Apache Kafka is not installed.
    pub(crate) fn tool(&self, tool: &KafkaTool<'_>) -> Result<Option<String>> {
        match &self.cluster {
            #[cfg(feature = "apache")]
            Cluster::Apache(apache) => apache.tool(tool).map(Some),
            _ => {
                let _ = (tool.class, tool.args, tool.clients, tool.limit);
                Ok(None)
            }
        }
    }

    /// A partition's log files at one broker, oldest first; `None` unless they belong to an Apache Kafka
    /// started here.
    pub(crate) fn log_files(
        &self,
        id: i32,
        topic: &str,
        partition: i32,
    ) -> Result<Option<Vec<PathBuf>>> {
        match &self.cluster {
            #[cfg(feature = "apache")]
            Cluster::Apache(apache) => apache.log_files(id, topic, partition).map(Some),
            _ => {
                let _ = (id, topic, partition);
                Ok(None)
            }
        }
    }

    /// A partition's in-sync replicas, starting with the one after the leader. Embedded only.
    pub(super) fn next_leaders(&self, topic: &str, partition: i32) -> Result<Vec<i32>> {
        let Cluster::Embedded(embedded) = &self.cluster else { return Err(unbreakable()) };
        let cluster = embedded.cluster();
        let failed = |reason| Error::Unexpected(format!("{topic}-{partition}: {reason}"));
        let leader = cluster.leader(topic, partition).map(|(leader, _)| leader);
        let leader = leader.ok_or_else(|| failed("it has no leader"))?;
        let mut in_sync = cluster.isr(topic, partition).unwrap_or_default();
        let at = in_sync.iter().position(|id| *id == leader).filter(|_| in_sync.len() > 1);
        in_sync.rotate_left(at.ok_or_else(|| failed("no other replica is in sync"))? + 1);
        Ok(in_sync)
    }

    /// Moves the leadership of a partition to an in-sync replica. Embedded only.
    pub(super) fn move_leader(&self, topic: &str, partition: i32, to: i32) -> Result<()> {
        let Cluster::Embedded(embedded) = &self.cluster else { return Err(unbreakable()) };
        let moved = embedded.cluster().move_leader(topic, partition, to);
        moved.map_err(|error| {
            Error::Unexpected(format!("{topic}-{partition}: {}", Report::new(&error)))
        })
    }

    /// Sets the metadata propagation delay of each broker from now on. Embedded only.
    pub(super) fn set_metadata_delays(&self, delays: &BTreeMap<i32, Duration>) -> Result<()> {
        let Cluster::Embedded(embedded) = &self.cluster else { return Err(unbreakable()) };
        for (&broker, &delay) in delays {
            embedded.cluster().set_metadata_delay(broker, delay);
        }
        Ok(())
    }

    /// Moves the leadership of a partition, or of every partition of the topic at once, to the next replica. Apache
    /// Kafka only.
    ///
    /// A reassignment changes only the order of the replicas; an election of the preferred ones follows.
    pub(super) fn rotate_leaders(&self, topic: &str, only: Option<i32>) -> Result<()> {
        let (runtime, admin) = self.admin()?;
        let mut described = describe(runtime, admin, topic)?;
        described.partitions.retain(|p| only.is_none_or(|only| p.partition == only));
        let partitions: Vec<TopicPartition> =
            described.partitions.iter().map(|p| TopicPartition::new(topic, p.partition)).collect();
        let rotated = described.partitions.iter().zip(&partitions).map(|(described, partition)| {
            let mut replicas = described.replicas.clone();
            let leads = |id: &i32| Some(*id) == described.leader;
            let leader = replicas.iter().position(leads).unwrap_or(0);
            let next = (leader + 1) % replicas.len().max(1);
            replicas.rotate_left(next);
            (partition.clone(), Reassignment::To(replicas))
        });
        let rotated: Vec<_> = rotated.collect();
        runtime.block_on(async {
            for (_, done) in admin.alter_partition_reassignments(&rotated).await? {
                done?;
            }
            elect(admin, &partitions).await
        })
    }

    /// Makes the first replica of each partition its leader.
    pub(super) fn elect_preferred(&self, topic: &str) -> Result<()> {
        let (runtime, admin) = self.admin()?;
        let described = describe(runtime, admin, topic)?;
        let partitions: Vec<TopicPartition> =
            described.partitions.iter().map(|p| TopicPartition::new(topic, p.partition)).collect();
        runtime.block_on(elect(admin, &partitions))
    }
}

async fn elect(admin: &Admin, partitions: &[TopicPartition]) -> Result<()> {
    for (_, done) in admin.elect_leaders(Election::Preferred, partitions).await? {
        done?;
    }
    Ok(())
}

/// SASL user. The cluster lives as long as the experiment and listens on loopback.
const USER: &str = "lab";
const PASSWORD: &str = "lab-password";

/// Security settings of clients.
fn security(cluster: &Cluster) -> SecurityConfig {
    match cluster {
        Cluster::Embedded(embedded) => match embedded.cluster().ca_file() {
            Some(file) => {
                SecurityConfig::sasl_ssl(Mechanism::Plain, USER, PASSWORD).truststore(file, None)
            }
            None => SecurityConfig::default(),
        },
        _ => SecurityConfig::default(),
    }
}

/// The key of the Produce API.
const PRODUCE: i16 = 0;

fn describe(runtime: &Runtime, admin: &Admin, topic: &str) -> Result<TopicDescription> {
    let described = runtime.block_on(admin.describe_topics(&[topic]))?;
    let first = described.into_iter().next().map(|(_, described)| described);
    Ok(first.unwrap_or_else(|| Err(curtail::Error::UnknownTopic(topic.into())))?)
}

/// Versions of the components of a cluster of this kind, by name.
pub(crate) fn versions(cluster: &ClusterKind) -> BTreeMap<String, String> {
    #[cfg(feature = "apache")]
    if *cluster == ClusterKind::Apache
        && let Ok(toolchain) = curtail_apache::available()
    {
        let kafka = curtail_apache::KAFKA_VERSION.to_owned();
        let java = toolchain.java_version().to_string();
        return [("Apache Kafka".to_owned(), kafka), ("Java".to_owned(), java)].into();
    }
    let _ = cluster;
    BTreeMap::new()
}

fn unknown(id: i32) -> Error {
    Error::Options(format!("this cluster has no broker {id}"))
}

fn unbreakable() -> Error {
    Error::Options("this cluster does not support this fault".into())
}

#[cfg(feature = "apache")]
fn start_apache(needs: &Needs) -> Result<Cluster> {
    Ok(Cluster::Apache(Box::new(Apache::start(needs)?)))
}

#[cfg(not(feature = "apache"))]
fn start_apache(_: &Needs) -> Result<Cluster> {
    Err(Error::Options("built without --cluster apache; build with the feature `apache`".into()))
}
