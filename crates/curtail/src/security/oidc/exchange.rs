//! One request to a token endpoint: HTTP/1.1 over TLS, one connection each.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use curtail_net::{
    Env, Socket, SocketOptions,
    tls::{ServerName, TlsError, TlsSocket},
};
use hyper::{
    Request,
    body::{Body as _, Incoming},
    client::conn::http1,
    header::{self, HeaderValue},
    rt::{Read, ReadBufCursor, Write},
};
use tokio::{io::ReadBuf, time::timeout};
use zeroize::Zeroizing;

use super::{
    Trouble,
    answer::{self, Granted, Proof},
    assertion,
};
use crate::{
    config::{CommonConfig, Grant, Origin, ProviderLogin, TokenEndpoint},
    conn::dial,
    error::Report,
    security::{
        OidcConfig, Secret, SslConfig,
        tls::{self, Peer},
    },
};

/// Limit for a response's body, in bytes.
const MAX_BODY: usize = 1024 * 1024;
/// Limit for a response's head, in bytes.
const MAX_HEAD: usize = 64 * 1024;
const MAX_HEADERS: usize = 100;
/// `client_assertion_type` of RFC 7523, 2.2.
const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
/// `grant_type` of RFC 7523, 2.1.
const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
/// Bytes per read.
const CHUNK: usize = 8 * 1024;

/// Time limits for connecting and reading.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) connect: Duration,
    pub(super) read: Duration,
}

impl Limits {
    pub(super) fn of(common: &CommonConfig, settings: &OidcConfig) -> Self {
        Self {
            connect: settings.connect_timeout.unwrap_or(common.connection_setup_timeout),
            read: settings.read_timeout.unwrap_or(common.request_timeout),
        }
    }
}

/// Reads or requests a token.
pub(super) async fn ask(
    env: &Env,
    login: &Arc<ProviderLogin>,
    limits: Limits,
) -> Result<Granted, Trouble> {
    match &login.origin {
        Origin::File(file) => {
            let file = file.clone();
            let text = blocking(move || assertion::read_text(&file)).await?;
            answer::read_file(&text, env.wall.now_ms())
        }
        Origin::Endpoint(endpoint, grant) => {
            let now_ms = env.wall.now_ms();
            let (request, proof) = request(login, endpoint, grant, now_ms).await?;
            request_token(env, endpoint, &login.ssl, request, &proof, limits).await
        }
    }
}

async fn request_token(
    env: &Env,
    endpoint: &TokenEndpoint,
    ssl: &SslConfig,
    request: Request<String>,
    proof: &Proof,
    limits: Limits,
) -> Result<Granted, Trouble> {
    let late = |what: &str, limit: Duration| {
        Trouble::Unreachable(format!("{what} within {} ms", limit.as_millis()).into())
    };
    let connected = timeout(limits.connect, connect(env, endpoint, ssl, limits.connect)).await;
    let socket = connected.unwrap_or_else(|_| Err(late("no connection", limits.connect)))?;
    let answered = timeout(limits.read, post(socket, request)).await;
    let (status, body) = answered.unwrap_or_else(|_| Err(late("no response", limits.read)))?;
    answer::read(status, &body, proof, env.wall.now_ms())
}

/// Runs work with files and keys.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, Trouble> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.map_err(|error| Trouble::Unreachable(error.to_string().into()))?;
    done.map_err(|reason| Trouble::Refused(reason.into()))
}

async fn connect(
    env: &Env,
    endpoint: &TokenEndpoint,
    ssl: &SslConfig,
    limit: Duration,
) -> Result<TlsSocket, Trouble> {
    let unreachable = |reason: String| Trouble::Unreachable(reason.into());
    let (socket, _) = dial(env, &endpoint.host, endpoint.port, SocketOptions::default(), limit)
        .await
        .map_err(|failed| unreachable(failed.text()))?;
    let name = ServerName::try_from(endpoint.host.clone())
        .map_err(|_| Trouble::Refused("its host is not a valid TLS server name".into()))?;
    let settings = ssl.clone();
    let config =
        tokio::task::spawn_blocking(move || tls::build(&settings).map(|built| built.config)).await;
    let config = config
        .map_err(|error| unreachable(error.to_string()))?
        .map_err(|reason| Trouble::Unusable(format!("sasl.jaas.config: {reason}").into()))?;
    match TlsSocket::connect(socket, config, name, limit).await {
        Ok(socket) => Ok(socket),
        Err(TlsError::Session(error)) => {
            let reason = tls::session_problem(Peer::TokenEndpoint, &endpoint.host, ssl, &error);
            Err(Trouble::Refused(reason.into()))
        }
        Err(error) => Err(unreachable(Report::new(&error).to_string())),
    }
}

/// Sends the request and returns the response's status and body.
async fn post(
    socket: TlsSocket,
    request: Request<String>,
) -> Result<(u16, Zeroizing<Vec<u8>>), Trouble> {
    let stream = Stream(socket);
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS)
        .handshake(stream)
        .await
        .map_err(|error| broken(&error))?;
    let mut connection = std::pin::pin!(connection);
    let mut exchange = std::pin::pin!(async move {
        let answer = sender.send_request(request).await.map_err(|error| broken(&error))?;
        let status = answer.status().as_u16();
        collect(answer.into_body()).await.map(|body| (status, body))
    });
    tokio::select! {
        biased;
        answer = &mut exchange => answer,
        // The connection has ended; the bytes that it has read must still be collected.
        _ = &mut connection => exchange.await,
    }
}

/// Makes the request, with an assertion of this time if the grant has one.
async fn request(
    login: &Arc<ProviderLogin>,
    endpoint: &TokenEndpoint,
    grant: &Grant,
    now_ms: i64,
) -> Result<(Request<String>, Proof), Trouble> {
    let mut authorization = None;
    let (form, secret, check) = match grant {
        Grant::ClientSecret { id, secret } => {
            authorization = Some(basic(id, secret, login.settings.header_urlencode)?);
            let form = "grant_type=client_credentials".to_owned();
            (form, secret.clone(), "the client id, the client secret and the scope")
        }
        Grant::ClientAssertion { id } => {
            let assertion = assertion_of(login, now_ms).await?;
            let mut form = format!(
                "client_assertion_type={}&client_assertion={}&grant_type=client_credentials",
                form_encoded(ASSERTION_TYPE),
                form_encoded(assertion.reveal()),
            );
            if let Some(id) = id {
                form.push_str("&client_id=");
                form.push_str(&form_encoded(id));
            }
            (form, assertion, "sasl.oauthbearer.assertion.*, the client id and the scope")
        }
        Grant::JwtBearer => {
            let assertion = assertion_of(login, now_ms).await?;
            let grant = form_encoded(JWT_BEARER);
            let form = format!("grant_type={grant}&assertion={}", form_encoded(assertion.reveal()));
            (form, assertion, "sasl.oauthbearer.assertion.* and the scope")
        }
    };
    let form = match login.scope.as_deref().map(str::trim).filter(|scope| !scope.is_empty()) {
        Some(scope) => format!("{form}&scope={}", form_encoded(scope)),
        None => form,
    };
    let mut request = Request::post(&endpoint.path_and_query)
        .header(header::HOST, &endpoint.authority)
        .header(header::ACCEPT, "application/json")
        .header(header::CACHE_CONTROL, "no-cache")
        .header(header::CONNECTION, "close")
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
    if let Some(authorization) = authorization {
        request = request.header(header::AUTHORIZATION, authorization);
    }
    let request = request.body(form).map_err(|error| unusable(&error))?;
    Ok((request, Proof { secret, check }))
}

async fn assertion_of(login: &Arc<ProviderLogin>, now_ms: i64) -> Result<Secret, Trouble> {
    let login = login.clone();
    blocking(move || assertion::create(&login.settings.assertion, now_ms)).await
}

/// The Authorization header of a client id and a secret (RFC 6749, 2.3.1).
fn basic(id: &str, secret: &Secret, urlencode: bool) -> Result<HeaderValue, Trouble> {
    let encode = |text: &str| match urlencode {
        true => Zeroizing::new(form_encoded(text)),
        false => Zeroizing::new(text.to_owned()),
    };
    let (id, secret) = (encode(id), encode(secret.reveal()));
    let pair = Zeroizing::new(format!("{}:{}", *id, *secret));
    let basic = Zeroizing::new(format!("Basic {}", STANDARD.encode(pair.as_bytes())));
    let mut authorization = HeaderValue::from_str(&basic).map_err(|error| unusable(&error))?;
    authorization.set_sensitive(true);
    Ok(authorization)
}

/// Collects the body, up to the size limit.
async fn collect(mut body: Incoming) -> Result<Zeroizing<Vec<u8>>, Trouble> {
    let mut bytes = Zeroizing::new(Vec::new());
    loop {
        let frame = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        let Some(frame) = frame else { return Ok(bytes) };
        let frame = frame.map_err(|error| broken(&error))?;
        let Some(data) = frame.data_ref() else { continue };
        if bytes.len() + data.len() > MAX_BODY {
            return Err(Trouble::Refused(
                format!("its response is larger than {MAX_BODY} bytes, too large for a token")
                    .into(),
            ));
        }
        bytes.extend_from_slice(data);
    }
}

fn broken(error: &hyper::Error) -> Trouble {
    let report = Report::new(error);
    let reason = match error.is_parse() {
        true => format!("it does not respond in HTTP: {report}"),
        false => format!("its response is incomplete: {report}"),
    };
    Trouble::Unreachable(reason.into())
}

fn unusable(error: &impl std::fmt::Display) -> Trouble {
    Trouble::Refused(format!("the settings make no valid request: {error}").into())
}

/// `application/x-www-form-urlencoded`, as Java's `URLEncoder` writes it.
pub(super) fn form_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'*' | b'_' => {
                encoded.push(byte.into());
            }
            b' ' => encoded.push('+'),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// Adapts a socket of `curtail-net` to hyper.
struct Stream(TlsSocket);

impl Read for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut chunk = [0; CHUNK];
        let length = buf.remaining().min(CHUNK);
        let mut read = ReadBuf::new(&mut chunk[..length]);
        ready!(self.0.poll_read(cx, &mut read))?;
        buf.put_slice(read.filled());
        Poll::Ready(Ok(()))
    }
}

impl Write for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            match self.0.try_write_vectored(&[IoSlice::new(buf)]) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.0.poll_write_ready(cx))?;
                }
                done => return Poll::Ready(done),
            }
        }
    }

    /// The socket sends accepted bytes without a flush.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
