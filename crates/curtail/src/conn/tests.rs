use std::net::SocketAddr;

use curtail_net::{BoxFuture, Listener, Net};
use parking_lot::Mutex;

use super::*;
use crate::ProducerConfig;

/// A network that refuses every connection and records the requested options.
#[derive(Default)]
struct Refusing(Mutex<Vec<SocketOptions>>);

impl Net for Refusing {
    fn connect(
        &self,
        _: SocketAddr,
        options: SocketOptions,
    ) -> BoxFuture<'_, io::Result<Box<dyn Socket>>> {
        self.0.lock().push(options);
        Box::pin(async { Err(io::ErrorKind::ConnectionRefused.into()) })
    }

    fn listen(&self, _: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }

    fn resolve<'a>(&'a self, _: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move { Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))]) })
    }
}

#[tokio::test]
async fn only_a_produce_connection_outlasts_a_receive_window_closed_for_the_request_timeout() {
    let net = Arc::new(Refusing::default());
    let env = Env { net: net.clone(), ..Env::real() };
    let request_timeout = Duration::from_secs(45);
    let common = CommonConfig { request_timeout, ..CommonConfig::default() };
    assert!(Connection::open(&env, &common, "h", 1).await.is_err());
    assert!(Connection::open_for_produce(&env, &common, "h", 1).await.is_err());
    let timeouts: Vec<_> = net.0.lock().iter().map(|options| options.user_timeout).collect();
    assert_eq!(timeouts, [SocketOptions::default().user_timeout, Some(request_timeout)]);
}

#[tokio::test]
async fn sockets_have_the_keepalive_and_user_timeout_of_the_settings() {
    let options_with = async |settings: &[(&str, &str)]| {
        let net = Arc::new(Refusing::default());
        let env = Env { net: net.clone(), ..Env::real() };
        let mut config = ProducerConfig::new("h:1");
        for (name, value) in settings {
            config.set(name, value).unwrap();
        }
        assert!(Connection::open(&env, &config.common, "h", 1).await.is_err());
        assert!(Connection::open_for_produce(&env, &config.common, "h", 1).await.is_err());
        let options = net.0.lock();
        let [plain, produce] = options[..] else { panic!("{options:?}") };
        assert_eq!(plain.keepalive, produce.keepalive);
        (plain.keepalive, plain.user_timeout, produce.user_timeout)
    };
    let seconds = Duration::from_secs;
    let defaults = SocketOptions::default();
    assert_eq!(
        options_with(&[]).await,
        (defaults.keepalive, defaults.user_timeout, Some(seconds(30)))
    );
    let set = [
        ("curtail.tcp.keepalive.idle.seconds", "77"),
        ("curtail.tcp.keepalive.interval.seconds", "33"),
        ("curtail.tcp.user.timeout.ms", "31000"),
    ];
    let keepalive = Keepalive { idle: seconds(77), interval: seconds(33) };
    assert_eq!(options_with(&set).await, (Some(keepalive), Some(seconds(31)), Some(seconds(31))));
    let off = [("curtail.tcp.keepalive.idle.seconds", "0"), ("curtail.tcp.user.timeout.ms", "0")];
    assert_eq!(options_with(&off).await, (None, None, None));
}
