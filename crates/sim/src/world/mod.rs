//! A world for measurement: clients and brokers in virtual time that is exact to the nanosecond, on machines whose
//! network and disks are a model with parameters.
//!
//! The simulation ([`crate::run()`]) looks for wrong outcomes on a network that delivers messages at whole milliseconds.
//! Latencies of a few milliseconds need finer time and bandwidth; see decision 0034.

mod clock;
mod disk;
mod net;
mod pipe;
#[cfg(test)]
mod tests;

use std::{fmt, future::Future, io, net::SocketAddr, pin::Pin, sync::Arc, time::Duration};

use curtail_cluster::{
    Cluster, ClusterConfig, ClusterError, Listeners, SecurityProtocol, Storage, disk::Disk,
};
use curtail_net::{Entropy, Env};
use tokio::runtime::{Builder, Runtime};

use self::{clock::Clock, disk::PacedDisk, net::Network};

pub use self::net::HostId;

const PORT: u16 = 9092;

/// Durations in a world. CPU time is zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// Shortest one-way delay between two machines.
    pub latency: Duration,
    /// Additional one-way delay between two machines in different zones.
    pub zones: Duration,
    /// Maximum of the additional delay, which is uniformly distributed.
    pub jitter: Duration,
    /// Bytes per second of each machine, in each direction.
    pub bandwidth: u64,
    /// Bytes in flight and unread in one direction of a connection.
    pub socket_buffer: usize,
    /// Time of a broker for each request that writes; it writes for one request at a time.
    pub request: Duration,
    /// Time to append a batch, without its bytes.
    pub append: Duration,
    /// Bytes per second of its disk.
    pub disk_bandwidth: u64,
}

/// A runtime in virtual time with a network. The same seed and the same work give the same run.
pub struct World {
    runtime: Option<Runtime>,
    handle: Handle,
}

/// A world's handle for the tasks in it. Clones share the world.
#[derive(Clone)]
pub struct Handle {
    clock: Clock,
    network: Network,
    model: Model,
    entropy: Entropy,
}

impl World {
    /// A world without machines at time zero.
    ///
    /// # Errors
    /// If the operating system refuses the runtime.
    pub fn new(model: Model, seed: u64) -> io::Result<Self> {
        let clock = Clock::default();
        let entropy = Entropy::from_seed(seed);
        let idle = clock.clone();
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .on_thread_park(move || idle.advance())
            .build()?;
        let network = Network::new(clock.clone(), model, entropy.fork());
        let handle = Handle { clock, network, model, entropy };
        Ok(Self { runtime: Some(runtime), handle })
    }

    /// Returns the handle for tasks.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Advances virtual time until the task has ended.
    ///
    /// # Panics
    /// If the work does.
    pub fn run<F>(&self, work: F) -> F::Output
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let runtime = self.runtime.as_ref().unwrap_or_else(|| unreachable!("until the drop"));
        let mut work = runtime.spawn(work);
        let outcome = runtime.block_on(std::future::poll_fn(|cx| {
            self.handle.clock.set_root(cx.waker());
            Pin::new(&mut work).poll(cx)
        }));
        outcome.unwrap_or_else(|error| match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => unreachable!("nobody else has the task"),
        })
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Dropped tasks close connections, which needs the clock.
        drop(self.runtime.take());
        self.handle.clock.stop();
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("model", &self.handle.model).finish_non_exhaustive()
    }
}

impl Handle {
    /// Time since the world began.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.clock.now())
    }

    /// Waits until this time after the world's start, to the nanosecond.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub fn until(&self, at: Duration) -> impl Future<Output = ()> + Send + use<> {
        self.clock.until(net::nanos(at))
    }

    /// Returns a number below `bound`, in the seed's order.
    #[must_use]
    pub fn below(&self, bound: u64) -> u64 {
        self.entropy.below(bound)
    }

    /// Adds a machine.
    #[must_use]
    pub fn add_host(&self) -> HostId {
        self.network.add_host(false, None)
    }

    /// Adds a machine in a zone.
    #[must_use]
    pub fn add_host_in(&self, zone: &str) -> HostId {
        self.network.add_host(false, Some(zone))
    }

    /// Adds a machine outside the model, to observe the others from: its traffic takes no bandwidth.
    #[must_use]
    pub fn add_observer(&self) -> HostId {
        self.network.add_host(true, None)
    }

    /// The environment of a client on this machine.
    #[must_use]
    pub fn env(&self, host: HostId) -> Env {
        self.network.env(host, self.entropy.fork())
    }

    /// Starts a cluster with a separate machine and disk for each broker, in the zone that its rack names.
    ///
    /// # Errors
    /// As [`Cluster::start`].
    pub async fn start_cluster(&self, mut config: ClusterConfig) -> Result<Cluster, ClusterError> {
        let zone = |at: usize| config.racks.get(at).filter(|rack| !rack.is_empty());
        let host = |at| self.network.add_host(false, zone(at).map(String::as_str));
        let hosts: Vec<HostId> = (0..config.broker_ids().count()).map(host).collect();
        let disk = || Arc::new(PacedDisk::new(self.clock.clone(), self.model)) as Arc<dyn Disk>;
        config.storage = Storage::Disks(hosts.iter().map(|_| disk()).collect());
        let address = |host: &HostId| SocketAddr::new(host.ip(), PORT);
        config.listeners = Listeners::each(SecurityProtocol::Plaintext, hosts.iter().map(address));
        let envs = hosts.iter().map(|host| self.env(*host)).collect();
        Cluster::start_apart(config, envs).await
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("now", &self.now()).finish_non_exhaustive()
    }
}
