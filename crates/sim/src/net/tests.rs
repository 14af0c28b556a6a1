use std::{net::SocketAddr, time::Duration};

use curtail_net::{Entropy, Net, SocketExt, SocketOptions, WallClock};
use tokio::{runtime::Builder, time::Instant};

use super::*;
use crate::trace::{Keep, Trace};

type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// Sends back every byte.
async fn echo(net: HostNet) -> Outcome {
    let listener = net.listen("0.0.0.0:7".parse()?).await?;
    loop {
        let (socket, _) = listener.accept().await?;
        tokio::spawn(async move {
            let mut buf = vec![0; 4096];
            while let Ok(read @ 1..) = socket.read(&mut buf).await {
                if socket.write_all(&buf[..read]).await.is_err() {
                    return;
                }
            }
        });
    }
}

/// Runs a client against a server that sends back every byte. Returns the trace's hash.
fn beside_echo<C>(seed: u64, client: impl FnOnce(Fabric, HostNet) -> C) -> u64
where
    C: Future<Output = Outcome>,
{
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let latency = (Duration::from_millis(5), Duration::from_millis(20));
    let fabric = Fabric::new(Trace::new(Keep::All), Entropy::from_seed(seed), 3, latency);
    runtime.block_on(async {
        let _running = crate::trace::begin();
        let (network, server) = (fabric.clone(), HostNet::new(&fabric, "server"));
        tokio::spawn(async move { network.run().await });
        server.ip();
        tokio::spawn(echo(server));
        client(fabric.clone(), HostNet::new(&fabric, "client")).await.unwrap();
    });
    fabric.end();
    fabric.trace().hash()
}

async fn dial(net: &HostNet) -> io::Result<Box<dyn Socket>> {
    let addrs: Vec<SocketAddr> = net.resolve("server", 7).await?;
    net.connect(addrs[0], SocketOptions::default()).await
}

fn run_echo(seed: u64) -> u64 {
    beside_echo(seed, |_, net| async move {
        let socket = dial(&net).await?;
        let sent: Vec<u8> = (0..300_000u32).map(|i| (i % 251) as u8).collect();
        let started = Instant::now();
        let mut received = Vec::new();
        let mut buf = vec![0; 8192];
        let write = socket.write_all(&sent);
        let read = async {
            while received.len() < sent.len() {
                let read = socket.read(&mut buf).await?;
                assert_ne!(read, 0, "closed early");
                received.extend_from_slice(&buf[..read]);
            }
            io::Result::Ok(())
        };
        tokio::try_join!(biased; write, read)?;
        assert_eq!(received, sent);
        assert!(started.elapsed() >= Duration::from_millis(10), "two ways of at least 5 ms");
        Ok(())
    })
}

#[test]
fn bytes_arrive_whole_and_in_order_in_virtual_time() {
    run_echo(1);
}

#[test]
fn a_seed_decides_everything_and_seeds_differ() {
    assert_eq!(run_echo(7), run_echo(7));
    assert_ne!(run_echo(7), run_echo(8));
}

#[test]
fn an_unknown_host_is_not_found_and_a_closed_port_refuses() {
    beside_echo(3, |_, net| async move {
        let unknown = net.resolve("nowhere", 7).await.unwrap_err();
        assert_eq!(unknown.kind(), io::ErrorKind::NotFound);
        let server = net.resolve("server", 8).await?[0];
        let refused = net.connect(server, SocketOptions::default()).await.err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        Ok(())
    });
}

#[test]
fn a_broken_link_fails_those_who_wait() {
    beside_echo(4, |fabric, net| async move {
        let (client, server) = (fabric.host("client"), fabric.host("server"));
        let socket = dial(&net).await?;
        fabric.hold(client, server);
        let mut buf = [0; 1];
        let waiting = socket.read(&mut buf);
        let cut = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            fabric.break_connections(server, client);
        };
        let (read, ()) = tokio::join!(biased; waiting, cut);
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let write = socket.write_all(b"x").await;
        assert_eq!(write.unwrap_err().kind(), io::ErrorKind::TimedOut);
        fabric.release(client, server);
        let again = dial(&net).await?;
        again.write_all(b"y").await?;
        assert_eq!(again.read(&mut buf).await?, 1);
        Ok(())
    });
}

#[test]
fn the_wall_clock_moves_with_virtual_time() {
    beside_echo(5, |_, _| async move {
        let before = SimClock::default().now_ms();
        assert_eq!(before / 1000, EPOCH.as_secs() as i64);
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(SimClock::default().now_ms() - before, 5000);
        Ok(())
    });
}

#[test]
fn a_connection_that_lost_a_message_delivers_nothing_and_the_next_one_works() {
    beside_echo(6, |fabric, net| async move {
        let (client, server) = (fabric.host("client"), fabric.host("server"));
        let socket = dial(&net).await?;
        fabric.lose(client, server);
        socket.write_all(b"lost").await?;
        let begin = Instant::now();
        let again = async {
            let socket = dial(&net).await?;
            socket.write_all(b"y").await?;
            socket.read(&mut [0; 1]).await
        };
        let repair = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            fabric.repair(client, server);
            socket.write_all(b"behind it").await
        };
        let (read, repaired) = tokio::join!(biased; again, repair);
        repaired?;
        assert_eq!(read?, 1);
        // The first message of the connection was sent again after a second.
        let took = begin.elapsed();
        assert!(took > Duration::from_secs(1) && took < Duration::from_millis(1200), "{took:?}");
        let mut buf = [0; 8];
        let waited = tokio::time::timeout(Duration::from_secs(9), socket.read(&mut buf)).await;
        assert!(waited.is_err(), "{waited:?}");
        Ok(())
    });
}

#[test]
fn a_peer_that_closes_ends_reads_and_refuses_writes() {
    beside_echo(7, |fabric, net| async move {
        let listener = HostNet::new(&fabric, "other").listen("0.0.0.0:9".parse()?).await?;
        let other = SocketAddr::new(fabric.host("other"), 9);
        let connect = net.connect(other, SocketOptions::default());
        let (socket, accepted) = tokio::join!(biased; connect, listener.accept());
        let (socket, (accepted, _)) = (socket?, accepted?);
        accepted.write_all(b"end").await?;
        drop(accepted);
        let mut received = Vec::new();
        let mut buf = [0; 8];
        while let read @ 1.. = socket.read(&mut buf).await? {
            received.extend_from_slice(&buf[..read]);
        }
        assert_eq!(received, b"end");
        let refused = socket.write_all(b"x").await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::BrokenPipe);
        Ok(())
    });
}

#[test]
fn a_reset_connection_ends_for_the_peer_after_the_bytes_sent_before() {
    beside_echo(8, |fabric, net| async move {
        let listener = HostNet::new(&fabric, "other").listen("0.0.0.0:9".parse()?).await?;
        let other = SocketAddr::new(fabric.host("other"), 9);
        let client = Client::new("client", Duration::from_secs(30));
        let net = HostNet { client: Some(client), ..net };
        fabric.set_fuse(1);
        let connect = net.connect(other, SocketOptions::default());
        let (socket, accepted) = tokio::join!(biased; connect, listener.accept());
        let (socket, (accepted, _)) = (socket?, accepted?);
        accepted.write_all(b"xy").await?;
        let mut buf = [0; 1];
        // The limit is on one of the two directions.
        let failed = loop {
            if let Err(failed) = socket.write_all(b"a").await {
                break failed;
            }
            if let Err(failed) = socket.read(&mut buf).await {
                break failed;
            }
        };
        assert_eq!(failed.kind(), io::ErrorKind::ConnectionReset);
        assert_eq!(accepted.read(&mut buf).await?, 1, "the byte sent before");
        let mut rest = [0; 8];
        while accepted.read(&mut rest).await? > 0 {}
        Ok(())
    });
}
