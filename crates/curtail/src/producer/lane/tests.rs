use std::{
    future::Future as _,
    io::IoSlice,
    net::SocketAddr,
    pin::pin,
    task::{Context, Poll, Wake},
};

use curtail_net::{BoxFuture, Env, Listener, Net, SocketOptions};
use curtail_proto::metadata::Snapshot;
use curtail_wire::{
    ErrorCode,
    metadata::{MetadataBroker, MetadataPartition, MetadataResponse, MetadataTopic},
    produce::{ProducePartitionResponse, ProduceRequest, ProduceResponse, ProduceTopicResponse},
    records::RecordData,
};
use parking_lot::Mutex;

use super::*;
use crate::producer::{delivery::Delivery, settle, shared::resubmit};

mod branches;

/// A network where no connection is ever made.
struct Nowhere;

impl Net for Nowhere {
    fn connect(
        &self,
        _addr: SocketAddr,
        _options: SocketOptions,
    ) -> BoxFuture<'_, io::Result<Box<dyn Socket>>> {
        Box::pin(std::future::pending())
    }

    fn listen(&self, _addr: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
        Box::pin(std::future::pending())
    }

    fn resolve<'a>(
        &'a self,
        _host: &'a str,
        _port: u16,
    ) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(std::future::pending())
    }
}

/// A socket that accepts as many bytes as configured.
#[derive(Default)]
pub(in crate::producer) struct Slow {
    room: Mutex<usize>,
    taken: Mutex<Vec<u8>>,
}

impl Socket for Slow {
    fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut room = self.room.lock();
        if *room == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut taken = self.taken.lock();
        let before = taken.len();
        taken.extend(bufs.iter().flat_map(|buf| buf.iter().copied()).take(*room));
        *room -= taken.len() - before;
        Ok(taken.len() - before)
    }

    fn poll_write_ready(&self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }

    fn poll_read(
        &self,
        _cx: &mut Context<'_>,
        _buf: &mut tokio::io::ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Poll::Pending
    }

    fn peer_addr(&self) -> io::Result<SocketAddr> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// A topic `t` of two partitions, and their leader.
fn snapshot(leader_id: i32, leader_epoch: i32) -> Snapshot {
    Snapshot::default().apply(&response(2, leader_id, leader_epoch), None).0
}

/// The metadata of a topic `t` whose partitions have one leader.
pub(in crate::producer) fn response(
    partitions: i32,
    leader_id: i32,
    leader_epoch: i32,
) -> MetadataResponse {
    let broker = |node_id| MetadataBroker { node_id, host: "h".into(), port: 1, rack: None };
    MetadataResponse {
        brokers: vec![broker(1), broker(2)],
        topics: vec![MetadataTopic {
            name: Some("t".into()),
            topic_id: Uuid([7; 16]),
            partitions: (0..partitions)
                .map(|index| MetadataPartition {
                    index,
                    leader_id,
                    leader_epoch,
                    ..MetadataPartition::default()
                })
                .collect(),
            ..MetadataTopic::default()
        }],
        ..MetadataResponse::default()
    }
}

fn adopt(shared: &Shared, leader: i32, epoch: i32) -> [Arc<Partition>; 2] {
    let snapshot = snapshot(leader, epoch);
    let topic = snapshot.topic("t").expect("it is known");
    let topic = shared.adopt_snapshot(&snapshot, topic).expect("open");
    [topic.partitions[0].clone(), topic.partitions[1].clone()]
}

fn start(linger: Duration, acks: Acks) -> Arc<Shared> {
    // Records stay where they are.
    start_with(|config| {
        config.prefer_proven_partitions = false;
        config.acks = acks;
        config.linger = linger;
    })
}

pub(in crate::producer) fn start_with(change: impl FnOnce(&mut ProducerConfig)) -> Arc<Shared> {
    let mut config = ProducerConfig::new("h:1");
    config.idempotence = false;
    config.delivery_timeout = Duration::from_secs(20);
    change(&mut config);
    Shared::start(config, &Env { net: Arc::new(Nowhere), ..Env::real() }).expect("started")
}

/// Moves the leadership to another broker when woken, as another thread may do at that moment.
struct MoveLeader(Arc<Shared>);

impl Wake for MoveLeader {
    fn wake(self: Arc<Self>) {
        adopt(&self.0, 2, 6);
    }
}

pub(in crate::producer) fn open_batch(
    shared: &Shared,
    partition: &Partition,
    created: StdInstant,
) -> Delivery {
    let data = RecordData { key: None, value: Some(b"v"), headers: &[], timestamp: 0 };
    let mut state = partition.state.lock();
    let memory = shared.memory.try_reserve(1, 100).expect("there is memory");
    let result = state.new_result(partition, &shared.awake);
    let completion = Completion::new(result.clone(), memory, None);
    state.queue.open(&shared.policy, &data, shared.memory.buffer(), completion, None, created);
    Delivery::new(result, 0, 0)
}

/// A socket that accepts everything, in use by the lane.
pub(in crate::producer) fn open(lane: &Lane, version: i16) -> Arc<Slow> {
    let socket = Arc::new(Slow::default());
    *socket.room.lock() = usize::MAX;
    lane.open(socket.clone(), version);
    socket
}

/// Queues a partition with a batch, as a sender does.
pub(in crate::producer) fn queue(partition: &Arc<Partition>) {
    resubmit(partition.state.lock(), partition);
}

/// Acknowledges a request with one batch. Returns its partition.
pub(in crate::producer) fn acknowledge(shared: &Shared, lane: &Lane, request: Request) -> i32 {
    let index = request.batches[0].partition.index;
    let result = ProducePartitionResponse {
        index,
        error: ErrorCode::NONE,
        base_offset: 0,
        log_append_time_ms: -1,
        log_start_offset: 0,
        record_errors: Vec::new(),
        error_message: None,
        current_leader: None,
    };
    let topic =
        ProduceTopicResponse { name: "t".into(), partitions: vec![result], ..Default::default() };
    let answer = ProduceResponse { topics: vec![topic], ..Default::default() };
    settle::answered(shared, lane.broker, request, &answer, Instant::now());
    index
}

pub(in crate::producer) fn lane_of(partition: &Partition) -> Arc<Lane> {
    partition.state.lock().lane.clone().expect("a leader")
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_moves_while_a_batch_of_it_expires_stays_in_its_new_lane() {
    let shared = start(Duration::from_secs(5), Acks::Leader);
    let [partition, _] = adopt(&shared, 1, 5);
    let first = lane_of(&partition);

    let now = Instant::now().into_std();
    let mut overdue = open_batch(&shared, &partition, now - shared.config.delivery_timeout);
    let waker = Waker::from(Arc::new(MoveLeader(shared.clone())));
    assert!(pin!(&mut overdue).poll(&mut Context::from_waker(&waker)).is_pending());
    let _young = open_batch(&shared, &partition, now);
    open(&first, 9);
    queue(&partition);
    assert!(overdue.outcome().is_some_and(|outcome| outcome.is_err()));
    assert_eq!(first.requests_in_flight(), 0, "the partition has moved");

    let second = lane_of(&partition);
    assert_eq!(second.broker, 2);
    let socket = open(&second, 9);
    tokio::time::advance(shared.config.linger).await;
    let sent = written(&second, &shared, &socket);
    assert_eq!(sent.len(), 1, "the new lane knows that it has a batch to send");
    shared.stop();
}

/// A lane whose socket accepts `room` bytes of a request with an older batch of partition 0 and a younger one of
/// partition 1. Returns the older batch's expiry.
fn stalled(shared: &Arc<Shared>, room: usize) -> (Arc<Lane>, Arc<Slow>, [Delivery; 2], StdInstant) {
    let partitions = adopt(shared, 1, 5);
    let lane = lane_of(&partitions[0]);
    let now = Instant::now().into_std();
    let ages = [Duration::from_secs(10), Duration::ZERO];
    let deliveries = [0, 1].map(|n| {
        let delivery = open_batch(shared, &partitions[n], now - ages[n]);
        queue(&partitions[n]);
        delivery
    });
    let socket = Arc::new(Slow::default());
    *socket.room.lock() = room;
    lane.open(socket.clone(), 9);
    assert_eq!(lane.transmit(shared).expect("it only blocks"), Pumped::Blocked);
    (lane, socket, deliveries, now - ages[0] + shared.config.delivery_timeout)
}

/// Makes the socket accept everything. Returns the correlation ids of the requests, with their partitions.
fn written(lane: &Arc<Lane>, shared: &Shared, socket: &Slow) -> Vec<(i32, Vec<i32>)> {
    *socket.room.lock() = usize::MAX;
    assert_eq!(lane.transmit(shared).expect("it takes everything"), Pumped::Done);
    let mut splitter = curtail_wire::frame::FrameSplitter::default();
    splitter.spare(0).extend_from_slice(&socket.taken.lock());
    let mut requests = Vec::new();
    while let Some(frame) = splitter.next_frame().expect("whole frames") {
        let (header, body) = curtail_wire::header::split_request(&frame).expect("a header");
        let request = ProduceRequest::decode(header.version, &body).expect("a request");
        let partitions = request.topics.iter().flat_map(|topic| &topic.partitions);
        requests.push((header.correlation_id, partitions.map(|p| p.index).collect()));
    }
    requests
}

/// A caller loads the metadata and is preempted while the metadata task applies an election.
#[tokio::test]
async fn caller_with_older_metadata_does_not_restore_the_previous_leader() {
    let shared = start(Duration::ZERO, Acks::Leader);
    shared.metadata.learn(&response(2, 1, 5));
    let loaded = shared.metadata.snapshot();
    let known = loaded.topic("t").expect("it is known");
    let topic = shared.adopt(known).expect("open");
    shared.metadata.learn(&response(2, 2, 6));
    shared.adopt(known).expect("open");
    let leader = topic.partitions[0].state.lock().leader;
    assert_eq!(leader, Leader { id: 2, epoch: 6 });
    shared.stop();
}

/// An idle lane sends while its partitions are being assigned. Otherwise the batch would be refused with
/// UNKNOWN_TOPIC_ID and back off.
#[tokio::test]
async fn batch_that_waits_while_its_topic_is_created_again_goes_out_with_the_new_topic_id() {
    let shared = start(Duration::ZERO, Acks::Leader);
    let [partition, _] = adopt(&shared, 2, 4);
    let socket = open(&lane_of(&partition), 13);
    adopt(&shared, 1, 5);
    let _delivery = open_batch(&shared, &partition, Instant::now().into_std());
    let mut successor = response(2, 2, 0);
    successor.topics[0].topic_id = Uuid([8; 16]);
    let snapshot = Snapshot::default().apply(&successor, None).0;
    shared.adopt_snapshot(&snapshot, snapshot.topic("t").expect("it is known")).expect("open");
    let mut splitter = curtail_wire::frame::FrameSplitter::default();
    splitter.spare(0).extend_from_slice(&socket.taken.lock());
    let frame = splitter.next_frame().expect("whole frames").expect("a request");
    let (header, body) = curtail_wire::header::split_request(&frame).expect("a header");
    let request = ProduceRequest::decode(header.version, &body).expect("a request");
    assert_eq!(request.topics[0].topic_id, Uuid([8; 16]));
    shared.stop();
}

/// A send finds its partition before the close and appends after it. Other clones of the producer remain.
#[tokio::test]
async fn batch_appended_during_the_close_fails_although_its_topic_table_was_replaced() {
    let shared = start(Duration::ZERO, Acks::Leader);
    let [partition, _] = adopt(&shared, 1, 5);
    let larger = Snapshot::default().apply(&response(3, 1, 5), None).0;
    shared.adopt_snapshot(&larger, larger.topic("t").expect("it is known")).expect("open");
    shared.stop();
    let delivery = open_batch(&shared, &partition, Instant::now().into_std());
    drop(partition);
    assert!(delivery.outcome().is_some_and(|outcome| outcome.is_err()));
}

/// A look at hundreds of thousands of partitions takes tens of milliseconds.
#[tokio::test]
async fn look_for_overdue_batches_yields_to_other_tasks() {
    let shared = start(Duration::ZERO, Acks::Leader);
    let many = Snapshot::default().apply(&response(8 * 1024, 1, 5), None).0;
    let topic = many.topic("t").expect("it is known");
    let topic = shared.adopt_snapshot(&many, topic).expect("open");
    let last = topic.partitions.last().expect("8192 partitions");
    let overdue = Instant::now().into_std() - shared.config.delivery_timeout;
    let delivery = open_batch(&shared, last, overdue);
    let mut turns = 0;
    while delivery.outcome().is_none() {
        turns += 1;
        tokio::task::yield_now().await;
    }
    assert!(turns >= 8, "{turns} turns");
    shared.stop();
}

/// Whether bytes of the overdue batches were written.
fn begun(overdue: &Overdue) -> Vec<bool> {
    overdue.batches.iter().map(|(_, is_begun)| *is_begun).collect()
}

#[tokio::test(start_paused = true)]
async fn rebuilt_request_has_the_whole_request_timeout_after_its_write() {
    for acks in [Acks::None, Acks::Leader] {
        let shared = start(Duration::ZERO, acks);
        let (lane, socket, _deliveries, expiry) = stalled(&shared, 0);
        tokio::time::sleep_until(Instant::from_std(expiry)).await;
        let overdue = lane.take_overdue(&shared, expiry);
        settle::overdue(&shared, overdue);
        assert_eq!(written(&lane, &shared, &socket).len(), 1);
        let timeout = shared.config.common.request_timeout;
        let expected = (acks == Acks::Leader).then(|| expiry + timeout);
        assert_eq!(lane.line().link.next_deadline(), expected);
    }
}

#[tokio::test]
async fn an_unbegun_request_is_rebuilt_without_its_overdue_batch() {
    for acks in [Acks::None, Acks::Leader] {
        let shared = start(Duration::ZERO, acks);
        let (lane, socket, [old, young], expiry) = stalled(&shared, 0);
        let early = lane.take_overdue(&shared, expiry - Duration::from_millis(1));
        assert!(early.batches.is_empty());
        assert_eq!(early.next, Some(expiry));
        let overdue = lane.take_overdue(&shared, expiry);
        assert_eq!(begun(&overdue), [false]);
        assert_eq!(overdue.next, Some(expiry + Duration::from_secs(10)));
        settle::overdue(&shared, overdue);
        let error = old.outcome().expect("it failed").expect_err("it failed");
        assert!(
            matches!(error, crate::Error::NotAcknowledged { may_have_been_written: false, .. }),
            "{error}"
        );
        let requests = written(&lane, &shared, &socket);
        assert_eq!(requests.iter().map(|(_, p)| &p[..]).collect::<Vec<_>>(), [[1]]);
        assert_eq!(young.outcome().is_some(), acks == Acks::None);
        assert_eq!(lane.requests_in_flight(), usize::from(acks == Acks::Leader));
        shared.stop();
    }
}

#[tokio::test]
async fn a_begun_request_is_written_as_it_was_and_its_overdue_batch_fails_as_perhaps_written() {
    for acks in [Acks::None, Acks::Leader] {
        let shared = start(Duration::ZERO, acks);
        let (lane, socket, [old, young], expiry) = stalled(&shared, 1);
        let overdue = lane.take_overdue(&shared, expiry);
        assert_eq!(begun(&overdue), [true]);
        settle::overdue(&shared, overdue);
        let error = old.outcome().expect("it failed").expect_err("it failed");
        assert!(
            matches!(error, crate::Error::NotAcknowledged { may_have_been_written: true, .. }),
            "{error}"
        );
        assert_eq!(written(&lane, &shared, &socket), [(0, vec![0, 1])]);
        assert_eq!(young.outcome().is_some(), acks == Acks::None);
        shared.stop();
    }
}

#[tokio::test]
async fn a_request_of_overdue_batches_alone_is_never_written() {
    for acks in [Acks::None, Acks::Leader] {
        let shared = start(Duration::ZERO, acks);
        let (lane, socket, deliveries, expiry) = stalled(&shared, 0);
        let overdue = lane.take_overdue(&shared, expiry + Duration::from_secs(10));
        assert_eq!((begun(&overdue), overdue.next), (vec![false, false], None));
        settle::overdue(&shared, overdue);
        assert!(deliveries.iter().all(|delivery| delivery.outcome().is_some()));
        assert_eq!(written(&lane, &shared, &socket), []);
        assert_eq!(lane.requests_in_flight(), 0);
        assert_eq!(shared.memory.available(), shared.config.buffer_memory);
        shared.stop();
    }
}
