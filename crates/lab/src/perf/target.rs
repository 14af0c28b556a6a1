//! Target cluster of a run, and the threads it needs.

use std::{
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
};

use curtail::error::Report;
use curtail::{Admin, AdminConfig, admin::NewTopic, security::SecurityConfig};
use curtail_cluster::{Cluster, ClusterConfig, ClusterError, Observer};
use curtail_net::Env;
use tokio::{
    runtime::{Builder, Runtime},
    sync::oneshot,
};

use super::{Error, Event, Progress, Result};

/// Target cluster of a run.
#[derive(Clone, Debug)]
pub enum Target {
    /// An existing cluster: `host:port`, one or more separated by commas.
    Bootstrap(String),
    /// An embedded cluster in this process, for the length of the run.
    Embedded(Box<ClusterConfig>),
}

/// The topic of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// Topic name.
    pub name: String,
    /// Partitions and replication factor to create it with if it does not exist; `None` if it must exist or
    /// the brokers create it.
    pub create: Option<(i32, i16)>,
}

/// The runtime of an application: tokio's default, a thread per core.
pub(crate) fn application_runtime() -> Result<Runtime> {
    Builder::new_multi_thread().enable_all().build().map_err(Error::Threads)
}

/// The event loop of a client on the measuring thread, which avoids handovers between threads.
pub(super) fn local_runtime() -> Result<Runtime> {
    Builder::new_current_thread().enable_all().build().map_err(Error::Threads)
}

/// A cluster that serves requests.
#[derive(Debug)]
pub(super) struct Running {
    bootstrap: String,
    embedded: Option<Embedded>,
}

impl Running {
    /// Starts the cluster if it is embedded, with the topic.
    pub(super) fn start(
        target: &Target,
        topic: &Topic,
        observer: Option<Arc<dyn Observer>>,
        progress: &mut dyn Progress,
    ) -> Result<Self> {
        match target {
            Target::Bootstrap(bootstrap) => {
                Ok(Self { bootstrap: bootstrap.clone(), embedded: None })
            }
            Target::Embedded(config) => {
                let count = config.brokers;
                let text = format!("starting an embedded cluster of {count} brokers");
                progress.on(Event::Preparing(&text));
                let embedded =
                    Embedded::start((**config).clone(), observer, std::slice::from_ref(topic))?;
                Ok(Self { bootstrap: embedded.bootstrap.clone(), embedded: Some(embedded) })
            }
        }
    }

    pub(super) fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    pub(super) fn is_embedded(&self) -> bool {
        self.embedded.is_some()
    }

    /// Creates the topic in an existing cluster if requested and missing, with the security settings of the
    /// measured client.
    pub(super) async fn prepare(&self, topic: &Topic, security: &SecurityConfig) -> Result<()> {
        let Some((partitions, replication_factor)) = topic.create else { return Ok(()) };
        if self.is_embedded() {
            return Ok(());
        }
        let config = AdminConfig::new(&self.bootstrap).security(security.clone());
        let admin = Admin::new(config)?;
        if admin.list_topics().await?.iter().any(|listed| listed.name == topic.name) {
            return Ok(());
        }
        let new = NewTopic::new(&topic.name)
            .partitions(partitions)
            .replication_factor(replication_factor);
        for (_, created) in admin.create_topics(&[new]).await? {
            created?;
        }
        Ok(())
    }
}

/// An embedded cluster on its own thread, so that its work and the client's share no event loop.
#[derive(Debug)]
pub struct Embedded {
    bootstrap: String,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Embedded {
    /// Starts the cluster and returns when it serves requests.
    ///
    /// # Errors
    /// [`Error::Cluster`] with the cause, such as a port in use.
    pub fn start(
        config: ClusterConfig,
        observer: Option<Arc<dyn Observer>>,
        topics: &[Topic],
    ) -> Result<Self> {
        let topics = topics.to_vec();
        let (started, ready) = mpsc::sync_channel(1);
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new().name("curtail-cluster".into()).spawn(move || {
            let runtime = match Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => {
                    // The starting thread waits for this message.
                    let _ = started.send(Err(error.to_string()));
                    return;
                }
            };
            runtime.block_on(serve(config, observer, &topics, &started, stopped));
        });
        let thread = thread.map_err(Error::Threads)?;
        let bootstrap = match ready.recv() {
            Ok(Ok(bootstrap)) => bootstrap,
            Ok(Err(reason)) => return Err(Error::Cluster(reason)),
            Err(_) => return Err(Error::Cluster("its thread ended early".into())),
        };
        Ok(Self { bootstrap, stop: Some(stop), thread: Some(thread) })
    }

    /// `bootstrap.servers` of its brokers.
    #[must_use]
    pub fn bootstrap(&self) -> &str {
        &self.bootstrap
    }
}

async fn serve(
    config: ClusterConfig,
    observer: Option<Arc<dyn Observer>>,
    topics: &[Topic],
    started: &mpsc::SyncSender<Result<String, String>>,
    stopped: oneshot::Receiver<()>,
) {
    let cluster = match open(config, observer, topics).await {
        Ok(cluster) => cluster,
        Err(error) => {
            // The starting thread waits for this message.
            let _ = started.send(Err(Report::new(&error).to_string()));
            return;
        }
    };
    // If the starting thread is gone, the cluster stops.
    if started.send(Ok(cluster.bootstrap())).is_ok() {
        let _ = stopped.await;
    }
    cluster.shutdown().await;
}

async fn open(
    config: ClusterConfig,
    observer: Option<Arc<dyn Observer>>,
    topics: &[Topic],
) -> Result<Cluster, ClusterError> {
    let cluster = Cluster::start(config, Env::real()).await?;
    if let Some(observer) = observer {
        cluster.observe(observer);
    }
    for topic in topics {
        if let Some((partitions, replication_factor)) = topic.create {
            cluster.create_topic(&topic.name, partitions, replication_factor, &[])?;
        }
    }
    cluster.settled().await;
    Ok(cluster)
}

impl Drop for Embedded {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // It may have stopped already.
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported by its own hook.
            let _ = thread.join();
        }
    }
}
