//! A scripted token endpoint: HTTP over TLS, one response per connection.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use curtail_net::{
    Net, RealNet, Socket, SocketExt,
    tls::{ClientAuth, Identity, TLS12, TLS13, TlsSocket, server_config},
};
use parking_lot::Mutex;

use super::certificates::Signed;

const LIMIT: Duration = Duration::from_secs(60);

/// The endpoint's reaction to a request.
pub(crate) enum Say {
    /// These bytes, then the connection is closed.
    Bytes(Vec<u8>),
    /// No response, and the connection stays open.
    Nothing,
}

impl Say {
    /// A response with a body and an additional header.
    pub(crate) fn answer(status: &str, header: &str, body: &str) -> Self {
        let length = body.len();
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n{header}\r\n");
        Self::Bytes([head.as_bytes(), body.as_bytes()].concat())
    }

    pub(crate) fn token(token: &str) -> Self {
        let json = "content-type: application/json\r\n";
        Self::answer(
            "200 OK",
            json,
            &format!("{{\"access_token\":\"{token}\",\"expires_in\":3600}}"),
        )
    }
}

pub(crate) struct Endpoint {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Endpoint {
    pub(crate) async fn start(
        certificate: &Signed,
        mut say: impl FnMut() -> Say + Send + 'static,
    ) -> Self {
        let (chain, key) = certificate.parts();
        let identity = Identity::from_pem(chain.as_bytes(), key.as_bytes(), None).unwrap();
        let config = server_config(identity, ClientAuth::None, &[&TLS12, &TLS13]).unwrap();
        let listener = RealNet.listen((Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = requests.clone();
        tokio::spawn(async move {
            let mut silent = Vec::new();
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let Ok(socket) = TlsSocket::accept(socket, config.clone(), LIMIT).await else {
                    continue;
                };
                let Some(request) = read(&socket).await else { continue };
                seen.lock().push(request);
                match say() {
                    // A client may close before the end.
                    Say::Bytes(bytes) => drop(socket.write_all(&bytes).await),
                    Say::Nothing => silent.push(socket),
                }
            }
        });
        Self { address, requests }
    }

    pub(crate) fn url(&self) -> String {
        format!("https://{}/token?hidden=part", self.address)
    }

    /// The endpoint's name in errors.
    pub(crate) fn shown(&self) -> String {
        format!("sasl.oauthbearer.token.endpoint.url=https://{}/token", self.address)
    }

    /// The requests received so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().clone()
    }
}

/// Reads a request whose body has its declared length.
async fn read(socket: &dyn Socket) -> Option<String> {
    let mut text = String::new();
    loop {
        let length = text.split("content-length: ").nth(1).and_then(|rest| rest.split_once("\r\n"));
        if let (Some((length, _)), Some((_, body))) = (length, text.split_once("\r\n\r\n"))
            && length.parse() == Ok(body.len())
        {
            return Some(text);
        }
        let mut chunk = [0; 1024];
        match socket.read(&mut chunk).await {
            Ok(0) | Err(_) => return None,
            Ok(n) => text.push_str(std::str::from_utf8(&chunk[..n]).unwrap()),
        }
    }
}
