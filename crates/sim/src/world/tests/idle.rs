//! Connections without a request: `connections.max.idle.ms` of the clients, and of the brokers (decision 0113).

use std::{
    io::{self, IoSlice},
    sync::{
        Weak,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
};

use curtail::{
    Admin, AdminConfig, TransactionalProducer,
    transaction::{ConsumerGroupMetadata, OffsetAndMetadata},
};
use curtail_net::{BoxFuture, Env, Listener, Net};
use parking_lot::Mutex;
use tokio::io::ReadBuf;

use super::*;

const TOPIC: &str = "t";
/// Less than `retry.backoff.ms` and `reconnect.backoff.ms` at their shortest.
const AT_ONCE: Duration = Duration::from_millis(35);

/// The network of a client, whose connections can be counted, and closed by the brokers.
#[derive(Clone)]
struct Watched {
    inner: Arc<dyn Net>,
    open: Arc<Mutex<Vec<Weak<Line>>>>,
}

struct Line {
    socket: Box<dyn Socket>,
    is_closed: AtomicBool,
    reader: Mutex<Option<Waker>>,
}

/// The client's end.
struct End(Arc<Line>);

impl Watched {
    fn of(env: &Env) -> (Self, Env) {
        let watched = Self { inner: env.net.clone(), open: Arc::default() };
        (watched.clone(), Env { net: Arc::new(watched), ..env.clone() })
    }

    fn open(&self) -> usize {
        self.open.lock().iter().filter(|line| line.strong_count() > 0).count()
    }

    /// Closes all connections, as brokers do with idle ones.
    fn close_all(&self) {
        let open: Vec<Arc<Line>> = self.open.lock().iter().filter_map(Weak::upgrade).collect();
        for line in open {
            line.is_closed.store(true, Ordering::SeqCst);
            if let Some(reader) = line.reader.lock().take() {
                reader.wake();
            }
        }
    }
}

impl Net for Watched {
    fn resolve<'a>(
        &'a self,
        host: &'a str,
        port: u16,
    ) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        self.inner.resolve(host, port)
    }

    fn connect(
        &self,
        addr: SocketAddr,
        options: SocketOptions,
    ) -> BoxFuture<'_, io::Result<Box<dyn Socket>>> {
        Box::pin(async move {
            let socket = self.inner.connect(addr, options).await?;
            let line = Line { socket, is_closed: AtomicBool::new(false), reader: Mutex::default() };
            let line = Arc::new(line);
            self.open.lock().push(Arc::downgrade(&line));
            Ok(Box::new(End(line)) as Box<dyn Socket>)
        })
    }

    fn listen(&self, addr: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
        self.inner.listen(addr)
    }
}

impl Socket for End {
    fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        match self.0.is_closed.load(Ordering::SeqCst) {
            true => Err(ErrorKind::BrokenPipe.into()),
            false => self.0.socket.try_write_vectored(bufs),
        }
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.socket.poll_write_ready(cx)
    }

    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        *self.0.reader.lock() = Some(cx.waker().clone());
        match self.0.is_closed.load(Ordering::SeqCst) {
            true => Poll::Ready(Ok(())),
            false => self.0.socket.poll_read(cx, buf),
        }
    }

    fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.socket.peer_addr()
    }
}

/// A client of each kind, each with its own network.
struct Clients {
    handle: Handle,
    producer: Producer,
    consumer: Consumer,
    transactional: TransactionalProducer,
    admin: Admin,
    nets: [(&'static str, Watched); 4],
    /// Records sent so far.
    sent: i64,
}

impl Clients {
    async fn start(handle: &Handle, max_idle: &str) -> (Cluster, Self) {
        let config = ClusterConfig { brokers: 2, ..ClusterConfig::default() };
        let cluster = handle.start_cluster(config).await.unwrap();
        cluster.create_topic(TOPIC, 1, 1, &[]).unwrap();
        cluster.settled().await;
        let env = handle.env(handle.add_host());
        // No refresh in between uses a connection.
        let settings = [("connections.max.idle.ms", max_idle), ("metadata.max.age.ms", "10000000")];
        let bootstrap = &*cluster.bootstrap();
        let (producers, producing) = Watched::of(&env);
        let mut config = ProducerConfig::new(bootstrap);
        settings.iter().for_each(|(name, value)| config.set(name, value).unwrap());
        let producer = Producer::with_env(config, &producing).unwrap();
        let (consumers, consuming) = Watched::of(&env);
        let mut config = ConsumerConfig::new(bootstrap).group_id("g").enable_auto_commit(false);
        settings.iter().for_each(|(name, value)| config.set(name, value).unwrap());
        let consumer = Consumer::with_env(config, &consuming).unwrap();
        let (transactions, transacting) = Watched::of(&env);
        let mut config = ProducerConfig::new(bootstrap).transactional_id("x");
        settings.iter().for_each(|(name, value)| config.set(name, value).unwrap());
        let transactional = TransactionalProducer::with_env(config, &transacting).unwrap();
        let (admins, administering) = Watched::of(&env);
        let mut config = AdminConfig::new(bootstrap);
        settings.iter().for_each(|(name, value)| config.set(name, value).unwrap());
        let admin = Admin::with_env(config, &administering).unwrap();
        let nets = [
            ("producer", producers),
            ("consumer", consumers),
            ("transactions", transactions),
            ("admin", admins),
        ];
        let handle = handle.clone();
        let clients = Self { handle, producer, consumer, transactional, admin, nets, sent: 0 };
        (cluster, clients)
    }

    /// Uses every connection. Returns how long each client took.
    async fn work(&mut self) -> Vec<(&'static str, Duration)> {
        let mut took = Vec::new();
        let mut begun = self.handle.now();
        let mut lap = |who: &'static str, now: Duration| {
            took.push((who, now - begun));
            begun = now;
        };
        self.producer.send(Record::to(TOPIC).value(b"x")).await.unwrap().await.unwrap();
        lap("producer", self.handle.now());
        let at = TopicPartition::new(TOPIC, 0);
        self.consumer.assign([at.clone()]);
        self.consumer.seek(&at, self.sent).unwrap();
        let records = self.consumer.poll(Duration::from_secs(10)).await.unwrap();
        assert_eq!(records[0].offset(), self.sent);
        lap("consumer", self.handle.now());
        let next = OffsetAndMetadata::new(self.sent + 1);
        self.consumer.commit_offsets([(at.clone(), next.clone())]).await.unwrap();
        lap("commit", self.handle.now());
        let committed = self.consumer.committed(std::slice::from_ref(&at)).await.unwrap();
        assert_eq!(committed[&at].as_ref().map(|offset| offset.offset), Some(self.sent + 1));
        lap("committed", self.handle.now());
        // Its lane has nothing to read, and keeps its connection.
        self.consumer.assign([]);
        self.transactional.init_transactions().await.unwrap();
        let transaction = self.transactional.begin_transaction().await.unwrap();
        let sent = transaction.send(Record::to(TOPIC).value(b"y")).await.unwrap();
        let group = ConsumerGroupMetadata::new("other");
        transaction.send_offsets_to_transaction([(at, next)], &group).await.unwrap();
        transaction.commit().await.unwrap();
        sent.await.unwrap();
        lap("transactions", self.handle.now());
        self.admin.list_topics().await.unwrap();
        self.admin.describe_groups(&["g"]).await.unwrap();
        lap("admin", self.handle.now());
        // A record, another one, and the marker of the transaction.
        self.sent += 3;
        took
    }

    fn open(&self) -> Vec<(&'static str, usize)> {
        self.nets.iter().map(|(name, net)| (*name, net.open())).collect()
    }
}

#[test]
fn idle_connections_of_every_client_close_after_connections_max_idle_ms() {
    let world = World::new(model(), 1).unwrap();
    let handle = world.handle();
    world.run(async move {
        let (_cluster, mut clients) = Clients::start(&handle, "60000").await;
        for _ in 0..3 {
            clients.work().await;
            let used = clients.open();
            assert!(used.iter().all(|(_, open)| *open > 0), "{used:?}");
            sleep(Duration::from_secs(59)).await;
            assert_eq!(clients.open(), used, "closed early");
            sleep(Duration::from_secs(2)).await;
            assert!(clients.open().iter().all(|(_, open)| *open == 0), "{:?}", clients.open());
            sleep(Duration::from_secs(100)).await;
            assert!(clients.open().iter().all(|(_, open)| *open == 0), "{:?}", clients.open());
            // A warm-up connects again.
            clients.producer.warm_up(&[TOPIC]).await.unwrap();
            assert!(clients.open()[0].1 > 0);
        }
    });
}

#[test]
fn idle_connections_stay_open_without_a_limit() {
    let world = World::new(model(), 1).unwrap();
    let handle = world.handle();
    world.run(async move {
        let (_cluster, mut clients) = Clients::start(&handle, "-1").await;
        clients.work().await;
        let used = clients.open();
        sleep(Duration::from_secs(200)).await;
        assert_eq!(clients.open(), used);
    });
}

/// Brokers close idle connections, too. The next requests neither fail nor back off.
#[test]
fn idle_connections_that_brokers_have_closed_delay_no_request() {
    let world = World::new(model(), 1).unwrap();
    let handle = world.handle();
    world.run(async move {
        let (_cluster, mut clients) = Clients::start(&handle, "-1").await;
        clients.work().await;
        // Coordinators and leaders are known, and the same requests take their usual time.
        clients.work().await;
        for _ in 0..3 {
            sleep(Duration::from_secs(5)).await;
            clients.nets.iter().for_each(|(_, net)| net.close_all());
            sleep(Duration::from_secs(5)).await;
            let took = clients.work().await;
            assert!(took.iter().all(|(_, took)| *took < AT_ONCE), "{took:?}");
        }
    });
}
