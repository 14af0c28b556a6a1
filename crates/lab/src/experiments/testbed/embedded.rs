//! An embedded cluster on its own thread, and the handle to inject faults from another thread.

use std::{
    future::Future,
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
};

use curtail::error::Report;
use curtail_cluster::{Cluster, ClusterConfig};
use curtail_net::Env;
use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

use crate::perf::{Error, Result};

/// A running cluster that shares no event loop with the client.
pub(super) struct Embedded {
    /// `Some` until it is dropped.
    cluster: Option<Arc<Cluster>>,
    runtime: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Embedded {
    /// Starts the cluster and returns when it serves requests.
    pub(super) fn start(config: ClusterConfig) -> Result<Self> {
        let (started, ready) = mpsc::sync_channel(1);
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new().name("curtail-cluster".into());
        let thread = thread.spawn(move || serve(config, &started, stopped));
        let thread = thread.map_err(Error::Threads)?;
        let started = ready.recv().unwrap_or_else(|_| Err("its thread ended early".into()));
        let (cluster, runtime) = started.map_err(Error::Cluster)?;
        Ok(Self { cluster: Some(cluster), runtime, stop: Some(stop), thread: Some(thread) })
    }

    pub(super) fn cluster(&self) -> &Cluster {
        self.cluster.as_ref().unwrap_or_else(|| unreachable!("it is there until the drop"))
    }

    /// Restarts a killed or stopped broker.
    pub(super) fn restart(&self, id: i32) -> Result<()> {
        let restarted = self.within(move |cluster| async move { cluster.restart(id).await })?;
        restarted.map_err(|error| Error::Unexpected(Report::new(&error).to_string()))
    }

    /// Shuts a broker down in an orderly way.
    pub(super) fn stop(&self, id: i32) -> Result<()> {
        self.within(move |cluster| async move { cluster.stop(id).await })
    }

    /// Runs a future on the cluster's event loop and waits for it.
    fn within<F>(&self, act: impl FnOnce(Arc<Cluster>) -> F) -> Result<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let acting = act(self.shared());
        let (done, outcome) = mpsc::sync_channel(1);
        self.runtime.spawn(async move {
            // The future has released the cluster by then, and the calling thread waits for this message.
            let _ = done.send(acting.await);
        });
        let ended = |_| Error::Unexpected("the embedded cluster has ended".into());
        outcome.recv().map_err(ended)
    }

    fn shared(&self) -> Arc<Cluster> {
        let cluster = self.cluster.as_ref();
        Arc::clone(cluster.unwrap_or_else(|| unreachable!("it is there until the drop")))
    }
}

type Started = Result<(Arc<Cluster>, Handle), String>;

fn serve(
    config: ClusterConfig,
    started: &mpsc::SyncSender<Started>,
    stopped: oneshot::Receiver<()>,
) {
    // The starting thread either waits for these messages or is gone.
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return drop(started.send(Err(error.to_string()))),
    };
    runtime.block_on(async {
        let cluster = match Cluster::start(config, Env::real()).await {
            Ok(cluster) => Arc::new(cluster),
            Err(error) => return drop(started.send(Err(Report::new(&error).to_string()))),
        };
        // If the starting thread is gone, the cluster stops.
        if started.send(Ok((cluster.clone(), Handle::current()))).is_ok() {
            let _ = stopped.await;
        }
        if let Some(cluster) = Arc::into_inner(cluster) {
            cluster.shutdown().await;
        }
    });
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.cluster = None;
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
