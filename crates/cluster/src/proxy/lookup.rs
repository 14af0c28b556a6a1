//! The first look at the cluster: whether it speaks Kafka's protocol, and its brokers.

use std::{sync::Arc, time::Duration};

use curtail_net::Socket;
use curtail_wire::{
    ApiKey, Writer,
    frame::{FrameError, FrameSplitter},
    header::{RequestHeader, correlation_id},
    metadata::MetadataRequest,
};
use tokio::time::timeout;

use super::{Door, ProxyError, Shared, addresses, addresses::length};
use crate::broker::{fill, write_all};

/// A version of Metadata that every broker since Kafka 0.10 serves.
const VERSION: i16 = 1;
/// Time for the response.
const LIMIT: Duration = Duration::from_secs(5);
/// Largest response in bytes.
const MAX_FRAME: usize = 1024 * 1024;

impl Shared {
    /// Asks a bootstrap server for the brokers and opens a port for each. A server that closes the connection
    /// or stays silent may need a login first.
    pub(super) async fn look_up(self: &Arc<Self>) -> Result<(), ProxyError> {
        let to = || {
            let to: Vec<_> = self.to.iter().map(ToString::to_string).collect();
            to.join(", ")
        };
        let (socket, _) = self
            .dial(Door::Bootstrap)
            .await
            .map_err(|source| ProxyError::Unreachable { to: to(), source })?;
        let asked = self.ask(socket.as_ref());
        match timeout(LIMIT, asked).await {
            Ok(Err(source)) => Err(ProxyError::NotKafka { to: to(), source }),
            Ok(Ok(())) | Err(_) => Ok(()),
        }
    }

    async fn ask(self: &Arc<Self>, socket: &dyn Socket) -> Result<(), FrameError> {
        let mut w = Writer::with_capacity(64);
        let header = RequestHeader {
            api: ApiKey::METADATA,
            version: VERSION,
            correlation_id: 1,
            client_id: Some("curtail-proxy"),
        };
        header.encode(&mut w);
        // Of no topic.
        let request = MetadataRequest { topics: Some(Vec::new()), ..MetadataRequest::default() };
        request.encode(VERSION, &mut w);
        let mut out = vec![length(w.len()), w.into_bytes()];
        if write_all(socket, &mut out).await.is_err() {
            return Ok(());
        }
        let mut frames = FrameSplitter::new(MAX_FRAME);
        let frame = loop {
            match frames.next_frame()? {
                Some(frame) => break frame,
                None if matches!(fill(socket, &mut frames).await, Ok(1..)) => {}
                None => return Ok(()),
            }
        };
        if correlation_id(&frame) != Ok(1) {
            return Ok(());
        }
        let Ok(found) = addresses::find(ApiKey::METADATA, VERSION, &frame) else { return Ok(()) };
        for address in &found.found {
            if let Err(reason) = self.port_of(address).await {
                tracing::warn!(reason, "cannot open a port for a broker");
            }
        }
        Ok(())
    }
}
