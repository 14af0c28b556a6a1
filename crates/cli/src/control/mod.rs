//! The control endpoint of `curtail cluster` and `curtail proxy`: faults, brokers, health and metrics over HTTP.
//!
//! `docs/control-api.yaml` describes it.

mod guard;
pub(crate) mod http;
mod metrics;
pub(crate) mod routes;
mod target;
#[cfg(test)]
mod tests;

use std::{
    convert::Infallible,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use curtail_cluster::Observer;
use hyper::{
    Request, Response, StatusCode,
    body::Incoming,
    header::{ALLOW, CONTENT_TYPE, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::{JoinHandle, JoinSet},
    time::{sleep, timeout},
};

use self::{
    http::{Stream, Unread, Whole, collect},
    routes::Answer,
};
pub(crate) use self::{metrics::Requests, target::Target};
use crate::failure::Failure;

/// Limit for a request's body, in bytes.
const MAX_BODY: usize = 64 * 1024;
/// Time for one request and its response. Stopping a broker may take a session timeout.
const LIMIT: Duration = Duration::from_secs(120);
/// Requests at a time. Further connections wait to be accepted.
const MOST_CONNECTIONS: usize = 64;
/// Pause after accepting a connection failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Reads `PORT` or `ADDRESS:PORT`.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse() {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    let text = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
    if let Some(port) = text.strip_prefix("localhost:") {
        return address(port);
    }
    text.parse().map_err(|_| "expected PORT or ADDRESS:PORT, as in 127.0.0.1:8642".to_owned())
}

/// Refuses to open a control endpoint to a network without `--insecure`. `harm` is what a stranger could do.
pub(crate) fn check_reach(
    addr: Option<SocketAddr>,
    insecure: bool,
    harm: &str,
) -> Result<(), Failure> {
    match addr {
        Some(addr) if !addr.ip().is_loopback() && !insecure => Err(Failure::new(format!(
            "--control {addr}: anyone who reaches it can {harm}; use a loopback address, or add --insecure"
        ))),
        _ => Ok(()),
    }
}

/// The control endpoint of a command, if it has one, and the counts of requests.
pub(crate) struct Control {
    endpoint: Option<Endpoint>,
    requests: Arc<Requests>,
    is_traced: bool,
}

impl Control {
    /// Listens on an address, if there is one. With `trace` each request is printed.
    pub(crate) async fn open(addr: Option<SocketAddr>, trace: bool) -> Result<Self, Failure> {
        let endpoint = match addr {
            Some(addr) => Some(Endpoint::listen(addr).await?),
            None => None,
        };
        let requests = if trace { Requests::traced() } else { Requests::default() };
        Ok(Self { endpoint, requests: Arc::new(requests), is_traced: trace })
    }

    /// Returns the observer to install, if anything reads what it counts.
    pub(crate) fn observer(&self) -> Option<Arc<dyn Observer>> {
        let is_read = self.is_traced || self.endpoint.is_some();
        is_read.then(|| Arc::clone(&self.requests) as Arc<dyn Observer>)
    }

    /// Returns the address of the endpoint.
    pub(crate) fn url(&self) -> Option<String> {
        self.endpoint.as_ref().map(|endpoint| format!("http://{}", endpoint.addr))
    }

    /// Serves requests until the service is stopped.
    pub(crate) fn serve(self, target: Target) -> Service {
        let (stop, stopped) = oneshot::channel();
        let Self { endpoint, requests, .. } = self;
        let task = endpoint
            .map(|endpoint| tokio::spawn(endpoint.serve(target, Arc::clone(&requests), stopped)));
        Service { stop, task, requests }
    }
}

/// A control endpoint that serves requests, if there is one.
pub(crate) struct Service {
    stop: oneshot::Sender<Infallible>,
    task: Option<JoinHandle<()>>,
    requests: Arc<Requests>,
}

impl Service {
    /// Returns once no task uses the target. The last lines of the trace may not be written yet.
    pub(crate) async fn stop(self) -> Arc<Requests> {
        drop(self.stop);
        if let Some(task) = self.task {
            // A panic of the endpoint was printed; the command stops nevertheless.
            let _ = task.await;
        }
        self.requests
    }
}

/// A control endpoint that listens.
struct Endpoint {
    listener: TcpListener,
    addr: SocketAddr,
}

impl Endpoint {
    /// Listens on an address.
    async fn listen(addr: SocketAddr) -> Result<Self, Failure> {
        let failed = |error| Failure::new(format!("--control {addr}: cannot listen: {error}"));
        let listener = TcpListener::bind(addr).await.map_err(failed)?;
        let addr = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, addr })
    }

    /// Serves requests until the other end of `stop` is dropped. Then no task uses the target.
    async fn serve(
        self,
        target: Target,
        requests: Arc<Requests>,
        mut stop: oneshot::Receiver<Infallible>,
    ) {
        let mut connections = JoinSet::new();
        loop {
            let has_room = connections.len() < MOST_CONNECTIONS;
            tokio::select! {
                biased;
                _ = &mut stop => break,
                Some(_) = connections.join_next() => {}
                accepted = self.listener.accept(), if has_room => match accepted {
                    Ok((socket, _)) => {
                        let (target, requests) = (target.clone(), Arc::clone(&requests));
                        connections.spawn(converse(socket, self.addr, target, requests));
                    }
                    // Too many open files, or a client that has gone already.
                    Err(_) => sleep(ACCEPT_PAUSE).await,
                },
            }
        }
        connections.shutdown().await;
    }
}

/// Answers one request. A client that needs more connects again.
async fn converse(
    socket: TcpStream,
    listening: SocketAddr,
    target: Target,
    requests: Arc<Requests>,
) {
    let service = service_fn(move |request| {
        let (target, requests) = (target.clone(), Arc::clone(&requests));
        async move {
            let answer = respond(request, listening, &target, &requests).await;
            Ok::<_, Infallible>(encode(answer))
        }
    });
    let mut builder = http1::Builder::new();
    let connection = builder
        .keep_alive(false)
        // A request in progress, such as the stop of a broker, does not end with the client's interest in it.
        .half_close(true)
        .header_read_timeout(None)
        .serve_connection(Stream(socket), service);
    // An error means that the client has disconnected. A slow client is disconnected.
    let _ = timeout(LIMIT, connection).await;
}

async fn respond(
    request: Request<Incoming>,
    listening: SocketAddr,
    target: &Target,
    requests: &Requests,
) -> Answer {
    let (head, body) = request.into_parts();
    let reads = routes::is_reading(&head.method, head.uri.path());
    if let Some(reason) = guard::refusal(&head.headers, listening, reads) {
        return Answer::refuse(StatusCode::FORBIDDEN, reason);
    }
    let body = match collect(body, MAX_BODY).await {
        Ok(body) => body,
        Err(Unread::TooLarge) => {
            let reason = format!("the body is larger than {MAX_BODY} bytes");
            return Answer::refuse(StatusCode::PAYLOAD_TOO_LARGE, reason);
        }
        Err(Unread::Broken(error)) => return Answer::refuse(StatusCode::BAD_REQUEST, error),
    };
    let is_json = |value: &[u8]| value.starts_with(b"application/json");
    let kind = head.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    if !body.is_empty() && !kind.is_some_and(is_json) {
        let reason = "the Content-Type must be application/json";
        return Answer::refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, reason);
    }
    routes::answer(target, requests, &head.method, head.uri.path(), &body).await
}

fn encode(answer: Answer) -> Response<Whole> {
    let mut response =
        Response::builder().status(answer.status).header(CONTENT_TYPE, answer.content_type);
    if let Some(allow) = answer.allow {
        response = response.header(ALLOW, allow);
    }
    // The headers above are valid.
    response.body(answer.body.into()).unwrap_or_default()
}
