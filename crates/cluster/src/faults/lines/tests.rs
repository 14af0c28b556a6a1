#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::Ipv4Addr;

use curtail_net::SocketExt as _;
use proptest::prelude::*;
use tokio::time::timeout;

use super::*;
use crate::faults::{CutClients, Direction, FETCHER_ID, Sender, Throttle};

/// A socket that takes every byte, and has as many to read as asked for.
#[derive(Clone, Default)]
struct Endless {
    written: Arc<AtomicU64>,
}

impl Socket for Endless {
    fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let bytes = bufs.iter().map(|part| part.len()).sum();
        self.written.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(bytes)
    }

    fn poll_write_ready(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_read(&self, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let room = buf.remaining();
        buf.put_slice(&vec![b'x'; room]);
        Poll::Ready(Ok(()))
    }

    fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok((Ipv4Addr::LOCALHOST, 1).into())
    }
}

fn throttle(bytes_per_second: u64) -> Fault {
    Fault::throttle(bytes_per_second)
}

fn in_direction(direction: Direction, bytes_per_second: u64) -> Fault {
    let (broker, client_id, from) = (None, None, Sender::Clients);
    Fault::Throttle(Throttle { broker, client_id, from, direction, bytes_per_second })
}

struct Setup {
    lines: Arc<Lines>,
    endless: Endless,
    socket: Arc<LineSocket>,
}

fn setup(client_id: &str) -> Setup {
    let (lines, endless) = (Arc::<Lines>::default(), Endless::default());
    let line = lines.line(1);
    line.identify(client_id);
    let socket = Arc::new(LineSocket { socket: Box::new(endless.clone()), line });
    Setup { lines, endless, socket }
}

async fn read_exactly(socket: &LineSocket, bytes: usize) {
    let mut buf = vec![0; bytes];
    let mut read = 0;
    while read < bytes {
        read += socket.read(&mut buf[read..]).await.unwrap();
    }
    assert!(buf.iter().all(|byte| *byte == b'x'));
}

#[test]
fn a_throttle_concerns_the_connections_and_directions_that_it_names() {
    let of = |broker, client_id: Option<&str>, from, direction| {
        let client_id = client_id.map(str::to_owned);
        Fault::Throttle(Throttle { broker, client_id, from, direction, bytes_per_second: 5 })
    };
    let clients = Sender::Clients;
    for (fault, client_id, flows) in [
        (throttle(5), "app", [true, true]),
        (throttle(5), FETCHER_ID, [false, false]),
        (of(None, None, Sender::Brokers, Direction::Out), FETCHER_ID, [false, true]),
        (of(Some(1), None, clients, Direction::In), "app", [true, false]),
        (of(Some(2), None, clients, Direction::In), "app", [false, false]),
        (of(None, Some("a*"), clients, Direction::Both), "app", [true, true]),
        (of(None, Some("b*"), clients, Direction::Both), "app", [false, false]),
    ] {
        let peer = Peer { broker: 1, client_id };
        let faults = [fault];
        let found = [Way::In, Way::Out].map(|way| flow(&faults, &peer, way) == Flow::Limited(5));
        assert_eq!(found, flows, "{faults:?} {client_id}");
    }
    let peer = Peer { broker: 1, client_id: "app" };
    let both = [throttle(1), in_direction(Direction::Out, 2)];
    let found = [Way::In, Way::Out].map(|way| flow(&both, &peer, way));
    assert_eq!(found, [Flow::Limited(1), Flow::Limited(2)], "the newest applies");
}

proptest! {
    /// The last byte arrives when all have passed, in either direction.
    #[test]
    fn bytes_take_the_time_of_the_rate(rate in 1_u64..100_000_000, millis in 1_u64..20_000) {
        let bytes = (rate * millis / 1000).clamp(1, 1_000_000);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let Setup { lines, endless, socket } = setup("app");
            lines.set(vec![throttle(rate)]);
            let exact = Duration::from_secs_f64(bytes as f64 / rate as f64);
            // Tokio's timers have milliseconds.
            let slack = Duration::from_millis(2);
            let begun = Instant::now();
            socket.write_all(&vec![0; bytes as usize]).await.unwrap();
            let written = begun.elapsed();
            assert!(written + slack >= exact && written <= exact + slack, "{written:?} {exact:?}");
            assert_eq!(endless.written.load(Ordering::Relaxed), bytes);
            let begun = Instant::now();
            read_exactly(&socket, bytes as usize).await;
            let read = begun.elapsed();
            assert!(read + slack >= exact && read <= exact + slack, "{read:?} {exact:?}");
        });
    }
}

#[tokio::test(start_paused = true)]
async fn a_lifted_throttle_releases_its_waiting_bytes_at_once() {
    let Setup { lines, endless, socket } = setup("app");
    lines.set(vec![throttle(1)]);
    let writing = tokio::spawn({
        let socket = Arc::clone(&socket);
        async move { socket.write_all(&[0; 1000]).await }
    });
    let reading = tokio::spawn(async move {
        read_exactly(&socket, 1000).await;
    });
    let begun = Instant::now();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(endless.written.load(Ordering::Relaxed), 1);
    lines.set(Vec::new());
    let ended = timeout(Duration::from_secs(1), async { (writing.await, reading.await) }).await;
    let (written, read) = ended.unwrap();
    written.unwrap().unwrap();
    read.unwrap();
    assert_eq!(begun.elapsed(), Duration::from_millis(1500));
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_request_is_open() {
    let lines = Arc::<Lines>::default();
    lines.set(vec![throttle(1)]);
    let line = lines.line(1);
    let socket = LineSocket { socket: Box::new(Endless::default()), line };
    let begun = Instant::now();
    socket.write_all(&[0; 1000]).await.unwrap();
    assert_eq!(begun.elapsed(), Duration::ZERO);
    socket.line.identify("app");
    socket.write_all(&[0; 2]).await.unwrap();
    assert_eq!(begun.elapsed().as_secs(), 2);
}

fn cut(direction: Direction) -> Fault {
    Fault::CutClients(CutClients { direction, ..CutClients::default() })
}

#[test]
fn a_cut_precedes_every_throttle_and_spares_brokers() {
    let faults = [cut(Direction::In), throttle(5)];
    let flows = |client_id| {
        let peer = Peer { broker: 1, client_id };
        [Way::In, Way::Out].map(|way| flow(&faults, &peer, way))
    };
    assert_eq!(flows("app"), [Flow::Cut, Flow::Limited(5)]);
    assert_eq!(flows(FETCHER_ID), [Flow::Open, Flow::Open]);
}

/// The bytes of a cut are written in their order, while the broker waits for the next request.
#[tokio::test(start_paused = true)]
async fn a_cut_holds_bytes_up_to_the_send_buffer() {
    let Setup { lines, endless, socket } = setup("app");
    lines.set(vec![cut(Direction::Out)]);
    let writing = tokio::spawn({
        let socket = Arc::clone(&socket);
        async move { socket.write_all(&vec![0; SEND_BUFFER + 1]).await }
    });
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(!writing.is_finished() && endless.written.load(Ordering::Relaxed) == 0);
    lines.set(vec![cut(Direction::In)]);
    writing.await.unwrap().unwrap();
    assert_eq!(endless.written.load(Ordering::Relaxed), SEND_BUFFER as u64 + 1);
    lines.set(vec![cut(Direction::Both)]);
    socket.write_all(&[0; 10]).await.unwrap();
    let reading = tokio::spawn({
        let socket = Arc::clone(&socket);
        async move { read_exactly(&socket, 1).await }
    });
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(!reading.is_finished());
    lines.set(vec![cut(Direction::In)]);
    tokio::task::yield_now().await;
    tokio::task::yield_now().await;
    assert_eq!(endless.written.load(Ordering::Relaxed), SEND_BUFFER as u64 + 11);
    assert!(!reading.is_finished());
    lines.set(Vec::new());
    reading.await.unwrap();
    socket.line.arrived().await;
}
