//! A real Apache Kafka of three brokers. An experiment that slows a broker runs it behind a delaying proxy.

use std::{
    fs::File,
    io::{Read as _, Seek as _, SeekFrom},
    path::PathBuf,
    time::Duration,
};

use curtail::error::Report;
use curtail_apache::ApacheCluster;
use parking_lot::Mutex;

use super::{KafkaTool, Needs, Sessions, jmx::JmxAgent, proxy::DelayingProxy, unknown};
use crate::{
    perf::{Error, Result},
    timeline::{Served, parse},
};

const BROKERS: usize = 3;

pub(super) struct Apache {
    cluster: ApacheCluster,
    proxy: Option<(i32, DelayingProxy)>,
    /// One JMX agent per broker, created with the first request for figures.
    agents: Mutex<Vec<JmxAgent>>,
    /// Next offset to read in each broker's log, in bytes.
    looked: Mutex<Vec<u64>>,
}

impl Apache {
    pub(super) fn start(needs: &Needs) -> Result<Self> {
        let mut builder = ApacheCluster::builder()
            .brokers(if needs.one_is_enough { 1 } else { BROKERS })
            // The harness shortens these for tests; experiments use Kafka's defaults.
            .property("broker.session.timeout.ms", "9000")
            .property("broker.heartbeat.interval.ms", "2000");
        for (name, value) in needs.properties() {
            builder = builder.property(name, value);
        }
        if needs.trace {
            builder = builder.request_log();
        }
        let mut proxy = None;
        if let Some(id) = needs.slow {
            let listening = DelayingProxy::bind().map_err(Error::Threads)?;
            let address = format!("PLAINTEXT://127.0.0.1:{}", listening.port());
            builder = builder.broker_property(index(id)?, "advertised.listeners", address);
            proxy = Some((id, listening));
        }
        let cluster = builder.start().map_err(|error| failed(&error))?;
        if let Some((id, proxy)) = &proxy {
            proxy.forward_to(&cluster.address(index(*id)?));
        }
        let looked = Mutex::new(vec![0; cluster.len()]);
        Ok(Self { cluster, proxy, agents: Mutex::default(), looked })
    }

    pub(super) fn bootstrap(&self) -> String {
        self.cluster.bootstrap()
    }

    pub(super) fn broker_ids(&self) -> Vec<i32> {
        (0..self.cluster.len()).map(|index| self.cluster.broker(index).node_id()).collect()
    }

    pub(super) fn address(&self, id: i32) -> Result<String> {
        Ok(self.cluster.address(index(id)?))
    }

    pub(super) fn kill(&self, id: i32) -> Result<()> {
        self.cluster.kill(index(id)?).map_err(|error| failed(&error))
    }

    pub(super) fn stop(&self, id: i32) -> Result<()> {
        self.cluster.terminate(index(id)?).map_err(|error| failed(&error))
    }

    pub(super) fn restart(&self, id: i32) -> Result<()> {
        self.cluster.restart(index(id)?).map_err(|error| failed(&error))
    }

    pub(super) fn freeze(&self, id: i32) -> Result<()> {
        self.cluster.freeze(index(id)?).map_err(|error| failed(&error))
    }

    pub(super) fn thaw(&self, id: i32) -> Result<()> {
        self.cluster.thaw(index(id)?).map_err(|error| failed(&error))
    }

    /// A partition's log files, oldest first.
    pub(super) fn log_files(&self, id: i32, topic: &str, partition: i32) -> Result<Vec<PathBuf>> {
        let folder = self.cluster.data_dir(index(id)?).join(format!("{topic}-{partition}"));
        let unreadable =
            |error| Error::Unexpected(format!("cannot read {}: {error}", folder.display()));
        let mut files = Vec::new();
        for entry in std::fs::read_dir(&folder).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            if path.extension().is_some_and(|extension| extension == "log") {
                files.push(path);
            }
        }
        files.sort();
        Ok(files)
    }

    /// The requests that the brokers have logged since the last call.
    pub(super) fn served(&self) -> Result<Vec<Served>> {
        let mut served = Vec::new();
        for (index, from) in self.looked.lock().iter_mut().enumerate() {
            let path = self.cluster.log_path(index);
            let unreadable =
                |error| Error::Unexpected(format!("cannot read {}: {error}", path.display()));
            let mut file = File::open(path).map_err(unreadable)?;
            file.seek(SeekFrom::Start(*from)).map_err(unreadable)?;
            let mut text = Vec::new();
            file.read_to_end(&mut text).map_err(unreadable)?;
            // An incomplete last line is left for the next call.
            let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            *from += whole as u64;
            let id = self.cluster.broker(index).node_id();
            let text = String::from_utf8_lossy(&text[..whole]);
            served.extend(text.lines().filter_map(|line| parse(id, line)));
        }
        Ok(served)
    }

    /// Fetch session counters of all brokers.
    pub(super) fn fetch_sessions(&self) -> Result<Sessions> {
        let mut agents = self.agents.lock();
        for index in agents.len()..self.cluster.len() {
            let pid = self.cluster.broker(index).pid();
            let pid = pid.ok_or_else(|| Error::Unexpected("the broker does not run".into()))?;
            agents.push(JmxAgent::start(self.cluster.toolchain(), pid)?);
        }
        let mut sum = Sessions::default();
        for agent in agents.iter() {
            let of = agent.fetch_sessions(self.cluster.toolchain())?;
            sum.sessions += of.sessions;
            sum.partitions += of.partitions;
            sum.evictions += of.evictions;
        }
        Ok(sum)
    }

    /// Output of one of Kafka's tools.
    pub(super) fn tool(&self, tool: &KafkaTool<'_>) -> Result<String> {
        let &KafkaTool { class, args, clients, limit } = tool;
        let toolchain = self.cluster.toolchain();
        let mut tool = toolchain.tool(class).args(args).limit(limit);
        if let Some(version) = clients {
            tool = tool.clients(toolchain.clients(version).map_err(|error| failed(&error.into()))?);
        }
        let output = tool.run().map_err(|error| failed(&error))?;
        if !output.success() {
            return Err(Error::Unexpected(format!("{class}: {}", output.stderr)));
        }
        Ok(output.stdout)
    }

    pub(super) fn slow(&self, id: i32, delay: Duration) -> Result<()> {
        match &self.proxy {
            Some((behind, proxy)) if *behind == id => {
                proxy.set_delay(delay);
                Ok(())
            }
            _ => Err(Error::Options(format!("broker {id} is not behind a proxy"))),
        }
    }
}

/// The harness counts from 0.
fn index(id: i32) -> Result<usize> {
    let index = usize::try_from(id - 1).ok().filter(|index| *index < BROKERS);
    index.ok_or_else(|| unknown(id))
}

fn failed(error: &curtail_apache::Error) -> Error {
    Error::Unexpected(format!("Apache Kafka: {}", Report::new(error)))
}
