//! The embedded cluster, on a runtime of its own: a test that blocks the clients' threads does not stop the brokers.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use curtail::{Env, error::Report};
use curtail_cluster::{
    ClientLogin, ClusterConfig, ClusterError, Listeners, SecurityProtocol, Storage, User,
};
use pyo3::{prelude::*, types::PyModule};
use tokio::{runtime::Runtime, time::timeout};

use crate::runtime::{self, Owned};

/// Threads of a cluster.
const THREADS: usize = 2;
/// Longest wait for the brokers' sessions after a repair.
const PATIENCE: Duration = Duration::from_secs(60);

/// The native part of `curtail_kafka.testing.Cluster`. Calls block with the interpreter detached.
#[pyclass(frozen, module = "curtail_kafka._native")]
pub(crate) struct Cluster(Owned<Inner>);

struct Inner {
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
    cluster: curtail_cluster::Cluster,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Dropping it would wait for tasks that block.
            runtime.shutdown_background();
        }
    }
}

fn raise(py: Python<'_>, error: &ClusterError) -> PyErr {
    let made = || {
        let (class, code) = match error {
            ClusterError::Config(_) => ("ConfigError", None),
            ClusterError::Refused { code, .. } => ("ClusterError", Some(code.0)),
            _ => ("ClusterError", None),
        };
        let made = PyModule::import(py, "curtail_kafka.errors")?.getattr(class)?;
        let made = made.call1((Report::new(error).to_string(),))?;
        made.setattr("code", code)?;
        Ok(made)
    };
    made().map_or_else(|failure: PyErr| failure, PyErr::from_value)
}

fn config(
    brokers: u32,
    properties: &[(String, String)],
    data: Option<PathBuf>,
    port: Option<u16>,
    security: SecurityProtocol,
    users: Vec<(String, String)>,
) -> Result<ClusterConfig, ClusterError> {
    let mut config = ClusterConfig { brokers, ..ClusterConfig::default() };
    // Topics that survive the faults of a test.
    config.default_replication_factor = brokers.min(3) as i16;
    for (name, value) in properties {
        config.set(name, value)?;
    }
    if let Some(directory) = data {
        config.storage = Storage::Dir(directory);
    }
    if port.is_some() || security != SecurityProtocol::Plaintext {
        let first = SocketAddr::from((Ipv4Addr::LOCALHOST, port.unwrap_or_default()));
        config.listeners = Listeners::new(security, first);
    }
    config
        .security
        .users
        .extend(users.into_iter().map(|(name, password)| User::new(name, password)));
    Ok(config)
}

fn unknown_security(py: Python<'_>, name: &str) -> PyErr {
    let reason = format!("security is {name:?}; expected SSL, SASL_PLAINTEXT or SASL_SSL");
    crate::error::config(py, &reason)
}

impl Inner {
    /// Runs a future of the cluster, with the interpreter detached.
    fn wait<T: Send>(&self, py: Python<'_>, future: impl Future<Output = T> + Send) -> PyResult<T> {
        let Some(runtime) = &self.runtime else { return Err(crate::error::forked(py)) };
        Ok(py.detach(|| runtime.block_on(future)))
    }

    /// Restarts all brokers. Returns whether each was in sync again in time.
    async fn roll(&self) -> Result<bool, ClusterError> {
        let brokers = u32::try_from(self.cluster.broker_ids().len()).unwrap_or(u32::MAX);
        let rolled = timeout(PATIENCE.saturating_mul(brokers), self.cluster.roll()).await;
        rolled.map_or(Ok(false), |rolled| rolled.map(|()| true))
    }

    /// The tasks of a killed broker must not continue.
    fn thaw(&self, broker: i32) {
        if self.cluster.is_running(broker) {
            self.cluster.thaw(broker);
        }
    }

    /// Ends every fault, and waits until every broker has a session. Returns whether each has one.
    async fn heal(&self) -> Result<bool, ClusterError> {
        for id in self.cluster.broker_ids() {
            self.cluster.cut_off(id, false);
            self.thaw(id);
        }
        self.cluster.clear_delays();
        for id in self.cluster.broker_ids() {
            match self.cluster.restart(id).await {
                Ok(()) | Err(ClusterError::AlreadyRunning(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let all = self.cluster.broker_ids().len();
        let alive = self.cluster.wait_until(|cluster| cluster.live_brokers().len() == all);
        let alive = timeout(PATIENCE, alive).await.is_ok();
        self.cluster.settled().await;
        Ok(alive)
    }
}

#[pymethods]
impl Cluster {
    #[new]
    fn new(
        py: Python<'_>,
        brokers: u32,
        properties: Vec<(String, String)>,
        data: Option<PathBuf>,
        port: Option<u16>,
        security: &str,
        users: Vec<(String, String)>,
    ) -> PyResult<Self> {
        let protocol =
            SecurityProtocol::by_name(security).ok_or_else(|| unknown_security(py, security))?;
        let config = config(brokers, &properties, data, port, protocol, users);
        let config = config.map_err(|error| raise(py, &error))?;
        let runtime = runtime::start("curtail-cluster", THREADS)?;
        // Started on a thread of the runtime, whose random numbers no fork has copied.
        let starting = async { curtail_cluster::Cluster::start(config, Env::real()).await };
        let started = runtime.spawn(starting);
        let started = py.detach(|| runtime.block_on(started));
        let started = started
            .map_err(|error| pyo3::exceptions::PyRuntimeError::new_err(error.to_string()))?;
        let cluster = started.map_err(|error| raise(py, &error))?;
        Ok(Self(Owned::new(Inner { runtime: Some(runtime), cluster })))
    }

    fn bootstrap(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.0.get(py)?.cluster.bootstrap())
    }

    /// The client properties of a user, or of the first one; `None` for an unknown user.
    fn client_config(
        &self,
        py: Python<'_>,
        user: Option<&str>,
    ) -> PyResult<Option<Vec<(&'static str, String)>>> {
        let logins = self.0.get(py)?.cluster.client_logins()?;
        let wanted = |login: &ClientLogin| user.is_none() || login.user.as_deref() == user;
        Ok(logins.into_iter().find(wanted).map(|login| login.properties))
    }

    fn broker_ids(&self, py: Python<'_>) -> PyResult<Vec<i32>> {
        Ok(self.0.get(py)?.cluster.broker_ids())
    }

    fn create_topic(
        &self,
        py: Python<'_>,
        name: &str,
        partitions: i32,
        replication_factor: i16,
        configs: Vec<(String, String)>,
    ) -> PyResult<()> {
        let inner = self.0.get(py)?;
        let configs: Vec<(&str, &str)> =
            configs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let created = inner.cluster.create_topic(name, partitions, replication_factor, &configs);
        created.map_err(|error| raise(py, &error))?;
        inner.wait(py, inner.cluster.settled())
    }

    fn kill(&self, py: Python<'_>, broker: i32) -> PyResult<()> {
        self.known(py, broker)?.cluster.kill(broker);
        Ok(())
    }

    fn freeze(&self, py: Python<'_>, broker: i32) -> PyResult<()> {
        self.known(py, broker)?.cluster.freeze(broker);
        Ok(())
    }

    fn thaw(&self, py: Python<'_>, broker: i32) -> PyResult<()> {
        self.known(py, broker)?.thaw(broker);
        Ok(())
    }

    fn cut_off(&self, py: Python<'_>, broker: i32, cut_off: bool) -> PyResult<()> {
        self.known(py, broker)?.cluster.cut_off(broker, cut_off);
        Ok(())
    }

    fn delay(
        &self,
        py: Python<'_>,
        broker: Option<i32>,
        api: Option<i16>,
        seconds: f64,
    ) -> PyResult<()> {
        let delay = Duration::try_from_secs_f64(seconds);
        let delay = delay.map_err(|error| crate::error::config(py, &error.to_string()))?;
        self.0.get(py)?.cluster.delay(broker, api, delay);
        Ok(())
    }

    fn move_leader(&self, py: Python<'_>, topic: &str, partition: i32, to: i32) -> PyResult<()> {
        let moved = self.0.get(py)?.cluster.move_leader(topic, partition, to);
        moved.map_err(|error| raise(py, &error))
    }

    fn leader(&self, py: Python<'_>, topic: &str, partition: i32) -> PyResult<Option<i32>> {
        Ok(self.0.get(py)?.cluster.leader(topic, partition).map(|(leader, _)| leader))
    }

    fn isr(&self, py: Python<'_>, topic: &str, partition: i32) -> PyResult<Option<Vec<i32>>> {
        Ok(self.0.get(py)?.cluster.isr(topic, partition))
    }

    fn live_brokers(&self, py: Python<'_>) -> PyResult<Vec<i32>> {
        Ok(self.0.get(py)?.cluster.live_brokers())
    }

    fn restart(&self, py: Python<'_>, broker: i32) -> PyResult<()> {
        let inner = self.0.get(py)?;
        inner.wait(py, inner.cluster.restart(broker))?.map_err(|error| raise(py, &error))
    }

    fn roll(&self, py: Python<'_>) -> PyResult<bool> {
        let inner = self.0.get(py)?;
        inner.wait(py, inner.roll())?.map_err(|error| raise(py, &error))
    }

    fn stop(&self, py: Python<'_>, broker: i32) -> PyResult<()> {
        let inner = self.known(py, broker)?;
        inner.wait(py, inner.cluster.stop(broker))
    }

    /// Makes the brokers accept metrics of clients, which are dropped, or refuse them.
    fn receive_client_metrics(&self, py: Python<'_>, receive: bool) -> PyResult<()> {
        let cluster = &self.0.get(py)?.cluster;
        match receive {
            true => cluster.receive_client_metrics(|_| Ok(())),
            false => cluster.stop_receiving_client_metrics(),
        }
        Ok(())
    }

    fn settled(&self, py: Python<'_>) -> PyResult<()> {
        let inner = self.0.get(py)?;
        inner.wait(py, inner.cluster.settled())
    }

    fn heal(&self, py: Python<'_>) -> PyResult<bool> {
        let inner = self.0.get(py)?;
        inner.wait(py, inner.heal())?.map_err(|error| raise(py, &error))
    }
}

impl Cluster {
    fn known(&self, py: Python<'_>, broker: i32) -> PyResult<&Inner> {
        let inner = self.0.get(py)?;
        match inner.cluster.broker(broker) {
            Some(_) => Ok(inner),
            None => Err(raise(py, &ClusterError::NoSuchBroker(broker))),
        }
    }
}
