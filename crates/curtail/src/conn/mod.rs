//! One connection to one broker: connect, TLS, ApiVersions handshake, SASL, frames in both directions.
//!
//! [`Connection`] handles one request at a time, for control traffic and for lanes that keep their own order. The
//! produce lane takes it apart ([`Connection::into_parts`]) to write and read concurrently.

mod idle;
mod listener;
mod socks5;
#[cfg(test)]
mod tests;

use std::{
    io,
    net::SocketAddr,
    ops::RangeInclusive,
    sync::Arc,
    task::{Context, Waker},
    time::Duration,
};

use bytes::Bytes;
use curtail_net::{Env, Keepalive, ReadSide, Socket, SocketExt, SocketOptions};
use curtail_proto::later::Later;
use curtail_wire::{
    ApiKey, ApiVersions, ErrorCode, Writer,
    cold::{self, Decodable, Message, Request, messages},
    frame::{DEFAULT_LIMIT, FrameError, FrameSplitter, UNAUTHENTICATED_LIMIT},
    header::{self, RequestHeader},
};
use tokio::{
    io::{AsyncReadExt as _, ReadBuf},
    time::{Instant, timeout, timeout_at},
};

pub(crate) use self::idle::Idle;
use self::listener::{Doubt, speaks_clear_text};
use crate::{
    Error, Result,
    config::CommonConfig,
    error::{ConnectionProblem, Report},
    security::{
        SslConfig,
        sasl::{Authenticator, Carrier, CredentialSource, RenewAt},
        secure, session_error,
    },
    span::Span,
};

/// Bytes reserved for a read.
pub(crate) const READ_HINT: usize = 64 * 1024;

/// A connection after its handshake.
pub(crate) struct Connection {
    socket: Arc<dyn Socket>,
    splitter: FrameSplitter,
    versions: ApiVersions,
    peer: Arc<str>,
    client_id: Arc<str>,
    next_correlation_id: i32,
    request_timeout: Duration,
    /// `connections.max.idle.ms`; `None` for no limit.
    max_idle: Option<Duration>,
    /// Time of the last request or response.
    used_at: Instant,
    /// The setting that raises the receive limit, if one does.
    limited_by: Option<&'static str>,
    /// With TLS only: settings for explanations of failures.
    ssl: Option<Arc<SslConfig>>,
    /// With SASL only.
    session: Option<Session>,
    /// Without SASL, until a broker has served the client.
    doubt: Option<Box<Doubt>>,
}

/// Result of SASL authentication.
pub(crate) struct Session {
    pub(crate) authenticator: Arc<Authenticator>,
    /// When to renew the session.
    pub(crate) renew_at: RenewAt,
}

impl Session {
    fn is_due(&self) -> bool {
        self.renew_at.is_some_and(|at| at <= Instant::now())
    }
}

impl Connection {
    /// Resolves `host`, connects to the first address that accepts, secures the connection as `security.protocol`
    /// says and requests the broker's versions. Limited by `socket.connection.setup.timeout.ms`.
    pub(crate) async fn open(
        env: &Env,
        common: &CommonConfig,
        host: &str,
        port: u16,
    ) -> Result<Self> {
        Self::open_with(env, common, host, port, options(common)).await
    }

    /// As [`Self::open`], for requests that may fill the broker's receive window.
    ///
    /// A broker reads no request of a connection while it serves one, and with acks=all that may take
    /// `request.timeout.ms`. Linux counts `TCP_USER_TIMEOUT` while the peer's window is closed, even if the peer
    /// acknowledges each probe. A shorter value would close a healthy connection.
    pub(crate) async fn open_for_produce(
        env: &Env,
        common: &CommonConfig,
        host: &str,
        port: u16,
    ) -> Result<Self> {
        let options = options(common);
        let user_timeout = options.user_timeout.map(|limit| limit.max(common.request_timeout));
        Self::open_with(env, common, host, port, SocketOptions { user_timeout, ..options }).await
    }

    async fn open_with(
        env: &Env,
        common: &CommonConfig,
        host: &str,
        port: u16,
        options: SocketOptions,
    ) -> Result<Self> {
        let peer: Arc<str> = format!("{host}:{port}").into();
        // Before the broker is dialled: it would not wait for the token, and its time limit is not the token
        // endpoint's.
        let source = CredentialSource::prepare(env, common, &peer).await?;
        let limit = common.connection_setup_timeout;
        let opened = Self::open_unbounded(env, common, (host, port), options, peer.clone(), source);
        match timeout(limit, opened).await {
            Ok(opened) => opened,
            Err(_) => Err(connection_error(
                &peer,
                format!(
                    "no usable connection within socket.connection.setup.timeout.ms={}: the host is unreachable or the broker is unresponsive",
                    limit.as_millis()
                ),
            )),
        }
    }

    async fn open_unbounded(
        env: &Env,
        common: &CommonConfig,
        (host, port): (&str, u16),
        options: SocketOptions,
        peer: Arc<str>,
        source: Option<CredentialSource>,
    ) -> Result<Self> {
        let (socket, address) = dial_broker(env, common, (host, port), options, &peer).await?;
        let socket = Self::secured(env, common, socket, (host, port), address, &peer).await?;
        let mut connection = Self::unproven(common, socket, peer);
        let security = &common.security;
        connection.ssl = security.protocol.has_tls().then(|| Arc::new(security.ssl.clone()));
        match connection.prove(common, source).await {
            Ok(()) => {
                connection.doubt = Doubt::of(env, common, host, port);
                Ok(connection)
            }
            Err(error) => {
                let error = connection.last_word(error).await;
                Err(connection.explain(common, error))
            }
        }
    }

    /// Secures a socket as `security.protocol` says. `address` is that of the broker; `None` through a proxy.
    async fn secured(
        env: &Env,
        common: &CommonConfig,
        socket: Box<dyn Socket>,
        at: (&str, u16),
        address: Option<SocketAddr>,
        peer: &Arc<str>,
    ) -> Result<Box<dyn Socket>> {
        match common.security.protocol.has_tls() {
            false => Ok(socket),
            true => match secure(common, socket, at.0, peer).await {
                // A broker without TLS closes the connection, but so does one that is shutting down.
                Err(Error::Connection { .. })
                    if speaks_clear_text(env, common, at, address).await =>
                {
                    let name = common.security.protocol.name();
                    Err(authentication_error(
                        peer,
                        format!(
                            "this listener does not speak TLS, but security.protocol={name} requires it; check the port, or set security.protocol to the listener's"
                        ),
                    ))
                }
                secured => secured,
            },
        }
    }

    /// Returns the TLS alert of a broker that refused the client's certificate, in place of `error`. The broker then
    /// closes the connection, which may fail a write before the alert is read.
    async fn last_word(&mut self, error: Error) -> Error {
        if self.ssl.is_none() || !matches!(error, Error::Connection { .. }) || is_no_token(&error) {
            return error;
        }
        match self.read().await {
            Err(refused @ Error::Authentication { .. }) => refused,
            _ => error,
        }
    }

    fn unproven(common: &CommonConfig, socket: Box<dyn Socket>, peer: Arc<str>) -> Self {
        Self {
            socket: socket.into(),
            // Until the peer has proved that it is a broker, its frames are limited.
            splitter: FrameSplitter::new(UNAUTHENTICATED_LIMIT),
            versions: ApiVersions::default(),
            peer,
            client_id: common.client_id.as_str().into(),
            next_correlation_id: 0,
            request_timeout: common.request_timeout,
            max_idle: common.connections_max_idle,
            used_at: Instant::now(),
            limited_by: None,
            ssl: None,
            session: None,
            doubt: None,
        }
    }

    /// Adds to an error before the first response that the settings may not fit the listener.
    fn explain(&mut self, common: &CommonConfig, error: Error) -> Error {
        let name = common.security.protocol.name();
        match (self.splitter.next_frame(), &error) {
            (Err(broken), _) if broken.is_tls() => authentication_error(
                &self.peer,
                format!(
                    "{broken}, but security.protocol={name} is plaintext; set it to SSL or SASL_SSL"
                ),
            ),
            (_, error) if is_no_token(error) => error.clone(),
            (_, Error::Connection { reason, source, .. }) => problem_error(
                &self.peer,
                ConnectionProblem::Unserved,
                format!(
                    "{}, before the first request; is security.protocol={name} that of the listener?",
                    happened(reason, source.as_deref())
                ),
            ),
            _ => error,
        }
    }

    /// Performs the handshake and authentication.
    async fn prove(
        &mut self,
        common: &CommonConfig,
        source: Option<CredentialSource>,
    ) -> Result<()> {
        self.shake_hands().await?;
        if let Some(source) = source {
            let (security, peer) = (&common.security, &self.peer);
            let authenticator =
                Authenticator::new(security, source, peer, &self.client_id, &self.versions)?;
            // Rare, and larger than the future of any write.
            let renew_at = Box::pin(authenticator.run(self)).await?;
            self.session = Some(Session { authenticator, renew_at });
        }
        self.splitter.set_limit(DEFAULT_LIMIT);
        Ok(())
    }

    /// Requests the versions in version 3, and again in version 0 if the broker does not support that (KIP-511).
    async fn shake_hands(&mut self) -> Result<()> {
        for version in [3, 0] {
            let request = messages::ApiVersionsRequest::default()
                .with_client_software_name("curtail".into())
                .with_client_software_version(env!("CARGO_PKG_VERSION").into());
            let request =
                if version == 3 { request } else { messages::ApiVersionsRequest::default() };
            let correlation_id = self.next_correlation_id();
            let frame =
                cold::encode_request(version, correlation_id, Some(&self.client_id), &request)
                    .map_err(|e| self.protocol_error(e))?;
            self.write(&frame).await?;
            let answer = self.read_answer(correlation_id).await?;
            let body = header::response_body(&answer, ApiKey::API_VERSIONS, version)
                .map_err(|e| self.protocol_error(e))?;
            let versions =
                ApiVersions::decode(version, &body).map_err(|e| self.protocol_error(e))?;
            match versions.error {
                ErrorCode::NONE => {
                    self.versions = versions;
                    return Ok(());
                }
                ErrorCode::UNSUPPORTED_VERSION if version > 0 => {}
                code => {
                    return Err(Error::Broker {
                        what: format!("ApiVersions of {}", self.peer).into(),
                        code,
                        message: None,
                    });
                }
            }
        }
        Err(self.protocol_error("refuses ApiVersions in every version"))
    }

    /// Accepts responses of up to `bytes`. A larger one is [`Error::ResponseTooLarge`], which names the setting.
    pub(crate) fn set_receive_limit(&mut self, bytes: usize, setting: &'static str) {
        self.splitter.set_limit(bytes);
        self.limited_by = Some(setting);
    }

    fn unreadable(&self, error: FrameError) -> Error {
        match (error, self.limited_by) {
            (FrameError::TooLarge { length, limit }, Some(setting)) => {
                Error::ResponseTooLarge { broker: self.peer.clone(), bytes: length, limit, setting }
            }
            (error, _) => frame_error(&self.peer, error),
        }
    }

    /// Address of the broker, for errors.
    pub(crate) fn peer(&self) -> &Arc<str> {
        &self.peer
    }

    /// Returns the highest version of `api` that both sides support.
    pub(crate) fn negotiate(&self, api: ApiKey, ours: RangeInclusive<i16>) -> Result<i16> {
        self.versions
            .negotiate(api, ours)
            .map_err(|e| Error::UnsupportedVersion(format!("{}: {e}", self.peer).into()))
    }

    /// Returns the finalized level of a feature when the connection was opened (KIP-584).
    pub(crate) fn finalized_level(&self, feature: &str) -> Option<i16> {
        self.versions.finalized_level(feature)
    }

    /// Returns the correlation id for the next request.
    pub(crate) fn next_correlation_id(&mut self) -> i32 {
        let id = self.next_correlation_id;
        self.next_correlation_id = id.wrapping_add(1) & i32::MAX;
        id
    }

    /// Writes a whole frame. First renews the session if that is due.
    ///
    /// # Cancel safety
    /// Not cancel safe: drop the connection together with the future.
    pub(crate) async fn write(&mut self, frame: &[u8]) -> Result<()> {
        self.renew_session().await?;
        self.write_now(frame).await
    }

    /// Renews the SASL session if that is due.
    ///
    /// # Cancel safety
    /// As [`Self::write`].
    pub(crate) async fn renew_session(&mut self) -> Result<()> {
        if let Some(session) = self.session.as_ref().filter(|session| session.is_due()) {
            let authenticator = session.authenticator.clone();
            let renew_at = authenticator.run(self).await?;
            self.session = Some(Session { authenticator, renew_at });
        }
        Ok(())
    }

    async fn write_now(&mut self, frame: &[u8]) -> Result<()> {
        self.used_at = Instant::now();
        self.socket.write_all(frame).await.map_err(|e| self.lost(e))
    }

    /// Explains a failure of the socket. With TLS 1.3 a broker refuses a client's certificate only after the
    /// handshake.
    fn lost(&self, error: io::Error) -> Error {
        let refused = self.ssl.as_ref().and_then(|ssl| session_error(&self.peer, ssl, &error));
        refused.unwrap_or_else(|| socket_error(&self.peer, error))
    }

    /// Reads the next frame, header included.
    ///
    /// # Cancel safety
    /// Cancel safe: a partial frame stays in the connection.
    pub(crate) async fn read(&mut self) -> Result<Bytes> {
        loop {
            let next = self.splitter.next_frame();
            if let Some(frame) = next.map_err(|error| self.unreadable(error))? {
                self.used_at = Instant::now();
                return Ok(frame);
            }
            let spare = self.splitter.spare(READ_HINT);
            match ReadSide(&*self.socket).read_buf(spare).await {
                Ok(0) => return Err(connection_error(&self.peer, "closed by the broker")),
                Ok(_) => {}
                Err(e) => return Err(self.lost(e)),
            }
        }
    }

    /// When the connection closes if it is not used before; `None` without a limit.
    pub(crate) fn closes_at(&self) -> Option<Instant> {
        self.max_idle.map(|limit| self.used_at.later(limit))
    }

    /// Whether a connection without a request in flight can have another one: its time has not come, and the broker has
    /// neither closed it nor sent anything.
    pub(crate) fn is_usable(&self) -> bool {
        if self.closes_at().is_some_and(|at| at <= Instant::now()) {
            return false;
        }
        let mut byte = [0];
        // No task waits: the next read registers its own waker.
        let mut cx = Context::from_waker(Waker::noop());
        let read = self.socket.poll_read(&mut cx, &mut ReadBuf::new(&mut byte));
        read.is_pending() && self.is_between_frames()
    }

    /// Whether no part of the next response is buffered.
    pub(crate) fn is_between_frames(&self) -> bool {
        self.splitter.is_between_frames()
    }

    /// Reads the next frame, which must be the response to the request with `correlation_id`.
    pub(crate) async fn read_answer(&mut self, correlation_id: i32) -> Result<Bytes> {
        let frame = self.read().await?;
        let got = header::correlation_id(&frame).map_err(|e| self.protocol_error(e))?;
        if got != correlation_id {
            return Err(self.protocol_error(format!(
                "response with correlation id {got} to request {correlation_id}"
            )));
        }
        Ok(frame)
    }

    /// Sends a request whose codec is `kafka-protocol`'s and waits for its response, up to `request.timeout.ms`.
    /// After an error the connection is unusable.
    pub(crate) async fn request<Q, A>(
        &mut self,
        ours: RangeInclusive<i16>,
        request: impl FnOnce(i16) -> Q,
    ) -> Result<A>
    where
        Q: Request<Response = A>,
        A: Decodable + Message,
    {
        self.request_within(self.request_timeout, ours, request).await
    }

    /// As [`Self::request`], with another time limit.
    pub(crate) async fn request_within<Q, A>(
        &mut self,
        limit: Duration,
        ours: RangeInclusive<i16>,
        request: impl FnOnce(i16) -> Q,
    ) -> Result<A>
    where
        Q: Request<Response = A>,
        A: Decodable + Message,
    {
        let api = ApiKey(Q::KEY);
        let version = self.negotiate(api, ours)?;
        let correlation_id = self.next_correlation_id();
        let frame =
            cold::encode_request(version, correlation_id, Some(&self.client_id), &request(version))
                .map_err(|e| self.protocol_error(e))?;
        let answer = self.exchange(api, &frame, correlation_id, limit).await?;
        let body =
            header::response_body(&answer, api, version).map_err(|e| self.protocol_error(e))?;
        cold::decode_response(version, body).map_err(|e| self.protocol_error(e))
    }

    /// Sends a request whose body `encode` writes. Returns the response's body and the version used.
    pub(crate) async fn request_hot(
        &mut self,
        api: ApiKey,
        ours: RangeInclusive<i16>,
        encode: impl FnOnce(i16, &mut Writer),
    ) -> Result<(i16, Bytes)> {
        let version = self.negotiate(api, ours)?;
        let correlation_id = self.next_correlation_id();
        let frame = self.frame(api, version, correlation_id, |w| encode(version, w));
        let answer = self.exchange(api, &frame, correlation_id, self.request_timeout).await?;
        let body =
            header::response_body(&answer, api, version).map_err(|e| self.protocol_error(e))?;
        Ok((version, body))
    }

    /// Returns a whole request frame: length, header, body.
    pub(crate) fn frame(
        &self,
        api: ApiKey,
        version: i16,
        correlation_id: i32,
        encode: impl FnOnce(&mut Writer),
    ) -> Vec<u8> {
        let mut writer = Writer::with_capacity(256);
        writer.i32(0);
        RequestHeader { api, version, correlation_id, client_id: Some(&self.client_id) }
            .encode(&mut writer);
        encode(&mut writer);
        let length = writer.len() - 4;
        writer.patch_i32(0, length as i32);
        writer.into_vec()
    }

    async fn exchange(
        &mut self,
        api: ApiKey,
        frame: &[u8],
        correlation_id: i32,
        limit: Duration,
    ) -> Result<Bytes> {
        let span = self.span(api);
        let answer = span.wrap(self.exchange_within(frame, correlation_id, limit)).await;
        span.end_of(&answer);
        answer
    }

    /// The span of a request.
    pub(crate) fn span(&self, api: ApiKey) -> Span {
        Span::request(&self.client_id, &self.peer, api)
    }

    async fn exchange_within(
        &mut self,
        frame: &[u8],
        correlation_id: i32,
        limit: Duration,
    ) -> Result<Bytes> {
        let exchange = async {
            self.write(frame).await?;
            self.read_answer(correlation_id).await
        };
        let answer = match timeout_at(Instant::now().later(limit), exchange).await {
            Ok(answer) => answer,
            Err(_) => return Err(unanswered(&self.peer, limit)),
        };
        let Some(doubt) = self.doubt.take() else { return answer };
        match answer {
            Ok(answer) => {
                doubt.end();
                Ok(answer)
            }
            Err(error) => Err(doubt.explain(&self.peer, error).await),
        }
    }

    /// Takes the connection apart, for the produce lane's driver.
    pub(crate) fn into_parts(self) -> Parts {
        let Self { socket, splitter, peer, session, request_timeout, .. } = self;
        Parts { socket, splitter, peer, session, request_timeout }
    }

    #[allow(
        clippy::needless_pass_by_value,
        reason = "callers pass errors and texts that they do not use again"
    )]
    pub(crate) fn protocol_error(&self, reason: impl ToString) -> Error {
        protocol_error(&self.peer, reason)
    }
}

/// The parts of a connection.
pub(crate) struct Parts {
    /// Shared by the reader and all writers.
    pub(crate) socket: Arc<dyn Socket>,
    /// Frames being reassembled.
    pub(crate) splitter: FrameSplitter,
    /// Address of the broker, for errors.
    pub(crate) peer: Arc<str>,
    /// Result of SASL authentication, if there is SASL.
    pub(crate) session: Option<Session>,
    /// `request.timeout.ms`.
    pub(crate) request_timeout: Duration,
}

impl Carrier for Connection {
    async fn exchange(&mut self, frame: &[u8], correlation_id: i32) -> Result<Bytes> {
        let limit = self.request_timeout;
        let exchange = async {
            self.write_now(frame).await?;
            self.read_answer(correlation_id).await
        };
        match timeout(limit, exchange).await {
            Ok(answer) => answer,
            Err(_) => Err(unanswered(&self.peer, limit)),
        }
    }

    fn next_correlation_id(&mut self) -> i32 {
        self.next_correlation_id()
    }
}

/// Options of a connection on which the broker never receives more than its receive window holds.
fn options(common: &CommonConfig) -> SocketOptions {
    let (idle, interval) = (common.tcp_keepalive_idle, common.tcp_keepalive_interval);
    SocketOptions {
        send_buffer: common.send_buffer,
        receive_buffer: common.receive_buffer,
        // Linux counts in whole seconds and refuses zero.
        keepalive: (idle.as_secs() > 0).then_some(Keepalive { idle, interval }),
        user_timeout: Some(common.tcp_user_timeout).filter(|limit| limit.as_millis() > 0),
    }
}

pub(crate) fn unanswered(peer: &Arc<str>, limit: Duration) -> Error {
    connection_error(peer, format!("no response within {} ms", limit.as_millis()))
}

#[allow(
    clippy::needless_pass_by_value,
    reason = "callers pass errors and texts that they do not use again"
)]
pub(crate) fn authentication_error(peer: &Arc<str>, reason: impl ToString) -> Error {
    Error::Authentication { broker: peer.clone(), reason: reason.to_string().into() }
}

#[allow(
    clippy::needless_pass_by_value,
    reason = "callers pass errors and texts that they do not use again"
)]
pub(crate) fn connection_error(peer: &Arc<str>, reason: impl ToString) -> Error {
    problem_error(peer, ConnectionProblem::Other, reason)
}

/// Whether the application's source of tokens has none. The broker has no part in it.
fn is_no_token(error: &Error) -> bool {
    matches!(error, Error::Connection { problem: ConnectionProblem::NoToken, .. })
}

/// As [`connection_error`], of a kind with its own remedy, which the reason names.
#[allow(
    clippy::needless_pass_by_value,
    reason = "callers pass errors and texts that they do not use again"
)]
pub(crate) fn problem_error(
    peer: &Arc<str>,
    problem: ConnectionProblem,
    reason: impl ToString,
) -> Error {
    let reason = reason.to_string().into();
    Error::Connection { broker: peer.clone(), reason, problem, source: None }
}

/// The error for a connection whose socket failed.
pub(crate) fn socket_error(peer: &Arc<str>, error: io::Error) -> Error {
    Error::Connection {
        broker: peer.clone(),
        reason: "the socket failed".into(),
        problem: ConnectionProblem::Other,
        source: Some(Arc::new(error)),
    }
}

/// The reason of an [`Error::Connection`] with the operating system's, for a reason that gives advice.
fn happened(reason: &str, source: Option<&io::Error>) -> String {
    source.map_or_else(|| reason.to_owned(), |source| format!("{reason} ({source})"))
}

#[allow(
    clippy::needless_pass_by_value,
    reason = "callers pass errors and texts that they do not use again"
)]
pub(crate) fn protocol_error(peer: &Arc<str>, reason: impl ToString) -> Error {
    Error::Protocol { broker: peer.clone(), reason: reason.to_string().into(), foreign: false }
}

/// The error for a stream that is not Kafka's.
pub(crate) fn frame_error(peer: &Arc<str>, error: FrameError) -> Error {
    let foreign = matches!(error, FrameError::NotKafka { .. });
    Error::Protocol {
        broker: peer.clone(),
        reason: Report::new(&error).to_string().into(),
        foreign,
    }
}

/// Connects to a broker, through `curtail.socks5.proxy` if it is set. Returns the broker's address, which only the proxy
/// knows otherwise.
async fn dial_broker(
    env: &Env,
    common: &CommonConfig,
    at: (&str, u16),
    options: SocketOptions,
    peer: &Arc<str>,
) -> Result<(Box<dyn Socket>, Option<SocketAddr>)> {
    let limit = common.connection_setup_timeout;
    let Some(proxy) = socks5::Proxy::of(common) else {
        let dialled = dial(env, at.0, at.1, options, limit).await;
        let (socket, address) = dialled.map_err(|failed| failed.error(peer))?;
        return Ok((socket, Some(address)));
    };
    match proxy.connect(env, at, options, limit).await {
        Ok(socket) => Ok((socket, None)),
        Err(socks5::Trouble::Failed(failed)) => Err(failed.error(peer)),
        Err(socks5::Trouble::Login(reason)) => Err(authentication_error(peer, reason)),
    }
}

/// Why a host cannot be dialled.
pub(crate) struct DialError {
    problem: ConnectionProblem,
    reason: String,
    source: Option<io::Error>,
}

impl DialError {
    /// Names the host.
    fn of(self, host: &str) -> Self {
        Self { reason: format!("{host}: {}", self.reason), ..self }
    }

    fn error(self, peer: &Arc<str>) -> Error {
        Error::Connection {
            broker: peer.clone(),
            reason: self.reason.into(),
            problem: self.problem,
            source: self.source.map(Arc::new),
        }
    }

    /// All of it in one text.
    #[cfg(feature = "oidc")]
    pub(crate) fn text(&self) -> String {
        happened(&self.reason, self.source.as_ref())
    }
}

/// Connects to the first address of a host that accepts.
pub(crate) async fn dial(
    env: &Env,
    host: &str,
    port: u16,
    options: SocketOptions,
    limit: Duration,
) -> Result<(Box<dyn Socket>, SocketAddr), DialError> {
    let resolved = env.net.resolve(host, port).await;
    let addresses = resolved.map_err(|error| resolve_error(host, &error))?;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    // An unresponsive address must leave time for the following ones.
    let share = limit / u32::try_from(addresses.len()).unwrap_or(1).max(1);
    for address in addresses {
        let dialled = timeout(share, env.net.connect(address, options)).await;
        match dialled.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(socket) => return Ok((socket, address)),
            Err(error) => last = error,
        }
    }
    Err(dial_error(last))
}

fn resolve_error(host: &str, error: &io::Error) -> DialError {
    let reason = error.to_string();
    // The standard library's name for the system call says nothing to a user.
    let reason = reason.strip_prefix("failed to lookup address information: ").unwrap_or(&reason);
    let reason = format!(
        "cannot resolve '{host}' ({reason}); check the name, the DNS of this machine, and \
         advertised.listeners if a broker gave the name"
    );
    DialError { problem: ConnectionProblem::UnknownHost, reason, source: None }
}

fn dial_error(error: io::Error) -> DialError {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => DialError {
            problem: ConnectionProblem::Refused,
            reason: "connection refused; is anything listening there?".into(),
            source: None,
        },
        _ => DialError {
            problem: ConnectionProblem::Other,
            reason: "cannot connect".into(),
            source: Some(error),
        },
    }
}

/// Splits `host:port`, with IPv6 addresses in brackets.
pub(crate) fn parse_address(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let port = port.parse().ok().filter(|&port| port != 0)?;
    let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    (!host.is_empty()).then_some((host, port))
}
