//! One or three KRaft brokers on loopback.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::ports::{self, Port};
use crate::probe;
use crate::process::{Server, Start, Watchdog, lock, log_tail, make_directory};
use crate::tool::Output;
use crate::toolchain::{Toolchain, available};

const CLUSTER_ID: &str = "MkU3OEVBNTcwNTJENDM2Qk";
const START_LIMIT: Duration = Duration::from_secs(90);
const STOP_LIMIT: Duration = Duration::from_secs(60);
/// Delay between two checks of a broker's metadata while it does not list its peers yet.
const PROBE_PAUSE: Duration = Duration::from_millis(20);
const TAIL_LINES: usize = 25;
/// The files that formatting creates in a broker's data directory.
const PROPERTIES: &str = "meta.properties";
const BOOTSTRAP: &str = "bootstrap.checkpoint";

/// How long brokers are expected to run, which decides the options of their JVMs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Life {
    /// The options of Kafka's own start script: a server's collector and compilers.
    #[default]
    Long,
    /// Options for a test: a fast start, and never the speed of a broker that has run for minutes.
    Short,
}

impl Life {
    fn jvm(self, heap_mb: u32) -> Vec<String> {
        let options: &[&str] = match self {
            Self::Long => &[
                "-server",
                "-XX:+UseG1GC",
                "-XX:MaxGCPauseMillis=20",
                "-XX:InitiatingHeapOccupancyPercent=35",
                "-XX:+ExplicitGCInvokesConcurrent",
            ],
            Self::Short => &["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"],
        };
        let mut options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        options.push(format!("-Xmx{heap_mb}m"));
        if self == Self::Long {
            // A heap that starts smaller is collected more often.
            options.push(format!("-Xms{heap_mb}m"));
        }
        options
    }
}

/// The configuration of a cluster and its start.
#[derive(Debug, Clone)]
#[must_use]
pub struct ApacheClusterBuilder {
    toolchain: Option<Toolchain>,
    brokers: usize,
    heap_mb: Option<u32>,
    life: Life,
    jvm: Vec<String>,
    properties: BTreeMap<String, String>,
    broker_properties: BTreeMap<(usize, String), String>,
    listeners: BTreeMap<String, String>,
}

impl ApacheClusterBuilder {
    /// Sets the toolchain; by default that of [`available`].
    pub fn toolchain(mut self, toolchain: Toolchain) -> Self {
        self.toolchain = Some(toolchain);
        self
    }

    /// Sets the number of brokers: one (the default) or three.
    pub fn brokers(mut self, count: usize) -> Self {
        self.brokers = count;
        self
    }

    /// Sets a property of every broker and overrides the settings chosen here for tests.
    pub fn property(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.insert(key.into(), value.into());
        self
    }

    /// Sets a property of one broker, by its index, and overrides everything else; for example its
    /// advertised listener when a proxy stands in front of it.
    pub fn broker_property(
        mut self,
        index: usize,
        key: impl Into<String>,
        value: impl Into<String>,
    ) -> Self {
        self.broker_properties.insert((index, key.into()), value.into());
        self
    }

    /// Adds a listener to every broker in addition to the plain one, which the brokers still use
    /// among themselves.
    ///
    /// `name` is in capitals; `protocol` is its security protocol, such as `SASL_SSL`. Set its
    /// properties with [`property`](Self::property) under `listener.name.<name in small letters>.`.
    /// [`ApacheCluster::listener`] returns its address.
    pub fn listener(mut self, name: impl Into<String>, protocol: impl Into<String>) -> Self {
        self.listeners.insert(name.into(), protocol.into());
        self
    }

    /// Sets each broker's heap in MB; by default 1024 for one broker and 512 each for three.
    pub fn heap_mb(mut self, megabytes: u32) -> Self {
        self.heap_mb = Some(megabytes);
        self
    }

    /// Configures the brokers for a run of seconds. They start with less than half the CPU time,
    /// and are never as fast as the brokers used for measurements.
    pub fn short_lived(mut self) -> Self {
        self.life = Life::Short;
        self
    }

    /// Adds an option for the brokers' JVMs.
    pub(crate) fn jvm(mut self, option: String) -> Self {
        self.jvm.push(option);
        self
    }

    /// Enables the request log of every broker (logger `kafka.request.logger` at `DEBUG`), with times in UTC, in
    /// [`ApacheCluster::log_path`]. It costs the brokers CPU time.
    pub fn request_log(self) -> Self {
        self.jvm("-Dorg.slf4j.simpleLogger.log.kafka.request.logger=debug".into())
            .jvm("-Duser.timezone=UTC".into())
    }

    /// Formats the brokers' storage, starts them, and returns when every broker serves clients and
    /// lists all brokers.
    ///
    /// # Errors
    /// Java or the jars are missing, the count is neither 1 nor 3, or a broker ends or is not ready
    /// within 90 seconds. In the last two cases the error includes the end of its log.
    pub fn start(self) -> Result<ApacheCluster, Error> {
        if self.brokers != 1 && self.brokers != 3 {
            let text = format!("a cluster has 1 or 3 brokers, not {}", self.brokers);
            return Err(Error::Invalid(text));
        }
        let toolchain = match self.toolchain.clone() {
            Some(toolchain) => toolchain,
            None => available()?,
        };
        let directory = make_directory()?;
        let watchdog = Watchdog::start(&directory)?;
        let keep = std::env::var_os("CURTAIL_APACHE_KEEP").is_some();
        if keep {
            watchdog.keep_directory();
        }
        let heap_mb = self.heap_mb.unwrap_or(if self.brokers == 1 { 1024 } else { 512 });
        let ports = Ports {
            clients: ports::reserve(self.brokers)?,
            controllers: ports::reserve(self.brokers)?,
            listeners: self.reserve_listeners()?,
        };
        let mut brokers = Vec::with_capacity(self.brokers);
        for index in 0..self.brokers {
            brokers.push(Broker::prepare(
                index,
                &directory,
                &self.file(index, &ports, &directory)?,
            )?);
        }
        let jvm = self.life.jvm(heap_mb).into_iter().chain(self.jvm.iter().cloned()).collect();
        let cluster = ApacheCluster { toolchain, jvm, brokers, ports, watchdog, directory };
        cluster.format()?;
        for index in 0..self.brokers {
            cluster.launch(index)?;
        }
        let deadline = Instant::now() + START_LIMIT;
        for index in 0..self.brokers {
            cluster.wait_ready(index, deadline, self.brokers)?;
        }
        Ok(cluster)
    }

    fn reserve_listeners(&self) -> Result<BTreeMap<String, Vec<Port>>, Error> {
        let names = self.listeners.keys();
        names.map(|name| Ok((name.clone(), ports::reserve(self.brokers)?))).collect()
    }

    /// The text of `server.properties`.
    fn file(&self, index: usize, ports: &Ports, directory: &Path) -> Result<String, Error> {
        let mut properties = self.settings(index, ports, directory);
        let own = self.broker_properties.iter().filter(|((broker, _), _)| *broker == index);
        let own = own.map(|((_, key), value)| (key, value));
        for (key, value) in self.properties.iter().chain(own) {
            if key.contains(['\n', '=']) || value.contains('\n') {
                return Err(Error::Invalid(format!("property {key:?} cannot be written")));
            }
            properties.insert(key.clone(), value.clone());
        }
        let mut text = String::new();
        for (key, value) in properties {
            let _ = writeln!(text, "{key}={}", value.replace('\\', "\\\\"));
        }
        Ok(text)
    }

    fn settings(&self, index: usize, ports: &Ports, directory: &Path) -> BTreeMap<String, String> {
        let client = format!("PLAINTEXT://127.0.0.1:{}", ports.clients[index].number);
        let controller = format!("CONTROLLER://127.0.0.1:{}", ports.controllers[index].number);
        let voters: Vec<String> = (0..self.brokers)
            .map(|i| format!("{}@127.0.0.1:{}", node_id(i), ports.controllers[i].number))
            .collect();
        let mut clients = client;
        // Setting this property removes Kafka's default entries for the protocols and the
        // controllers' listener.
        let mut protocols = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT".to_owned();
        for (name, protocol) in &self.listeners {
            let _ = write!(clients, ",{name}://{}", ports.address(name, index));
            let _ = write!(protocols, ",{name}:{protocol}");
        }
        let copies = self.brokers.to_string();
        let in_sync = self.brokers.min(2).to_string();
        let pairs = [
            ("node.id", node_id(index).to_string()),
            ("process.roles", "broker,controller".into()),
            ("controller.quorum.voters", voters.join(",")),
            ("controller.listener.names", "CONTROLLER".into()),
            ("listeners", format!("{clients},{controller}")),
            ("advertised.listeners", clients),
            ("listener.security.protocol.map", protocols),
            ("log.dirs", data_dir(directory, index).display().to_string()),
            ("auto.create.topics.enable", "true".into()),
            ("default.replication.factor", copies.clone()),
            ("offsets.topic.replication.factor", copies.clone()),
            ("offsets.topic.num.partitions", "5".into()),
            ("transaction.state.log.replication.factor", copies.clone()),
            ("transaction.state.log.min.isr", in_sync.clone()),
            ("transaction.state.log.num.partitions", "5".into()),
            ("share.coordinator.state.topic.replication.factor", copies),
            ("share.coordinator.state.topic.min.isr", in_sync),
            ("share.coordinator.state.topic.num.partitions", "5".into()),
            ("group.initial.rebalance.delay.ms", "0".into()),
            ("num.network.threads", "2".into()),
            ("num.io.threads", "4".into()),
            // A killed broker is fenced after 3 s instead of 9 s.
            ("broker.session.timeout.ms", "3000".into()),
            ("broker.heartbeat.interval.ms", "500".into()),
            ("controlled.shutdown.enable", "true".into()),
            // The first entry of an index faults in a mapped page, and with it up to `read_ahead_kb` of the disk: 8 MB on some
            // machines, 2.5 ms of kernel time for each index of 10 MB (docs/decisions/0140).
            ("log.index.size.max.bytes", "1048576".into()),
        ];
        pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

#[derive(Debug)]
struct Ports {
    clients: Vec<Port>,
    controllers: Vec<Port>,
    /// Ports of the added listeners, by name.
    listeners: BTreeMap<String, Vec<Port>>,
}

impl Ports {
    fn address(&self, listener: &str, index: usize) -> String {
        format!("127.0.0.1:{}", self.listeners[listener][index].number)
    }
}

fn node_id(index: usize) -> usize {
    index + 1
}

fn data_dir(directory: &Path, index: usize) -> PathBuf {
    directory.join(format!("data-{}", node_id(index)))
}

/// One broker of a cluster, running or not.
#[derive(Debug)]
pub struct Broker {
    index: usize,
    config: PathBuf,
    data: PathBuf,
    log: PathBuf,
    server: Mutex<Option<Server>>,
}

impl Broker {
    fn prepare(index: usize, directory: &Path, properties: &str) -> Result<Self, Error> {
        let config = directory.join(format!("server-{}.properties", node_id(index)));
        std::fs::write(&config, properties).map_err(Error::file("write", &config))?;
        let log = directory.join(format!("broker-{}.log", node_id(index)));
        let data = data_dir(directory, index);
        Ok(Self { index, config, data, log, server: Mutex::new(None) })
    }

    /// The process id, or `None` while the broker is not running.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        lock(&self.server).as_ref().map(Server::pid)
    }

    /// The broker's id in the Kafka protocol: its index plus one.
    #[must_use]
    pub fn node_id(&self) -> i32 {
        node_id(self.index) as i32
    }

    fn failed(&self, what: &str) -> Error {
        let log_tail = log_tail(&self.log, TAIL_LINES);
        Error::Broker { index: self.index, what: what.to_owned(), log_tail }
    }

    /// Whether its process has ended although nothing here ended it.
    fn has_ended_unasked(&self) -> bool {
        lock(&self.server).as_mut().is_some_and(|server| server.has_ended().unwrap_or(false))
    }

    fn last_words(&self) -> String {
        let (index, tail) = (self.index, log_tail(&self.log, TAIL_LINES));
        format!("\n\nbroker {index} has ended, too; the end of its log:\n{tail}")
    }

    fn on_running<T>(&self, act: impl FnOnce(&mut Server) -> Result<T, Error>) -> Result<T, Error> {
        let mut server = lock(&self.server);
        match server.as_mut() {
            Some(server) => act(server),
            None => Err(Error::State { index: self.index, state: "not running" }),
        }
    }
}

/// A running Apache Kafka cluster. Dropping it kills the brokers and removes their files, unless
/// the environment variable `CURTAIL_APACHE_KEEP` is set, which keeps the files.
///
/// Brokers are named by their index from 0; their Kafka ids are the index plus one. All methods
/// block, and may be called from several threads.
#[derive(Debug)]
pub struct ApacheCluster {
    toolchain: Toolchain,
    jvm: Vec<String>,
    brokers: Vec<Broker>,
    ports: Ports,
    watchdog: Watchdog,
    directory: PathBuf,
}

impl ApacheCluster {
    /// Returns a builder for one broker, with settings for tests: topics are created on first use,
    /// internal topics have a replica on every broker and few partitions, groups form without
    /// delay, and a dead broker is fenced after 3 s.
    pub fn builder() -> ApacheClusterBuilder {
        ApacheClusterBuilder {
            toolchain: None,
            brokers: 1,
            heap_mb: None,
            life: Life::default(),
            jvm: Vec::new(),
            properties: BTreeMap::new(),
            broker_properties: BTreeMap::new(),
            listeners: BTreeMap::new(),
        }
    }

    /// `host:port` of all brokers, separated by commas.
    #[must_use]
    pub fn bootstrap(&self) -> String {
        let addresses: Vec<String> = (0..self.len()).map(|index| self.address(index)).collect();
        addresses.join(",")
    }

    /// `host:port` of all brokers at an added listener, separated by commas.
    ///
    /// # Panics
    /// If there is no such listener.
    #[must_use]
    pub fn listener(&self, name: &str) -> String {
        let addresses: Vec<String> =
            (0..self.len()).map(|index| self.ports.address(name, index)).collect();
        addresses.join(",")
    }

    /// `host:port` of one broker.
    ///
    /// If no broker has this index, as in every method that takes one.
    #[must_use]
    pub fn address(&self, index: usize) -> String {
        format!("127.0.0.1:{}", self.ports.clients[index].number)
    }

    /// The number of brokers, running or not.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a cluster is never empty")]
    pub fn len(&self) -> usize {
        self.brokers.len()
    }

    /// The broker of this index.
    #[must_use]
    pub fn broker(&self, index: usize) -> &Broker {
        &self.brokers[index]
    }

    /// The directory with the broker's topics (`log.dirs`).
    #[must_use]
    pub fn data_dir(&self, index: usize) -> &Path {
        &self.brokers[index].data
    }

    /// The file with all output of the broker, over all its starts.
    #[must_use]
    pub fn log_path(&self, index: usize) -> &Path {
        &self.brokers[index].log
    }

    /// The directory of the whole cluster, removed with it.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The toolchain the cluster runs on.
    #[must_use]
    pub fn toolchain(&self) -> &Toolchain {
        &self.toolchain
    }

    /// Kills a broker immediately (SIGKILL), frozen or not.
    ///
    /// # Errors
    /// If it is not running.
    pub fn kill(&self, index: usize) -> Result<(), Error> {
        let broker = &self.brokers[index];
        broker.on_running(|server| {
            let pid = server.pid();
            server.kill()?;
            self.watchdog.gone(pid);
            Ok(())
        })?;
        *lock(&broker.server) = None;
        Ok(())
    }

    /// Freezes a broker (SIGSTOP) and waits until it has stopped. Its connections stay open but
    /// unresponsive.
    ///
    /// # Errors
    /// If it is not running.
    pub fn freeze(&self, index: usize) -> Result<(), Error> {
        self.brokers[index].on_running(|server| server.freeze())
    }

    /// Resumes a frozen broker (SIGCONT).
    ///
    /// # Errors
    /// If it is not running.
    pub fn thaw(&self, index: usize) -> Result<(), Error> {
        self.brokers[index].on_running(|server| server.thaw())
    }

    /// Shuts a broker down cleanly (SIGTERM: it hands over its leaderships first) and waits for its
    /// end.
    ///
    /// # Errors
    /// If it is not running, or has not ended after 60 seconds. In the latter case it is still
    /// running.
    pub fn terminate(&self, index: usize) -> Result<(), Error> {
        let broker = &self.brokers[index];
        broker.on_running(|server| {
            let pid = server.pid();
            match server.terminate(STOP_LIMIT)? {
                Some(_) => self.watchdog.gone(pid),
                None => return Err(broker.failed("did not end after SIGTERM")),
            }
            Ok(())
        })?;
        *lock(&broker.server) = None;
        Ok(())
    }

    /// Restarts a broker that was killed or terminated, on its old port and data, and waits until
    /// it serves clients.
    ///
    /// # Errors
    /// If it is running, or is not ready within 90 seconds. With two of three brokers down no
    /// broker can become ready: [`launch`](Self::launch) both, then call
    /// [`await_ready`](Self::await_ready).
    pub fn restart(&self, index: usize) -> Result<(), Error> {
        self.launch(index)?;
        self.await_ready(index)
    }

    /// Starts a broker that is not running, or has ended unasked, without waiting for it.
    ///
    /// # Errors
    /// If it is running or cannot be started.
    pub fn launch(&self, index: usize) -> Result<(), Error> {
        let broker = &self.brokers[index];
        let mut slot = lock(&broker.server);
        if let Some(server) = slot.as_mut() {
            if !server.has_ended()? {
                return Err(Error::State { index, state: "running" });
            }
            self.watchdog.gone(server.pid());
        }
        let server = Server::spawn(self.broker_command(broker), &broker.log)?;
        self.watchdog.add(server.pid());
        *slot = Some(server);
        Ok(())
    }

    /// Waits until a launched broker serves its clients and is listed as alive.
    ///
    /// # Errors
    /// If it ends, or is not ready within 90 seconds.
    pub fn await_ready(&self, index: usize) -> Result<(), Error> {
        self.wait_ready(index, Instant::now() + START_LIMIT, 1)
    }

    /// Runs one of Kafka's tool classes to its end, with a limit of 120 seconds; see
    /// [`Toolchain::tool`] for other limits and for the class names.
    ///
    /// # Errors
    /// If it cannot be started or does not end in time.
    pub fn run_tool(&self, class: &str, args: &[&str], stdin: &[u8]) -> Result<Output, Error> {
        self.toolchain.tool(class).args(args).stdin(stdin).short_lived().run()
    }

    fn broker_command(&self, broker: &Broker) -> Command {
        let mut command = Command::new(self.toolchain.java());
        command
            .args(&self.jvm)
            .args(self.toolchain.shared_classes())
            .args(["-Djava.awt.headless=true", "-Dorg.slf4j.simpleLogger.showDateTime=true"])
            .arg("-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS")
            .arg("-cp")
            .arg(self.toolchain.class_path())
            .arg("kafka.Kafka")
            .arg(&broker.config)
            .current_dir(&self.directory);
        command
    }

    /// Formats all brokers' storage. Kafka's tool formats only the first; the others are copied
    /// from it, since a JVM for each would take longer than the brokers' start.
    fn format(&self) -> Result<(), Error> {
        let Some((first, others)) = self.brokers.split_first() else { return Ok(()) };
        self.format_one(first)?;
        others.iter().try_for_each(|broker| format_like(first, broker))
    }

    fn format_one(&self, broker: &Broker) -> Result<(), Error> {
        let config = broker.config.display().to_string();
        let output = self
            .toolchain
            .tool("kafka.tools.StorageTool")
            .args(&["format", "-t", CLUSTER_ID, "-c", &config])
            .short_lived()
            .run()?;
        if output.success() {
            return Ok(());
        }
        let log_tail = format!("{}{}", output.stdout, output.stderr);
        Err(Error::Broker { index: broker.index, what: "could not be formatted".into(), log_tail })
    }

    /// Waits until the broker has logged its start, and lists itself and at least `listed` brokers.
    fn wait_ready(&self, index: usize, deadline: Instant, listed: usize) -> Result<(), Error> {
        let broker = &self.brokers[index];
        // The wait does not hold the lock, so that another thread can kill the broker.
        let progress = broker.on_running(|server| Ok(server.progress()))?;
        match progress.wait_ready(deadline) {
            Start::Ready => {}
            Start::Ended => return Err(self.unready(broker, "ended before it was ready")),
            Start::TooLate => return Err(self.unready(broker, "was not ready in time")),
        }
        let port = self.ports.clients[index].number;
        loop {
            let known = probe::live_brokers(port, deadline);
            if known.is_ok_and(|ids| ids.contains(&broker.node_id()) && ids.len() >= listed) {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(self.unready(broker, "did not list its brokers in time"));
            }
            std::thread::sleep(PROBE_PAUSE);
        }
    }

    /// The failure of a broker's start, with the log of each other broker that has ended unasked: without a majority
    /// of controllers no broker becomes ready.
    fn unready(&self, broker: &Broker, what: &str) -> Error {
        let mut log_tail = log_tail(&broker.log, TAIL_LINES);
        for other in self.brokers.iter().filter(|other| other.has_ended_unasked()) {
            if other.index != broker.index {
                log_tail.push_str(&other.last_words());
            }
        }
        Error::Broker { index: broker.index, what: what.to_owned(), log_tail }
    }
}

/// Formats a broker's storage like another's, under its own id. The directory's id is omitted: the
/// broker chooses one when it starts.
fn format_like(model: &Broker, broker: &Broker) -> Result<(), Error> {
    let failed = || Error::io(format!("format the storage of broker {}", broker.node_id()));
    let properties = std::fs::read_to_string(model.data.join(PROPERTIES)).map_err(failed())?;
    let kept = properties
        .lines()
        .filter(|line| !line.starts_with("node.id=") && !line.starts_with("directory.id="));
    let own = format!("node.id={}", broker.node_id());
    let lines: Vec<&str> = kept.chain([own.as_str(), ""]).collect();
    std::fs::create_dir_all(&broker.data).map_err(failed())?;
    std::fs::write(broker.data.join(PROPERTIES), lines.join("\n")).map_err(failed())?;
    let (from, to) = (model.data.join(BOOTSTRAP), broker.data.join(BOOTSTRAP));
    std::fs::copy(from, to).map_err(failed())?;
    Ok(())
}

impl Drop for ApacheCluster {
    fn drop(&mut self) {
        for broker in &self.brokers {
            if let Some(mut server) = lock(&broker.server).take() {
                let pid = server.pid();
                if server.kill().is_ok() {
                    self.watchdog.gone(pid);
                }
            }
        }
        // The watchdog, dropped next, removes the directory.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_that_ended_unasked_is_named_with_its_log() {
        let directory = tempfile::tempdir().unwrap();
        let broker = Broker::prepare(2, directory.path(), "").unwrap();
        assert!(!broker.has_ended_unasked(), "it was never started");
        let mut command = Command::new("sh");
        command.args(["-c", "echo the disk is full"]);
        let server = Server::spawn(command, &broker.log).unwrap();
        let progress = server.progress();
        *lock(&broker.server) = Some(server);
        assert_eq!(progress.wait_ready(Instant::now() + START_LIMIT), Start::Ended);
        while !broker.has_ended_unasked() {
            std::thread::yield_now();
        }
        let words = broker.last_words();
        assert!(words.ends_with("broker 2 has ended, too; the end of its log:\nthe disk is full"));
    }
}
