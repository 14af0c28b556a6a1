use std::{net::SocketAddr, time::Duration};

use curtail_net::{Entropy, Net, SocketExt, SocketOptions, WallClock};
use tokio::time::Instant;

use super::*;
use crate::trace::{Keep, Trace};

fn simulation(seed: u64) -> (turmoil::Sim<'static>, Fabric) {
    let sim = turmoil::Builder::new()
        .rng_seed(seed)
        .epoch(std::time::UNIX_EPOCH + EPOCH)
        .min_message_latency(Duration::from_millis(5))
        .max_message_latency(Duration::from_millis(20))
        .simulation_duration(Duration::from_secs(60))
        .build();
    (sim, Fabric::new(Trace::new(Keep::All), Entropy::from_seed(seed), 3))
}

/// Sends back every byte.
async fn echo(net: TurmoilNet) -> turmoil::Result {
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

fn echo_hosts(seed: u64) -> (turmoil::Sim<'static>, Fabric, TurmoilNet) {
    let (mut sim, fabric) = simulation(seed);
    for host in ["server", "client"] {
        fabric.add_host(host, sim.lookup(host));
    }
    let server = TurmoilNet::new(&fabric, "server");
    sim.host("server", move || echo(server.clone()));
    let client = TurmoilNet::new(&fabric, "client");
    (sim, fabric, client)
}

async fn dial(net: &TurmoilNet) -> io::Result<Box<dyn Socket>> {
    let addrs: Vec<SocketAddr> = net.resolve("server", 7).await?;
    net.connect(addrs[0], SocketOptions::default()).await
}

fn run_echo(seed: u64) -> u64 {
    let (mut sim, fabric, net) = echo_hosts(seed);
    sim.client("client", async move {
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
    });
    sim.run().unwrap();
    fabric.trace().hash()
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
    let (mut sim, _, net) = echo_hosts(3);
    sim.client("client", async move {
        let unknown = net.resolve("nowhere", 7).await.unwrap_err();
        assert_eq!(unknown.kind(), io::ErrorKind::NotFound);
        let server = net.resolve("server", 8).await?[0];
        let refused = net.connect(server, SocketOptions::default()).await.err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        Ok(())
    });
    sim.run().unwrap();
}

#[test]
fn a_broken_link_fails_those_who_wait() {
    let (mut sim, fabric, net) = echo_hosts(4);
    let (client, server) = (sim.lookup("client"), sim.lookup("server"));
    sim.client("client", async move {
        let socket = dial(&net).await?;
        turmoil::hold(client, server);
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
        turmoil::release(client, server);
        let again = dial(&net).await?;
        again.write_all(b"y").await?;
        assert_eq!(again.read(&mut buf).await?, 1);
        Ok(())
    });
    sim.run().unwrap();
}

#[test]
fn the_wall_clock_moves_with_virtual_time() {
    let (mut sim, _) = simulation(5);
    sim.client("client", async move {
        let before = SimClock::default().now_ms();
        assert_eq!(before / 1000, EPOCH.as_secs() as i64);
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(SimClock::default().now_ms() - before, 5000);
        Ok(())
    });
    sim.run().unwrap();
}
