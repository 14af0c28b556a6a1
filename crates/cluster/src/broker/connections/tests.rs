use super::*;

const LIMITS: Limits =
    Limits { authentication: Duration::from_secs(10), idle: Duration::from_secs(600) };

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A connection's ticket, and a task in its place.
fn connect(
    registry: &Arc<Registry>,
    for_whom: ForWhom,
    most: usize,
    now: Instant,
) -> Option<(Ticket, tokio::task::JoinHandle<()>)> {
    let ticket = registry.enter(for_whom, most, now)?;
    let task = tokio::spawn(std::future::pending());
    registry.attach(ticket.id(), task.abort_handle());
    Some((ticket, task))
}

fn client(registry: &Arc<Registry>, now: Instant) -> (Ticket, tokio::task::JoinHandle<()>) {
    connect(registry, ForWhom::Clients, usize::MAX, now).unwrap()
}

async fn closed(task: tokio::task::JoinHandle<()>) -> bool {
    task.await.is_err_and(|error| error.is_cancelled())
}

#[tokio::test]
async fn a_connection_that_does_not_authenticate_in_time_is_closed() {
    let begin = Instant::now();
    let registry = Registry::new(LIMITS, begin);
    let (_first, late) = client(&registry, begin);
    let (second, admitted) = client(&registry, begin);
    second.authenticated();
    let (_third, later) = client(&registry, begin + seconds(1));
    assert_eq!(registry.expire(begin + seconds(9)), (0, begin + seconds(10)));
    assert_eq!(registry.expire(begin + seconds(10)), (1, begin + seconds(11)));
    assert!(closed(late).await && !later.is_finished());
    assert_eq!(registry.expire(begin + seconds(11)), (1, begin + seconds(600)));
    assert!(closed(later).await && !admitted.is_finished());
}

#[tokio::test]
async fn the_oldest_unauthenticated_connection_makes_room() {
    let now = Instant::now();
    let registry = Registry::new(LIMITS, now);
    let enter = || connect(&registry, ForWhom::Clients, 3, now);
    let (alice, alices) = enter().unwrap();
    alice.authenticated();
    let (second, seconds) = enter().unwrap();
    let (_third, thirds) = enter().unwrap();
    let (_fourth, fourths) = enter().unwrap();
    assert!(closed(seconds).await && !thirds.is_finished() && !fourths.is_finished());
    // A ticket dropped by a replaced connection's task frees no other connection's entry.
    drop(second);
    let (bob, bobs) = enter().unwrap();
    assert!(closed(thirds).await);
    bob.authenticated();
    let (carol, _carols) = enter().unwrap();
    assert!(closed(fourths).await);
    carol.authenticated();
    assert!(enter().is_none(), "those who have authenticated stay");
    assert!(!alices.is_finished() && !bobs.is_finished());
    drop(bob);
    assert!(enter().is_some());
}

#[tokio::test]
async fn a_brokers_connection_replaces_the_least_recently_used_client_connection() {
    let now = Instant::now();
    let registry = Registry::new(LIMITS, now);
    let enter = |for_whom| {
        let entered = connect(&registry, for_whom, 3, now)?;
        entered.0.authenticated();
        Some(entered)
    };
    let (first, firsts) = enter(ForWhom::Clients).unwrap();
    let (second, seconds) = enter(ForWhom::Clients).unwrap();
    let (broker, brokers) = enter(ForWhom::Brokers).unwrap();
    broker.idle(now);
    second.idle(now + Duration::from_secs(1));
    first.idle(now + Duration::from_secs(2));
    let (other, _others) = enter(ForWhom::Brokers).unwrap();
    assert!(closed(seconds).await && !firsts.is_finished());
    let (_another, _anothers) = enter(ForWhom::Brokers).unwrap();
    assert!(closed(firsts).await && !brokers.is_finished());
    assert!(enter(ForWhom::Brokers).is_none(), "brokers do not replace each other");
    drop(other);
    assert!(enter(ForWhom::Clients).is_some());
}

#[tokio::test]
async fn idle_connections_are_closed_and_busy_ones_are_not() {
    let begin = Instant::now();
    let registry = Registry::new(LIMITS, begin);
    let (idle, idles) = client(&registry, begin);
    let (busy, busys) = client(&registry, begin);
    let (used, useds) = client(&registry, begin);
    [&idle, &busy, &used].into_iter().for_each(Ticket::authenticated);
    idle.idle(begin);
    used.idle(begin + seconds(300));
    busy.busy();
    assert_eq!(registry.expire(begin + seconds(599)), (0, begin + seconds(600)));
    assert_eq!(registry.expire(begin + seconds(600)), (0, begin + seconds(900)));
    assert!(closed(idles).await && !busys.is_finished() && !useds.is_finished());
    busy.idle(begin + seconds(700));
    assert_eq!(registry.expire(begin + seconds(900)), (0, begin + seconds(1300)));
    assert!(closed(useds).await && !busys.is_finished());
}
