//! Producers on several threads while leaders move, freeze and die: no acknowledged record is lost,
//! and nothing deadlocks.

use std::{collections::BTreeMap, sync::Arc};

use crate::support::{Client, batch, config, soon, start};
use curtail_cluster::Cluster;
use curtail_net::{Entropy, Env, SocketOptions};
use curtail_wire::ErrorCode;
use tokio::sync::watch;

const PARTITIONS: i32 = 4;
const STEPS: usize = 24;

/// Sends one value until it is acknowledged. Returns the client for the next value.
async fn deliver(
    cluster: &Cluster,
    partition: i32,
    value: &str,
    mut client: Option<(i32, Client)>,
) -> Option<(i32, Client)> {
    loop {
        cluster.wait_until(|c| c.leader("t", partition).is_some()).await;
        let Some((leader, _)) = cluster.leader("t", partition) else { continue };
        if client.as_ref().is_none_or(|(id, _)| *id != leader) {
            let addr = cluster.broker(leader).expect("a broker").addr();
            let connected = Env::real().net.connect(addr, SocketOptions::default()).await;
            let Ok(socket) = connected else {
                // The leader was killed, and its session has not expired yet. The expiry will
                // change the leader.
                tokio::task::yield_now().await;
                continue;
            };
            client = Some((leader, Client::on(socket)));
        }
        let Some((_, open)) = &mut client else { continue };
        let exchange = async {
            open.try_send_produce("t", partition, -1, batch(&[value], None)).await?;
            open.try_produce_answer().await
        };
        // A frozen leader does not respond; the wait ends when another one is elected.
        let moved =
            cluster.wait_until(|c| c.leader("t", partition).is_none_or(|(id, _)| id != leader));
        let answer = tokio::select! {
            biased;
            answer = exchange => answer,
            () = moved => None,
        };
        match answer {
            Some(ErrorCode::NONE) => return client,
            Some(_) => tokio::task::yield_now().await,
            None => client = None,
        }
    }
}

async fn faults(cluster: Arc<Cluster>, mut delivered: watch::Receiver<usize>) {
    let entropy = Entropy::from_seed(3);
    for step in 0..STEPS {
        let enough = (step + 1) * 40;
        soon(delivered.wait_for(|count| *count >= enough)).await.expect("the producers go on");
        let id = 1 + entropy.below(3) as i32;
        match entropy.below(4) {
            0 => {
                cluster.kill(id);
                soon(cluster.restart(id)).await.expect("it starts again");
            }
            1 => {
                cluster.freeze(id);
                soon(cluster.wait_until(|c| !c.live_brokers().contains(&id))).await;
                cluster.thaw(id);
            }
            2 => {
                soon(cluster.stop(id)).await;
                soon(cluster.restart(id)).await.expect("it starts again");
            }
            _ => {
                for partition in 0..PARTITIONS {
                    // Refused if the broker is not in sync.
                    let _ = cluster.move_leader("t", partition, id);
                }
            }
        }
        // Another fault now would leave a partition with a single replica and then with none.
        soon(cluster.wait_until(|c| {
            (0..PARTITIONS).all(|p| c.isr("t", p).is_some_and(|isr| isr.len() == 3))
        }))
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_in_a_storm_of_faults() {
    let cluster = Arc::new(start(config(3)).await);
    cluster.create_topic("t", PARTITIONS, 3, &[("min.insync.replicas", "2")]).expect("a topic");
    cluster.settled().await;
    let count = watch::Sender::new(0);
    let over = watch::Sender::new(false);
    let mut producers = tokio::task::JoinSet::new();
    for partition in 0..PARTITIONS {
        let (cluster, count) = (Arc::clone(&cluster), count.clone());
        let over = over.subscribe();
        producers.spawn(async move {
            let mut client = None;
            let mut sent = 0;
            while !*over.borrow() {
                client = deliver(&cluster, partition, &sent.to_string(), client).await;
                sent += 1;
                count.send_modify(|count| *count += 1);
            }
            (partition, sent)
        });
    }
    faults(Arc::clone(&cluster), count.subscribe()).await;
    over.send_replace(true);
    let sent: BTreeMap<i32, usize> = soon(producers.join_all()).await.into_iter().collect();
    cluster.settled().await;
    for (partition, sent) in sent {
        let (leader, _) = cluster.leader("t", partition).expect("a leader");
        let mut client = Client::connect(&cluster, leader).await;
        let (_, end, _) = client.list_offset("t", partition, -1).await;
        let mut read = client.fetch_all("t", partition, end as usize).await;
        // Without sequence numbers, a value with a lost acknowledgement has an adjacent duplicate.
        read.dedup();
        let expected: Vec<String> = (0..sent).map(|i| i.to_string()).collect();
        assert_eq!(read, expected, "partition {partition}");
    }
}
