//! Workers of one partition, on a consumer without a cluster: the tests put records into its buffer.

use std::{future::poll_fn, task::Poll, time::Duration};

use curtail_proto::position::Spot;
use tokio::{sync::mpsc, task::yield_now, time::timeout};

use super::{
    super::{ConsumerHandle, PartitionQueues, credit::Lease, cursor::Cursor, tests::batch},
    *,
};
use crate::{ConsumerConfig, TopicPartition};
use curtail_wire::records::Codec;

const LIMIT: Duration = Duration::from_secs(20);

fn at() -> TopicPartition {
    TopicPartition::new("t", 0)
}

/// One partition, read by a worker.
struct Bench {
    queues: PartitionQueues,
    handle: ConsumerHandle,
    /// Offsets of handlers that have begun.
    begun: mpsc::UnboundedReceiver<i64>,
    begins: mpsc::UnboundedSender<i64>,
    /// A permit for each handler that may end, by offset.
    gates: Arc<Vec<Semaphore>>,
}

impl Bench {
    fn new() -> Self {
        let mut consumer = Consumer::new(ConsumerConfig::new("localhost:1")).unwrap();
        consumer.assign([at()]);
        consumer.seek(&at(), 0).unwrap();
        let (begins, begun) = mpsc::unbounded_channel();
        let gates = Arc::new((0..100).map(|_| Semaphore::new(0)).collect());
        let queues = consumer.into_queues();
        Self { handle: queues.handle(), queues, begun, begins, gates }
    }

    async fn worker<E: From<Error> + Send + 'static>(&mut self, concurrency: usize) -> Worker<E> {
        let queue = timeout(LIMIT, self.queues.next()).await.expect("a queue").unwrap();
        Worker::new(queue, 100, Arc::new(Semaphore::new(concurrency)))
    }

    /// Makes a handler that ends when it may.
    fn handler(&self) -> Arc<impl Fn(ConsumerRecord) -> BoxedHandler + use<>> {
        let (begins, gates) = (self.begins.clone(), self.gates.clone());
        Arc::new(move |record: ConsumerRecord| -> BoxedHandler {
            let (begins, gates) = (begins.clone(), gates.clone());
            Box::pin(async move {
                begins.send(record.offset()).unwrap();
                gates[record.offset() as usize].acquire().await.unwrap().forget();
                Ok(())
            })
        })
    }

    /// Lets one handler of each of these offsets end.
    fn let_end(&self, offsets: impl IntoIterator<Item = usize>) {
        offsets.into_iter().for_each(|offset| self.gates[offset].add_permits(1));
    }

    /// Fetches keyless records.
    fn arrive(&self, base: i64, count: i64) {
        let state = &mut *self.queues.consumer.shared.state.lock();
        let assigned = state.partitions.get_mut(&at()).unwrap();
        let asked = assigned.position.fetch_from().unwrap();
        assert_eq!(asked.offset, base);
        assert!(assigned.position.on_fetched(asked, Spot { offset: base + count, epoch: 0 }));
        let bytes = Bytes::from(batch(base, count, Codec::None));
        let lease = Lease::take(&Arc::default(), &Arc::default(), bytes.len());
        state.push(Cursor::new(at(), asked.version, base, bytes, None, lease), usize::MAX);
    }

    async fn begun(&mut self, count: usize) -> Vec<i64> {
        let mut begun = Vec::new();
        while begun.len() < count {
            let next = timeout(LIMIT, self.begun.recv()).await;
            begun.push(next.unwrap_or_else(|_| panic!("only {begun:?} began")).unwrap());
        }
        begun.sort_unstable();
        begun
    }

    fn to_commit(&self) -> Option<i64> {
        let state = self.queues.consumer.shared.state.lock();
        state.partitions[&at()].to_commit().map(|spot| spot.offset)
    }

    async fn commits(&self, offset: i64) {
        let reached = async {
            while self.to_commit() != Some(offset) {
                yield_now().await;
            }
        };
        let reached = timeout(LIMIT, reached).await;
        reached.unwrap_or_else(|_| panic!("{:?} instead of {offset}", self.to_commit()));
    }
}

type BoxedHandler = std::pin::Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// Lets all tasks that can run do so.
async fn idle() {
    for _ in 0..100 {
        yield_now().await;
    }
}

#[tokio::test]
async fn a_finish_from_before_a_seek_does_not_count() {
    let mut bench = Bench::new();
    let worker = bench.worker(10).await;
    bench.let_end([0, 1, 2, 4]);
    bench.arrive(0, 6);
    let running = tokio::spawn(worker.run(bench.handler()));
    assert_eq!(bench.begun(6).await, [0, 1, 2, 3, 4, 5]);
    bench.commits(3).await;
    bench.handle.seek(&at(), 0).unwrap();
    assert_eq!(bench.to_commit(), Some(0));
    bench.let_end([3]);
    idle().await;
    assert_eq!(bench.to_commit(), Some(0), "a record from before the seek counts");
    // The same records again. The first handler of offset 5 runs still, and ends before the second.
    bench.let_end([0, 1, 2, 4]);
    bench.arrive(0, 6);
    assert_eq!(bench.begun(6).await, [0, 1, 2, 3, 4, 5]);
    bench.commits(3).await;
    bench.let_end([5]);
    idle().await;
    assert_eq!(bench.to_commit(), Some(3));
    bench.let_end([3]);
    bench.commits(5).await;
    bench.let_end([5]);
    bench.commits(6).await;
    running.abort();
}

#[tokio::test]
async fn records_from_before_a_seek_delay_a_revocation_until_their_handlers_end() {
    let mut bench = Bench::new();
    let worker = bench.worker(10).await;
    bench.arrive(0, 1);
    let running = tokio::spawn(worker.run(bench.handler()));
    bench.begun(1).await;
    // Neither position is known before it is looked up.
    bench.handle.seek_to_end([&at()]).unwrap();
    assert_eq!(bench.to_commit(), None);
    let shared = bench.queues.consumer.shared.clone();
    assert!(!shared.state.lock().release([&at()]), "the handler runs still");
    bench.let_end([0]);
    drop(timeout(LIMIT, running).await.expect("the worker ends").unwrap());
    assert!(shared.state.lock().release([&at()]));
}

#[tokio::test]
async fn a_seek_drops_records_whose_handlers_have_not_begun() {
    let mut bench = Bench::new();
    let worker = bench.worker(1).await;
    bench.arrive(0, 4);
    let running = tokio::spawn(worker.run(bench.handler()));
    assert_eq!(bench.begun(1).await, [0]);
    bench.handle.seek(&at(), 10).unwrap();
    bench.arrive(10, 2);
    bench.let_end([0, 1, 2, 3, 10, 11]);
    assert_eq!(bench.begun(2).await, [10, 11]);
    bench.commits(12).await;
    running.abort();
}

#[tokio::test]
async fn a_revoked_partition_starts_no_further_handler() {
    let mut bench = Bench::new();
    let worker = bench.worker(1).await;
    bench.arrive(0, 4);
    let running = tokio::spawn(worker.run(bench.handler()));
    assert_eq!(bench.begun(1).await, [0]);
    // The handler ends before the worker learns of the revocation.
    bench.let_end(0..4);
    assert!(!bench.queues.consumer.shared.state.lock().release([&at()]));
    drop(timeout(LIMIT, running).await.expect("the worker ends").unwrap());
    assert!(bench.begun.try_recv().is_err(), "another handler began");
    assert_eq!(bench.to_commit(), Some(1));
}

#[tokio::test]
async fn the_partition_of_a_failed_handler_is_not_offered_again_before_the_failure_is_seen() {
    let mut bench = Bench::new();
    let worker = bench.worker(1).await;
    bench.arrive(0, 1);
    let fails = async |_: ConsumerRecord| Err::<(), _>(Error::IllegalState("the handler fails"));
    let ended = timeout(LIMIT, worker.run(Arc::new(fails))).await.expect("the worker ends");
    let mut next = pin!(bench.queues.next());
    let offered = poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx))).await;
    assert!(offered.is_pending(), "the partition is offered: {offered:?}");
    drop(ended);
}
