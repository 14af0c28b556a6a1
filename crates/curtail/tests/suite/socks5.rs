//! Clients that reach the embedded cluster only through a SOCKS5 proxy.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use curtail::{
    Admin, AdminConfig, Consumer, ConsumerConfig, Error, Producer, ProducerConfig, Record,
    config::OffsetReset,
    security::{Mechanism, SecurityConfig},
};
use curtail_cluster::User;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional},
    net::{TcpListener, TcpStream},
    time::timeout,
};

use crate::common::Backend;

const LIMIT: Duration = Duration::from_secs(60);

/// A proxy that connects every name to this machine.
struct Socks5 {
    address: SocketAddr,
    /// Names and ports of the requests.
    asked: Arc<Mutex<BTreeSet<String>>>,
}

impl Socks5 {
    /// With a login, the proxy requires it. `reply` other than 0 refuses every connection.
    async fn start(login: Option<(&'static str, &'static str)>, reply: u8) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(BTreeSet::new()));
        let requests = asked.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let requests = requests.clone();
                // A client that gives up ends its own connection only.
                tokio::spawn(async move { serve(client, login, reply, &requests).await.ok() });
            }
        });
        Self { address, asked }
    }

    fn server(&self) -> String {
        self.address.to_string()
    }
}

async fn text(client: &mut TcpStream) -> std::io::Result<String> {
    let length = client.read_u8().await?;
    let mut text = vec![0; usize::from(length)];
    client.read_exact(&mut text).await?;
    Ok(String::from_utf8(text).unwrap())
}

async fn serve(
    mut client: TcpStream,
    login: Option<(&str, &str)>,
    reply: u8,
    asked: &Mutex<BTreeSet<String>>,
) -> std::io::Result<()> {
    client.set_nodelay(true)?;
    assert_eq!(client.read_u8().await?, 5);
    let mut methods = vec![0; usize::from(client.read_u8().await?)];
    client.read_exact(&mut methods).await?;
    let method = if login.is_some() { 2 } else { 0 };
    if !methods.contains(&method) {
        return client.write_all(&[5, 0xff]).await;
    }
    client.write_all(&[5, method]).await?;
    if let Some(login) = login {
        assert_eq!(client.read_u8().await?, 1);
        let given = (text(&mut client).await?, text(&mut client).await?);
        let refused = (given.0.as_str(), given.1.as_str()) != login;
        client.write_all(&[1, u8::from(refused)]).await?;
        if refused {
            return Ok(());
        }
    }
    let mut request = [0; 4];
    client.read_exact(&mut request).await?;
    assert_eq!(request, [5, 1, 0, 3], "a connection by name");
    let host = text(&mut client).await?;
    let port = client.read_u16().await?;
    asked.lock().unwrap().insert(host);
    if reply != 0 {
        return client.write_all(&[5, reply, 0, 1, 0, 0, 0, 0, 0, 0]).await;
    }
    let mut broker = TcpStream::connect(("127.0.0.1", port)).await?;
    // With a name as its own address, byte by byte.
    for byte in [5, 0, 0, 3, 5, b'p', b'r', b'o', b'x', b'y', 4, 56] {
        client.write_all(&[byte]).await?;
        tokio::task::yield_now().await;
    }
    copy_bidirectional(&mut client, &mut broker).await?;
    Ok(())
}

/// A cluster whose brokers have a name that only the proxy resolves.
async fn hidden(brokers: u32) -> (Backend, String) {
    let backend = Backend::embedded_with(brokers, |config| {
        for (name, value) in [
            ("listeners", "PLAINTEXT://127.0.0.1:0"),
            ("advertised.listeners", "PLAINTEXT://broker.invalid:0"),
        ] {
            config.set(name, value).unwrap();
        }
    });
    let backend = backend.await;
    let servers = backend.bootstrap();
    let port = servers.split(',').next().unwrap().rsplit_once(':').unwrap().1;
    let bootstrap = format!("kafka.invalid:{port}");
    (backend, bootstrap)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_reach_brokers_by_name_through_a_proxy_with_a_login() {
    let (backend, bootstrap) = hidden(3).await;
    backend.create_topic("t", 6, 3).await;
    let proxy = Socks5::start(Some(("alice", "secret")), 0).await;
    let run = async {
        let config = ProducerConfig::new(&bootstrap)
            .socks5_proxy(proxy.server())
            .socks5_login("alice", "secret");
        let producer = Producer::new(config).unwrap();
        for partition in 0..6 {
            let record = Record::to("t").partition(partition).value("x");
            producer.send(record).await.unwrap().await.unwrap();
        }
        producer.close().await.unwrap();
        let mut config =
            ConsumerConfig::new(&bootstrap).group_id("g").auto_offset_reset(OffsetReset::Earliest);
        config.set("curtail.socks5.proxy", &proxy.server()).unwrap();
        config.set("curtail.socks5.username", "alice").unwrap();
        config.set("curtail.socks5.password", "secret").unwrap();
        let mut consumer = Consumer::new(config).unwrap();
        consumer.subscribe(["t"]).unwrap();
        let mut read = 0;
        while read < 6 {
            read += consumer.poll(Duration::from_secs(1)).await.unwrap().into_iter().count();
        }
        consumer.close().await;
    };
    timeout(LIMIT, run).await.expect("in time");
    let asked: Vec<String> = proxy.asked.lock().unwrap().iter().cloned().collect();
    assert_eq!(asked, ["broker.invalid", "kafka.invalid"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_and_sasl_are_with_the_broker_beyond_the_proxy() {
    let backend = Backend::embedded_with(1, |config| {
        config.security.users = vec![User::new("alice", "secret")];
        for (name, value) in [
            ("listeners", "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0"),
            ("advertised.listeners", "INSIDE://localhost:0,OUTSIDE://localhost:0"),
            ("listener.security.protocol.map", "INSIDE:PLAINTEXT,OUTSIDE:SASL_SSL"),
        ] {
            config.set(name, value).unwrap();
        }
    });
    let backend = backend.await;
    backend.create_topic("t", 1, 1).await;
    let Backend::Embedded(cluster) = &backend else { panic!("it is the embedded cluster") };
    let security = SecurityConfig::sasl_ssl(Mechanism::ScramSha256, "alice", "secret")
        .truststore(cluster.ca_file().unwrap(), None);
    let proxy = Socks5::start(None, 0).await;
    let config = |listener: &str, security: &SecurityConfig| {
        let bootstrap = cluster.bootstrap_of(listener).unwrap();
        ProducerConfig::new(bootstrap).socks5_proxy(proxy.server()).security(security.clone())
    };
    let producer = Producer::new(config("OUTSIDE", &security)).unwrap();
    let sent = async {
        producer.send(Record::to("t").value("x")).await.unwrap().await.unwrap();
        producer.close().await.unwrap();
    };
    timeout(LIMIT, sent).await.expect("in time");
    // The probes that tell a wrong protocol from a lost connection pass the proxy, too.
    for (listener, security, hint) in [
        ("INSIDE", &security, "does not speak TLS"),
        ("OUTSIDE", &SecurityConfig::default(), "security.protocol"),
    ] {
        let producer = Producer::new(config(listener, security)).unwrap();
        let sent = timeout(LIMIT, producer.send(Record::to("t").value("x")));
        let error = sent.await.expect("in time").expect_err("it is refused");
        let text = error.report().to_string();
        assert!(matches!(error, Error::Authentication { .. }) && text.contains(hint), "{error:?}");
    }
}

/// The error of a call through a proxy.
async fn refusal(proxy: &str, login: Option<(&str, &str)>) -> Error {
    let mut config = AdminConfig::new("kafka.invalid:9092")
        .socks5_proxy(proxy)
        .request_timeout(Duration::from_millis(500));
    config.set("default.api.timeout.ms", "1000").unwrap();
    if let Some((user, password)) = login {
        config = config.socks5_login(user, password);
    }
    let admin = Admin::new(config).unwrap();
    timeout(LIMIT, admin.describe_cluster()).await.expect("in time").unwrap_err()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_that_refuses_is_named_with_the_remedy() {
    let secured = Socks5::start(Some(("alice", "secret")), 0).await.server();
    for (login, remedy) in [
        (None, "requires a login; set curtail.socks5.username"),
        (Some(("alice", "wrong")), "refuses the login; check curtail.socks5.username"),
    ] {
        let error = refusal(&secured, login).await;
        assert!(matches!(error, Error::Authentication { .. }), "{error:?}");
        let text = error.report().to_string();
        assert!(text.contains(remedy) && text.contains(&secured), "{text}");
        assert!(!text.contains("wrong"), "{text}");
    }
    for (reply, meaning) in [(2, "rules forbid"), (4, "unreachable from there"), (5, "refused")] {
        let proxy = Socks5::start(None, reply).await.server();
        let text = refusal(&proxy, None).await.report().to_string();
        assert!(text.contains(meaning) && text.contains(&proxy), "{text}");
    }
    // Nothing listens there.
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
    let text = refusal(&free, None).await.report().to_string();
    assert!(
        text.contains("curtail.socks5.proxy") && text.contains("is anything listening"),
        "{text}"
    );
}
