//! Slow and cut connections.

use std::time::Duration;

use curtail_cluster::{Direction, Fault, Sender, Throttle};
use tokio::time::Instant;

use crate::support::{Client, batch, one_partition};

#[tokio::test]
async fn a_throttled_client_is_slow_and_the_others_are_not() {
    let (cluster, mut client) = one_partition().await;
    let value = "v".repeat(20_000);
    client.produce("t", 0, -1, batch(&[&value], None)).await;
    let throttle = Throttle {
        broker: Some(1),
        client_id: Some("te*".into()),
        from: Sender::Clients,
        direction: Direction::Out,
        bytes_per_second: 40_000,
    };
    let name = cluster.inject(Fault::Throttle(throttle.clone())).unwrap();
    let elapsed = async |client: &mut Client| {
        let begun = Instant::now();
        assert_eq!(client.fetch_all("t", 0, 1).await[0], value);
        begun.elapsed()
    };
    let slow = elapsed(&mut client).await;
    assert!(slow >= Duration::from_millis(480), "{slow:?}");
    let begun = Instant::now();
    client.produce("t", 0, -1, batch(&[&value], None)).await;
    let requests = begun.elapsed();
    assert!(requests < slow, "requests are not slow: {requests:?}");
    cluster.lift(&name);
    let throttle = Throttle { client_id: Some("other".into()), bytes_per_second: 1, ..throttle };
    cluster.inject(Fault::Throttle(throttle)).unwrap();
    assert!(elapsed(&mut client).await < slow);
}
