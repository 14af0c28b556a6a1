//! A network of scripted brokers in virtual time. They support ApiVersions and Metadata, and record every request
//! with its time and broker. With [`World::receiver`] they also receive metrics of clients (KIP-714).

mod receiver;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    future::Future as _,
    io::{self, IoSlice},
    net::{Ipv4Addr, SocketAddr},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use curtail_net::{BoxFuture, Entropy, Env, Listener, Net, Socket, SocketOptions, SystemClock};
use curtail_wire::{
    ApiKey, ErrorCode, Uuid, Writer,
    frame::FrameSplitter,
    header::{encode_response_header, split_request},
    metadata::{
        MetadataBroker, MetadataPartition, MetadataRequest, MetadataResponse, MetadataTopic,
    },
};
use parking_lot::Mutex;
use tokio::{
    io::ReadBuf,
    time::{Instant, Sleep, sleep_until},
};

pub(crate) use self::receiver::Receiver;

/// Behaviour of a broker, by its port; node ids are the ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behaviour {
    /// Responds after a millisecond.
    Answers,
    /// Accepts requests and never responds.
    Hangs,
    /// Refuses connections, and closes open ones at the next request.
    Dead,
    /// Responds to Metadata with this error.
    Fails(ErrorCode),
}

/// A received Metadata request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) at: Duration,
    pub(crate) broker: u16,
    pub(crate) topics: Vec<String>,
}

pub(crate) struct World {
    pub(crate) brokers: Mutex<BTreeMap<u16, Behaviour>>,
    /// The brokers that responses name.
    pub(crate) named: Mutex<Vec<u16>>,
    /// Topics that exist, with their leader epoch.
    pub(crate) topics: Mutex<BTreeMap<String, i32>>,
    /// Whether a request creates a missing topic.
    pub(crate) creates: Mutex<bool>,
    /// Topics without a leader.
    pub(crate) leaderless: Mutex<BTreeSet<String>>,
    pub(crate) asked: Mutex<Vec<Asked>>,
    pub(crate) receiver: Mutex<Option<Receiver>>,
    /// Connections opened.
    pub(crate) connections: AtomicUsize,
    pub(crate) partitions: usize,
    began: Instant,
}

impl World {
    pub(crate) fn new(ports: &[u16], topics: &[&str]) -> Arc<Self> {
        Arc::new(Self {
            brokers: Mutex::new(ports.iter().map(|&p| (p, Behaviour::Answers)).collect()),
            named: Mutex::new(ports.to_vec()),
            topics: Mutex::new(topics.iter().map(|t| ((*t).to_owned(), 0)).collect()),
            creates: Mutex::new(false),
            leaderless: Mutex::default(),
            asked: Mutex::default(),
            receiver: Mutex::default(),
            connections: AtomicUsize::new(0),
            partitions: 3,
            began: Instant::now(),
        })
    }

    pub(crate) fn env(self: &Arc<Self>) -> Env {
        Env {
            net: Arc::new(WorldNet(self.clone())),
            wall: Arc::new(SystemClock),
            entropy: Entropy::from_seed(7),
        }
    }

    pub(crate) fn set(&self, port: u16, behaviour: Behaviour) {
        self.brokers.lock().insert(port, behaviour);
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().clone()
    }

    pub(crate) fn brokers_asked(&self) -> Vec<u16> {
        self.asked.lock().iter().map(|asked| asked.broker).collect()
    }

    fn behaviour(&self, port: u16) -> Behaviour {
        self.brokers.lock().get(&port).copied().unwrap_or(Behaviour::Dead)
    }

    fn metadata(&self, request: &MetadataRequest, error: ErrorCode) -> MetadataResponse {
        let named = self.named.lock();
        let broker = |&port: &u16| MetadataBroker {
            node_id: i32::from(port),
            host: "127.0.0.1".into(),
            port: i32::from(port),
            rack: None,
        };
        let topics = request.topics.iter().flatten().filter_map(|topic| topic.name.as_deref());
        MetadataResponse {
            brokers: named.iter().map(broker).collect(),
            topics: topics.map(|name| self.topic(name, i32::from(named[0]))).collect(),
            error,
            ..MetadataResponse::default()
        }
    }

    fn topic(&self, name: &str, leader: i32) -> MetadataTopic {
        let mut topics = self.topics.lock();
        let epoch = topics.get(name).copied();
        if epoch.is_none() && *self.creates.lock() {
            topics.insert(name.to_owned(), 0);
        }
        let leaderless = self.leaderless.lock().contains(name);
        let partition = |index: usize| MetadataPartition {
            index: index as i32,
            leader_id: if leaderless { -1 } else { leader },
            leader_epoch: epoch.unwrap_or_default(),
            ..MetadataPartition::default()
        };
        let error = match epoch {
            Some(_) => ErrorCode::NONE,
            None => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        };
        MetadataTopic {
            error,
            name: Some(name.to_owned()),
            topic_id: Uuid([1; 16]),
            partitions: epoch
                .map(|_| (0..self.partitions).map(partition).collect())
                .unwrap_or_default(),
            ..MetadataTopic::default()
        }
    }

    /// The throttle time of the response to a request.
    fn throttle(&self, frame: &Bytes) -> Duration {
        let (header, _) = split_request(frame).unwrap();
        match (header.api, &*self.receiver.lock()) {
            (ApiKey::GET_TELEMETRY_SUBSCRIPTIONS | ApiKey::PUSH_TELEMETRY, Some(receiver)) => {
                receiver.throttle
            }
            _ => Duration::ZERO,
        }
    }

    /// The response to a request, if the broker responds.
    fn answer(&self, port: u16, frame: &Bytes) -> io::Result<Option<Vec<u8>>> {
        let (header, body) = split_request(frame).unwrap();
        let (api, version) = (header.api, header.version);
        if api == ApiKey::METADATA {
            let request = MetadataRequest::decode(version, &body).unwrap();
            let topics = request.topics.iter().flatten().filter_map(|topic| topic.name.clone());
            let asked = Asked { at: self.began.elapsed(), broker: port, topics: topics.collect() };
            self.asked.lock().push(asked);
        }
        let error = match self.behaviour(port) {
            Behaviour::Dead => return Err(io::ErrorKind::ConnectionReset.into()),
            Behaviour::Hangs => return Ok(None),
            Behaviour::Answers => ErrorCode::NONE,
            Behaviour::Fails(error) => error,
        };
        let mut w = Writer::with_capacity(64);
        w.i32(0);
        encode_response_header(api, version, header.correlation_id, &mut w);
        if api == ApiKey::METADATA {
            let request = MetadataRequest::decode(version, &body).unwrap();
            self.metadata(&request, error).encode(version, &mut w);
        } else if let Some(receiver) = &mut *self.receiver.lock()
            && let Some(answer) = receiver.answer(&header, body)
        {
            return Ok(Some(answer));
        } else {
            let mut apis = vec![(ApiKey::API_VERSIONS, 3), (ApiKey::METADATA, 13)];
            if self.receiver.lock().is_some() {
                apis.extend([
                    (ApiKey::GET_TELEMETRY_SUBSCRIPTIONS, 0),
                    (ApiKey::PUSH_TELEMETRY, 0),
                ]);
            }
            w.i16(0);
            w.array(apis.len());
            for (api, max) in apis {
                w.i16(api.0);
                w.i16(0);
                w.i16(max);
                w.no_tags();
            }
            w.i32(0);
            w.no_tags();
        }
        let length = w.len() - 4;
        w.patch_i32(0, length as i32);
        Ok(Some(w.into_vec()))
    }
}

struct WorldNet(Arc<World>);

impl Net for WorldNet {
    fn resolve<'a>(&'a self, _: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move { Ok(vec![SocketAddr::from((Ipv4Addr::LOCALHOST, port))]) })
    }

    fn connect(
        &self,
        addr: SocketAddr,
        _: SocketOptions,
    ) -> BoxFuture<'_, io::Result<Box<dyn Socket>>> {
        let world = self.0.clone();
        Box::pin(async move {
            if world.behaviour(addr.port()) == Behaviour::Dead {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            world.connections.fetch_add(1, Ordering::Relaxed);
            let pipe = Mutex::new(Pipe {
                requests: FrameSplitter::default(),
                answers: VecDeque::new(),
                muted_until: Instant::now(),
                timer: Box::pin(sleep_until(Instant::now())),
            });
            Ok(Box::new(WorldSocket { world, addr, pipe }) as Box<dyn Socket>)
        })
    }

    fn listen(&self, _: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }
}

/// A connection. A write is responded to at once; the response can be read a millisecond later.
struct WorldSocket {
    world: Arc<World>,
    addr: SocketAddr,
    pipe: Mutex<Pipe>,
}

struct Pipe {
    requests: FrameSplitter,
    answers: VecDeque<(Instant, Vec<u8>)>,
    /// Until then the broker reads no request, as it has throttled the last one (KIP-219).
    muted_until: Instant,
    timer: Pin<Box<Sleep>>,
}

impl Socket for WorldSocket {
    fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut pipe = self.pipe.lock();
        for buf in bufs {
            pipe.requests.spare(buf.len()).extend_from_slice(buf);
        }
        while let Some(frame) = pipe.requests.next_frame().unwrap() {
            if let Some(answer) = self.world.answer(self.addr.port(), &frame)? {
                let begins = Instant::now().max(pipe.muted_until);
                pipe.answers.push_back((begins + Duration::from_millis(1), answer));
                let throttle = self.world.throttle(&frame);
                if !throttle.is_zero() {
                    pipe.muted_until = begins + throttle;
                }
            }
        }
        Ok(bufs.iter().map(|buf| buf.len()).sum())
    }

    fn poll_write_ready(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut pipe = self.pipe.lock();
        let Some((ready, _)) = pipe.answers.front() else { return Poll::Pending };
        let ready = *ready;
        pipe.timer.as_mut().reset(ready);
        if pipe.timer.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        let Some((_, mut answer)) = pipe.answers.pop_front() else { return Poll::Pending };
        let taken = answer.len().min(buf.remaining());
        buf.put_slice(&answer[..taken]);
        answer.drain(..taken);
        if !answer.is_empty() {
            pipe.answers.push_front((ready, answer));
        }
        Poll::Ready(Ok(()))
    }

    fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.addr)
    }
}
