//! A world for measurement: clients and brokers in virtual time that is exact to the nanosecond, on machines whose network and
//! disks are a model with parameters.
//!
//! The simulation beside it ([`crate::run()`]) looks for wrong outcomes on a network that moves messages by whole
//! milliseconds. Latencies of a few milliseconds need finer time and bandwidth; see decision 0034.

mod clock;
mod disk;
mod net;
mod pipe;
#[cfg(test)]
mod tests;

use std::{fmt, future::Future, io, net::SocketAddr, pin::Pin, sync::Arc, time::Duration};

use curtail_cluster::{Cluster, ClusterConfig, ClusterError, Ports, Storage, disk::Disk};
use curtail_net::{Entropy, Env};
use tokio::runtime::{Builder, Runtime};

use self::{clock::Clock, disk::PacedDisk, net::Network};

pub use self::net::HostId;

const PORT: u16 = 9092;

/// What takes time in a world, and how much. Processors cost none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// The shortest way from one machine to another.
    pub latency: Duration,
    /// So much longer at most; each length up to then is as likely as any other.
    pub jitter: Duration,
    /// Bytes a second of each machine, in each direction.
    pub bandwidth: u64,
    /// Bytes under way and unread in one direction of a connection.
    pub socket_buffer: usize,
    /// What a broker, which writes for one request at a time, needs for each request that writes.
    pub request: Duration,
    /// What it needs to append a batch, besides its bytes.
    pub append: Duration,
    /// Bytes that its disk takes a second.
    pub disk_bandwidth: u64,
}

/// A runtime in virtual time with a network. The same seed and the same work give the same run.
pub struct World {
    runtime: Option<Runtime>,
    handle: Handle,
}

/// What the work inside a world needs of it. Clones are handles to the same one.
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
    /// When the operating system refuses the runtime.
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

    /// What the work needs.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Has virtual time go on until the work is done.
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
        // Tasks that are dropped close connections, for which the clock has to be there.
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

    /// Waits until so long after the world's beginning, to the nanosecond.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub fn until(&self, at: Duration) -> impl Future<Output = ()> + Send + use<> {
        self.clock.until(net::nanos(at))
    }

    /// A number in the seed's order, from 0 to below `bound`.
    #[must_use]
    pub fn below(&self, bound: u64) -> u64 {
        self.entropy.below(bound)
    }

    /// Adds a machine.
    #[must_use]
    pub fn add_host(&self) -> HostId {
        self.network.add_host(false)
    }

    /// Adds a machine beside the model, to look at the others with: what it sends and receives takes no bandwidth.
    #[must_use]
    pub fn add_observer(&self) -> HostId {
        self.network.add_host(true)
    }

    /// What a client on this machine takes from outside.
    #[must_use]
    pub fn env(&self, host: HostId) -> Env {
        self.network.env(host, self.entropy.fork())
    }

    /// Starts a cluster, each broker on a machine and a disk of its own.
    ///
    /// # Errors
    /// As [`Cluster::start`].
    pub async fn start_cluster(&self, mut config: ClusterConfig) -> Result<Cluster, ClusterError> {
        let hosts: Vec<HostId> = config.broker_ids().map(|_| self.add_host()).collect();
        let disk = || Arc::new(PacedDisk::new(self.clock.clone(), self.model)) as Arc<dyn Disk>;
        config.storage = Storage::Disks(hosts.iter().map(|_| disk()).collect());
        let address = |host: &HostId| SocketAddr::new(host.ip(), PORT);
        config.ports = Ports::List(hosts.iter().map(address).collect());
        let envs = hosts.iter().map(|host| self.env(*host)).collect();
        Cluster::start_apart(config, envs).await
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("now", &self.now()).finish_non_exhaustive()
    }
}
