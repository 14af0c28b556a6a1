//! The cluster on virtual hosts: every broker has a separate runtime and clock, and a crash drops
//! them.

use std::{
    io::{self, IoSlice},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use crate::support::{Client, batch};
use curtail_cluster::{
    ClusterConfig, ClusterHandle, Listeners, SecurityProtocol, Storage,
    disk::{Disk, MemDisk},
};
use curtail_net::{BoxFuture, Entropy, Env, Listener, Net, Socket, SocketOptions, WallClock};
use curtail_wire::ErrorCode;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use turmoil::net::{
    TcpListener, TcpStream,
    tcp::{OwnedReadHalf, OwnedWriteHalf},
};

struct VirtualNet;

struct VirtualSocket {
    read: Mutex<OwnedReadHalf>,
    write: Mutex<OwnedWriteHalf>,
    peer: SocketAddr,
}

impl VirtualSocket {
    fn boxed(stream: TcpStream) -> io::Result<Box<dyn Socket>> {
        let peer = stream.peer_addr()?;
        let (read, write) = stream.into_split();
        Ok(Box::new(Self { read: Mutex::new(read), write: Mutex::new(write), peer }))
    }
}

impl Socket for VirtualSocket {
    fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let Some(first) = bufs.iter().find(|buf| !buf.is_empty()) else { return Ok(0) };
        let mut cx = Context::from_waker(Waker::noop());
        match Pin::new(&mut *self.write.lock()).poll_write(&mut cx, first) {
            Poll::Ready(written) => written,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Virtual sockets accept everything. If one does not, the next poll retries.
        cx.waker().wake_by_ref();
        Poll::Ready(Ok(()))
    }

    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.read.lock()).poll_read(cx, buf)
    }

    fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.peer)
    }
}

struct VirtualListener(TcpListener);

impl Listener for VirtualListener {
    fn accept(&self) -> BoxFuture<'_, io::Result<(Box<dyn Socket>, SocketAddr)>> {
        Box::pin(async move {
            let (stream, peer) = self.0.accept().await?;
            Ok((VirtualSocket::boxed(stream)?, peer))
        })
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

impl Net for VirtualNet {
    fn resolve<'a>(&'a self, _: &'a str, _: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async { Err(io::ErrorKind::NotFound.into()) })
    }

    fn connect(
        &self,
        addr: SocketAddr,
        _: SocketOptions,
    ) -> BoxFuture<'_, io::Result<Box<dyn Socket>>> {
        Box::pin(async move { VirtualSocket::boxed(TcpStream::connect(addr).await?) })
    }

    fn listen(&self, addr: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let listener = TcpListener::bind(addr).await?;
            Ok(Box::new(VirtualListener(listener)) as Box<dyn Listener>)
        })
    }
}

/// Counts its readings, so that two different runs have different counts.
#[derive(Default)]
struct Ticks(AtomicI64);

impl WallClock for Ticks {
    fn now_ms(&self) -> i64 {
        1_700_000_000_000 + self.0.fetch_add(1, Ordering::Relaxed)
    }
}

const PORT: u16 = 9092;

fn addr(id: i32) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 168, 0, id as u8)), PORT)
}

fn env(seed: u64, ticks: &Arc<Ticks>) -> Env {
    Env {
        net: Arc::new(VirtualNet),
        wall: Arc::<Ticks>::clone(ticks),
        entropy: Entropy::from_seed(seed),
    }
}

fn cluster(seed: u64, disks: &[MemDisk], ticks: &Arc<Ticks>) -> ClusterHandle {
    let config = ClusterConfig {
        brokers: 3,
        listeners: Listeners::each(
            SecurityProtocol::Plaintext,
            [SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)); 3],
        ),
        advertised_listeners: Some(Listeners::each(SecurityProtocol::Plaintext, (1..=3).map(addr))),
        storage: Storage::Disks(
            disks.iter().map(|disk| Arc::new(disk.clone()) as Arc<dyn Disk>).collect(),
        ),
        ..ClusterConfig::default()
    };
    let envs = (1..=3).map(|id| env(seed ^ id, ticks)).collect();
    ClusterHandle::new(config, envs).expect("a cluster")
}

async fn produce(cluster: &ClusterHandle, value: &str) {
    loop {
        let Some((leader, _)) = cluster.leader("t", 0) else {
            cluster.wait_until(|c| c.leader("t", 0).is_some()).await;
            continue;
        };
        let exchange = async {
            let socket = VirtualNet.connect(addr(leader), SocketOptions::default()).await.ok()?;
            let mut client = Client::on(socket);
            client.send_produce("t", 0, -1, batch(&[value], None)).await;
            client.try_produce_answer().await
        };
        // A crashed host does not respond.
        let answer = tokio::time::timeout(Duration::from_secs(5), exchange).await;
        if answer == Ok(Some(ErrorCode::NONE)) {
            return;
        }
        // The crash has not been detected yet, or the newly elected leader does not know of its
        // election.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Produces while the leader crashes and loses its unsynced bytes, then reads everything from the
/// new leader. Returns the values read and the number of wall-clock readings, which counts every
/// append and fetch.
fn run(seed: u64) -> (Vec<String>, i64) {
    let ticks = Arc::new(Ticks::default());
    let disks: Vec<MemDisk> = (0..3).map(|_| MemDisk::new()).collect();
    let cluster = cluster(seed, &disks, &ticks);
    let mut sim = turmoil::Builder::new()
        .rng_seed(seed)
        .ip_version(turmoil::IpVersion::V4)
        .simulation_duration(Duration::from_secs(120))
        .tick_duration(Duration::from_millis(1))
        .build();
    let names: Vec<String> = (1..=3).map(|id| format!("b{id}")).collect();
    for (name, id) in names.iter().zip(1..) {
        let broker = cluster.broker(id).expect("a broker");
        sim.host(name.as_str(), move || {
            let run = broker.run();
            async move { Ok(run.await?) }
        });
        // turmoil assigns addresses in the order in which hosts are named.
        assert_eq!(sim.lookup(name.as_str()), addr(id).ip());
    }
    let controller = cluster.controller();
    sim.host("controller", move || {
        let controller = Arc::clone(&controller);
        async move {
            controller.run().await;
            Ok(())
        }
    });
    let result = Arc::new(Mutex::new(Vec::new()));
    let (go, crash) = (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(None)));
    sim.client("client", {
        let (cluster, result) = (cluster.clone(), Arc::clone(&result));
        let (crash, go) = (Arc::clone(&crash), Arc::clone(&go));
        async move {
            cluster.wait_until(|c| c.live_brokers().len() == 3).await;
            cluster.create_topic("t", 1, 3, &[("min.insync.replicas", "2")])?;
            for i in 0..60 {
                if i == 20 {
                    *crash.lock() = cluster.leader("t", 0).map(|(id, _)| id);
                }
                if i == 40 {
                    *go.lock() = crash.lock().take();
                }
                produce(&cluster, &i.to_string()).await;
            }
            cluster.wait_until(|c| c.isr("t", 0).is_some_and(|isr| isr.len() == 3)).await;
            let (leader, _) = cluster.leader("t", 0).expect("a leader");
            let socket = VirtualNet.connect(addr(leader), SocketOptions::default()).await?;
            *result.lock() = Client::on(socket).fetch_all("t", 0, 60).await;
            Ok(())
        }
    });
    let mut crashed = None;
    while !sim.step().expect("the simulation continues") {
        let wanted = *crash.lock();
        if let (Some(id), None) = (wanted, crashed) {
            crashed = Some(id);
            sim.crash(names[id as usize - 1].as_str());
            // Unsynced bytes are lost with the host.
            disks[id as usize - 1].crash(false);
        }
        if let Some(id) = go.lock().take() {
            sim.bounce(names[id as usize - 1].as_str());
        }
    }
    let read = result.lock().clone();
    (read, ticks.0.load(Ordering::Relaxed))
}

#[test]
fn a_crash_loses_nothing_acknowledged() {
    let expected: Vec<String> = (0..60).map(|i| i.to_string()).collect();
    for seed in 0..10 {
        // A retried value may have a duplicate: the producer has no sequence numbers.
        let (mut read, _) = run(seed);
        read.dedup();
        assert_eq!(read[..], expected[..read.len()], "seed {seed}");
        assert!(read.len() >= 55, "seed {seed}: {read:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    assert_eq!(run(7), run(7));
}
