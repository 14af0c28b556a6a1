//! Requests to a control endpoint.

use std::{net::SocketAddr, time::Duration};

use hyper::{
    Method, Request, StatusCode,
    client::conn::http1,
    header::{CONTENT_TYPE, HOST},
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{net::TcpStream, time::timeout};

use crate::{
    control::{
        http::{Stream, Unread, Whole, collect},
        routes::Refusal,
    },
    failure::Failure,
};

/// Time for one request. Stopping a broker may take a session timeout.
const LIMIT: Duration = Duration::from_secs(120);
/// Limit for a response's body, in bytes.
const MAX_BODY: usize = 16 * 1024 * 1024;

/// A control endpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct Control(pub(super) SocketAddr);

/// The endpoint refuses a request.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) status: StatusCode,
    reason: String,
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        Self::new(refused.reason)
    }
}

impl Control {
    /// Sends a request without a body.
    pub(super) async fn send<T: DeserializeOwned>(
        self,
        method: Method,
        path: &str,
    ) -> Result<T, Failure> {
        Ok(self.exchange(method, path, None).await??)
    }

    /// Sends a request with a body.
    pub(super) async fn send_with<T: DeserializeOwned>(
        self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Failure> {
        let body = serde_json::to_string(body).map_err(Failure::new)?;
        Ok(self.exchange(method, path, Some(body)).await??)
    }

    /// Sends a request and returns the response, or why the endpoint refuses the request.
    pub(super) async fn exchange<T: DeserializeOwned>(
        self,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> Result<Result<T, Refused>, Failure> {
        let Self(addr) = self;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, addr.to_string())
            .header(CONTENT_TYPE, "application/json")
            .body(Whole::from(body.unwrap_or_default()));
        let request = request.map_err(Failure::new)?;
        let answered = timeout(LIMIT, self.post(request)).await;
        let late = || Failure::new(format!("{addr}: no response within {} s", LIMIT.as_secs()));
        let (status, body) = answered.map_err(|_| late())??;
        let alien = |error| Failure::new(format!("{addr} is no control endpoint: {error}"));
        if status.is_success() {
            return serde_json::from_slice(&body).map(Ok).map_err(alien);
        }
        let refusal: Refusal = serde_json::from_slice(&body).map_err(alien)?;
        Ok(Err(Refused { status, reason: refusal.error }))
    }

    async fn post(self, request: Request<Whole>) -> Result<(StatusCode, Vec<u8>), Failure> {
        let Self(addr) = self;
        let unreachable = |error: &dyn std::fmt::Display| {
            Failure::new(format!(
                "cannot reach {addr}: {error}; `curtail cluster --control PORT` or `curtail proxy --control PORT` serves a control endpoint"
            ))
        };
        let socket = TcpStream::connect(addr).await.map_err(|error| unreachable(&error))?;
        let (mut sender, connection) =
            http1::handshake(Stream(socket)).await.map_err(|error| unreachable(&error))?;
        let connection = tokio::spawn(connection);
        let response = sender.send_request(request).await.map_err(|error| unreachable(&error))?;
        let status = response.status();
        let body = collect(response.into_body(), MAX_BODY).await.map_err(|error| match error {
            Unread::TooLarge => unreachable(&"its response is too large"),
            Unread::Broken(error) => unreachable(&error),
        })?;
        connection.abort();
        Ok((status, body))
    }
}
