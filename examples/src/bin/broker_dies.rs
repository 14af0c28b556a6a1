//! Kills one of three brokers while it sends records, as a test with a fault does.
#![allow(clippy::print_stdout)]

use std::{error::Error, time::Duration};

use curtail::{Env, Producer, ProducerConfig, Record};
use curtail_cluster::{Cluster, ClusterConfig};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let config = ClusterConfig {
        default_replication_factor: 3,
        // The controller notices a dead broker within a second instead of nine.
        broker_session_timeout: Duration::from_secs(1),
        broker_heartbeat_interval: Duration::from_millis(200),
        ..ClusterConfig::default()
    };
    let cluster = Cluster::start(config, Env::real()).await?;
    let producer = Producer::new(ProducerConfig::new(cluster.bootstrap()))?;

    let mut acknowledged = 0;
    for number in 0..1_000 {
        if number == 500 {
            cluster.kill(1);
        }
        producer.send(Record::to("payments").value(&number.to_string())).await?.await?;
        acknowledged += 1;
    }
    println!("{acknowledged} of 1000 records acknowledged");
    producer.close().await?;
    Ok(())
}
