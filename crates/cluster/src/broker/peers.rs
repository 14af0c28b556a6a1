//! Requests to other brokers, over separate connections. A connection has one request at a time, so
//! that no request waits for another.

use std::{collections::BTreeMap, io, net::SocketAddr, time::Duration};

use curtail_net::{Socket, SocketOptions};
use curtail_wire::{
    ErrorCode,
    api::ApiKey,
    cold::{
        self, Decodable, Message, Request, StrBytes,
        messages::{SaslAuthenticateRequest, SaslHandshakeRequest},
    },
    frame::FrameSplitter,
    header::response_body,
};
use parking_lot::Mutex;
use tokio::time::timeout;

use super::{Broker, fill, write_all};
use crate::{
    config::Mechanism,
    faults::{BROKER_ID, cuttable},
};

/// Timeout for connecting and the response (`request.timeout.ms` between brokers).
const TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum idle connections per broker.
const IDLE: usize = 4;

struct Link {
    connection: Connection,
    /// Incarnation of the connected broker.
    incarnation: i64,
}

/// A connection to another broker.
pub(crate) struct Connection {
    pub(crate) socket: Box<dyn Socket>,
    pub(crate) frames: FrameSplitter,
    pub(crate) correlation_id: i32,
}

/// Connects to another broker, and authenticates if brokers must.
///
/// # Cancel safety
/// Cancel safe.
pub(crate) async fn connect(broker: &Broker, to: i32, addr: SocketAddr) -> io::Result<Connection> {
    let connecting = broker.env.net.connect(addr, SocketOptions::default());
    let socket = cuttable(broker.faults.links(), [broker.id, to], connecting).await?;
    let mut connection = Connection { socket, frames: FrameSplitter::default(), correlation_id: 0 };
    let Some(brokers) = broker.admissions.brokers.separate() else { return Ok(connection) };
    let refused = |code| io::Error::new(io::ErrorKind::PermissionDenied, ErrorCode(code).name());
    let mechanism = StrBytes::from_static_str(Mechanism::Plain.name());
    let handshake = SaslHandshakeRequest::default().with_mechanism(mechanism);
    let response = connection.call(1, &handshake).await?;
    if response.error_code != 0 {
        return Err(refused(response.error_code));
    }
    let credentials = brokers.credentials().into();
    let authenticate = SaslAuthenticateRequest::default().with_auth_bytes(credentials);
    let response = connection.call(2, &authenticate).await?;
    match response.error_code {
        0 => Ok(connection),
        code => Err(refused(code)),
    }
}

/// A broker's connections to the others, and to itself.
#[derive(Default)]
pub(crate) struct Peers(Mutex<BTreeMap<i32, Vec<Link>>>);

impl Peers {
    /// Sends a request to the broker `to` and waits for the response. A dead idle connection is
    /// replaced, so a request may arrive twice.
    ///
    /// # Cancel safety
    /// Cancel safe; the request may have arrived.
    pub(crate) async fn call<R>(
        &self,
        broker: &Broker,
        to: i32,
        version: i16,
        request: &R,
    ) -> io::Result<R::Response>
    where
        R: Request,
        R::Response: Decodable + Message,
    {
        let (addr, incarnation) = {
            let image = broker.image();
            let unknown = || io::Error::new(io::ErrorKind::NotFound, "no such broker");
            let peer = image.live_broker(to).ok_or_else(unknown)?;
            (peer.inner, peer.epoch)
        };
        let idle = self.take(to, incarnation);
        if let Some(mut link) = idle
            // An unresponsive broker would not respond on another connection either, so a timeout
            // is final.
            && let Ok(response) = timeout(TIMEOUT, link.connection.call(version, request)).await?
        {
            self.put(to, link);
            return Ok(response);
        }
        let fresh = async {
            let mut link = Link { connection: connect(broker, to, addr).await?, incarnation };
            let response = link.connection.call(version, request).await?;
            Ok::<_, io::Error>((link, response))
        };
        let (link, response) = timeout(TIMEOUT, fresh).await??;
        self.put(to, link);
        Ok(response)
    }

    fn take(&self, to: i32, incarnation: i64) -> Option<Link> {
        let mut idle = self.0.lock();
        let links = idle.get_mut(&to)?;
        links.retain(|link| link.incarnation == incarnation);
        links.pop()
    }

    fn put(&self, to: i32, link: Link) {
        let mut idle = self.0.lock();
        let links = idle.entry(to).or_default();
        if links.len() < IDLE {
            links.push(link);
        }
    }
}

impl Connection {
    async fn call<R>(&mut self, version: i16, request: &R) -> io::Result<R::Response>
    where
        R: Request,
        R::Response: Decodable + Message,
    {
        self.correlation_id = self.correlation_id.wrapping_add(1);
        let frame = cold::encode_request(version, self.correlation_id, Some(BROKER_ID), request)
            .map_err(io::Error::other)?;
        write_all(self.socket.as_ref(), &mut vec![frame.into()]).await?;
        let frame = loop {
            if let Some(frame) = self.frames.next_frame().map_err(io::Error::other)? {
                break frame;
            }
            if fill(self.socket.as_ref(), &mut self.frames).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        };
        let body = response_body(&frame, ApiKey(R::KEY), version).map_err(io::Error::other)?;
        let layout = cold::layout::<R::Response>(ApiKey(R::KEY), version);
        cold::decode_response(layout, body).map_err(io::Error::other)
    }
}
