//! The driver in virtual time, against scripted brokers.

mod control;
pub(crate) mod net;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use curtail_proto::metadata::recovery::RecoveryStrategy;
use tokio::time::{advance, sleep};

use self::net::{Asked, Behaviour, World};
use super::*;

const MS: Duration = Duration::from_millis(1);

fn config(bootstrap: &[u16]) -> CommonConfig {
    CommonConfig {
        bootstrap_servers: bootstrap.iter().map(|port| format!("127.0.0.1:{port}")).collect(),
        ..CommonConfig::default()
    }
}

fn start(world: &Arc<World>, config: &CommonConfig) -> MetadataHandle {
    MetadataHandle::start(&world.env(), config, AutoCreate::Allowed).expect("started")
}

fn soon() -> Instant {
    Instant::now() + 10_000 * MS
}

async fn known(world: &Arc<World>, config: &CommonConfig) -> MetadataHandle {
    let metadata = start(world, config);
    metadata.topic("t", soon()).await.unwrap();
    world.asked.lock().clear();
    metadata
}

#[tokio::test(start_paused = true)]
async fn a_burst_for_a_topic_joins_one_request() {
    let world = World::new(&[1, 2], &["t"]);
    let metadata = start(&world, &config(&[1]));
    let waiters: Vec<_> = (0..100)
        .map(|_| {
            let metadata = metadata.clone();
            tokio::spawn(async move { metadata.topic("t", soon()).await.unwrap().leaders.len() })
        })
        .collect();
    for waiter in waiters {
        assert_eq!(waiter.await.unwrap(), 3);
    }
    assert_eq!(world.asked().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn requests_for_many_topics_are_split_into_bounded_groups() {
    let names: Vec<String> = (0..250).map(|n| format!("t{n:03}")).collect();
    let world = World::new(&[1], &names.iter().map(String::as_str).collect::<Vec<_>>());
    let metadata = start(&world, &config(&[1]));
    for name in &names {
        metadata.request_refresh(Some(name));
    }
    for name in &names {
        metadata.topic(name, soon()).await.unwrap();
    }
    let sizes: Vec<usize> = world.asked().iter().map(|asked| asked.topics.len()).collect();
    assert_eq!(sizes, [100, 100, 50]);
}

#[tokio::test(start_paused = true)]
async fn late_response_is_hedged_once_with_another_broker() {
    let world = World::new(&[1, 2, 3], &["t"]);
    let metadata = known(&world, &config(&[1])).await;
    // The control connection leads to broker 1.
    world.set(1, Behaviour::Hangs);
    let began = Instant::now();
    world.topics.lock().insert("u".into(), 0);
    metadata.topic("u", soon()).await.unwrap();
    assert!(began.elapsed() < 100 * MS, "{:?}", began.elapsed());
    let asked = world.brokers_asked();
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert_eq!(asked[0], 1);
    // The faster broker's connection is kept.
    metadata.request_refresh(Some("u"));
    sleep(500 * MS).await;
    assert_eq!(world.brokers_asked()[2..], asked[1..]);
}

#[tokio::test(start_paused = true)]
async fn a_single_broker_is_not_hedged() {
    let world = World::new(&[1], &["t", "u"]);
    let metadata = known(&world, &config(&[1])).await;
    world.set(1, Behaviour::Hangs);
    metadata.request_refresh(Some("u"));
    sleep(900 * MS).await;
    assert_eq!(world.asked().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn suspect_broker_is_avoided_and_not_waited_for() {
    let world = World::new(&[1, 2], &["t"]);
    let metadata = known(&world, &config(&[1])).await;
    metadata.request_refresh_avoiding(Some("t"), 1);
    sleep(500 * MS).await;
    assert_eq!(world.brokers_asked(), [2]);
    // The next request is in flight to an unresponsive broker when that broker becomes suspect.
    world.set(2, Behaviour::Hangs);
    metadata.request_refresh(Some("t"));
    sleep(5 * MS).await;
    let began = Instant::now();
    metadata.request_refresh_avoiding(Some("t"), 2);
    sleep(5 * MS).await;
    // Once instead of the unresponsive broker, and once because that request was sent before the suspicion.
    assert_eq!(world.brokers_asked(), [2, 2, 1, 1]);
    assert!(world.asked()[2].at <= began.elapsed() + world.asked()[1].at + 10 * MS);
}

#[tokio::test(start_paused = true)]
async fn broker_with_newer_metadata_is_asked_first_unless_suspect() {
    let world = World::new(&[1, 2, 3], &["t", "u", "v"]);
    let metadata = known(&world, &config(&[1])).await;
    for (topic, informed) in [("t", 3), ("u", 2)] {
        metadata.request_refresh_from(topic, informed);
        sleep(10 * MS).await;
        assert_eq!(world.brokers_asked().last(), Some(&(informed as u16)));
    }
    // Its connection is kept for the next request.
    metadata.request_refresh(Some("v"));
    sleep(10 * MS).await;
    assert_eq!(world.brokers_asked(), [3, 2, 2]);
    metadata.request_refresh_from("t", 3);
    metadata.request_refresh_avoiding(Some("t"), 3);
    sleep(500 * MS).await;
    assert_ne!(world.brokers_asked()[3], 3);
}

#[tokio::test(start_paused = true)]
async fn refresh_after_a_first_error_is_immediate_and_later_ones_back_off() {
    let world = World::new(&[1, 2], &["t"]);
    let metadata = known(&world, &config(&[1])).await;
    sleep(5_000 * MS).await;
    let began = Instant::now();
    for _ in 0..100 {
        metadata.request_refresh(Some("t"));
        sleep(10 * MS).await;
    }
    let asked = world.asked();
    let origin = asked[0].at;
    let after: Vec<u128> = asked.iter().map(|a| (a.at - origin).as_millis()).collect();
    assert!(after.windows(2).all(|pair| pair[1] - pair[0] >= 80), "{after:?}");
    assert!((9..=13).contains(&after.len()), "{after:?} in {:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn closed_kept_connection_causes_no_backoff() {
    let world = World::new(&[1, 2], &["t"]);
    let metadata = known(&world, &config(&[1])).await;
    world.set(1, Behaviour::Dead);
    let began = Instant::now();
    world.topics.lock().insert("u".into(), 0);
    metadata.topic("u", soon()).await.unwrap();
    assert!(began.elapsed() < 20 * MS, "{:?}", began.elapsed());
    assert_eq!(world.brokers_asked(), [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn requests_for_an_unknown_topic_end_with_its_waiter() {
    let world = World::new(&[1], &["t"]);
    let metadata = known(&world, &config(&[1])).await;
    let error = metadata.topic("typo", Instant::now() + 2_000 * MS).await.unwrap_err();
    assert!(matches!(error, Error::UnknownTopic(_)), "{error}");
    let asked = world.asked().len();
    assert!((10..=20).contains(&asked), "{asked}");
    sleep(Duration::from_secs(100)).await;
    assert!(world.asked().len() <= asked + 1, "{:?}", world.asked());
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_is_being_created_is_found_soon() {
    let world = World::new(&[1], &[]);
    *world.creates.lock() = true;
    let metadata = start(&world, &config(&[1]));
    let began = Instant::now();
    metadata.topic("new", soon()).await.unwrap();
    assert!(began.elapsed() < 150 * MS, "{:?}", began.elapsed());
}

/// Reports use as configured, and counts expired topics.
#[derive(Default)]
struct User {
    uses: AtomicBool,
    expired: AtomicUsize,
}

impl Listener for User {
    fn changed(&self, _: &Arc<Snapshot>, _: &[Arc<str>]) {}

    fn uses(&self, _: &str) -> bool {
        self.uses.load(Ordering::Relaxed)
    }

    fn lacks(&self, _: &Snapshot, _: &str) -> bool {
        false
    }

    fn expired(&self, topics: &[Arc<str>]) {
        self.expired.fetch_add(topics.len(), Ordering::Relaxed);
    }

    fn tidy(&self) {}

    fn runtime_ended(&self) {}
}

#[tokio::test(start_paused = true)]
async fn an_idle_topic_expires_and_one_in_use_is_kept_fresh() {
    let world = World::new(&[1], &["t"]);
    let mut common = config(&[1]);
    common.metadata_max_age = 1_000 * MS;
    let idle = Some(3_000 * MS);
    let metadata = MetadataHandle::start_expiring(&world.env(), &common, AutoCreate::Allowed, idle);
    let metadata = metadata.expect("started");
    let user: Arc<User> = Arc::default();
    let listener: Arc<dyn Listener> = user.clone();
    metadata.listen(Arc::downgrade(&listener));
    user.uses.store(true, Ordering::Relaxed);
    metadata.topic("t", soon()).await.unwrap();
    sleep(10_500 * MS).await;
    assert_eq!(world.asked().len(), 11, "one a second");
    user.uses.store(false, Ordering::Relaxed);
    sleep(10_000 * MS).await;
    assert_eq!(world.asked().len(), 13);
    assert_eq!(user.expired.load(Ordering::Relaxed), 1);
    assert!(metadata.snapshot().topic("t").is_none());
    metadata.topic("t", soon()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn bootstrap_servers_are_asked_when_no_known_broker_responds() {
    for (strategy, expected) in
        [(RecoveryStrategy::Rebootstrap, true), (RecoveryStrategy::None, false)]
    {
        let world = World::new(&[1, 2, 9], &["t", "u"]);
        *world.named.lock() = vec![1, 2];
        let mut common = config(&[9]);
        common.metadata_recovery = strategy;
        let metadata = known(&world, &common).await;
        for gone in [1, 2] {
            world.set(gone, Behaviour::Dead);
        }
        // The kept connection, which leads to the bootstrap server, is closed once.
        world.set(9, Behaviour::Dead);
        metadata.request_refresh(Some("t"));
        sleep(10 * MS).await;
        world.set(9, Behaviour::Answers);
        *world.named.lock() = vec![9];
        let found = metadata.topic("u", soon()).await;
        assert_eq!(found.is_ok(), expected, "{strategy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn rebootstrap_required_sends_the_client_to_the_bootstrap_servers() {
    let world = World::new(&[1, 2, 9], &["t", "u"]);
    *world.named.lock() = vec![1, 2];
    let metadata = known(&world, &config(&[9])).await;
    metadata.request_refresh_avoiding(Some("t"), 9);
    world.set(9, Behaviour::Dead);
    sleep(500 * MS).await;
    for told in [1, 2] {
        world.set(told, Behaviour::Fails(ErrorCode::REBOOTSTRAP_REQUIRED));
    }
    world.set(9, Behaviour::Answers);
    metadata.topic("u", soon()).await.unwrap();
    assert_eq!(world.brokers_asked().last(), Some(&9));
}

#[tokio::test(start_paused = true)]
async fn bootstrap_servers_are_asked_after_the_rebootstrap_trigger() {
    let world = World::new(&[1, 2, 9], &["t"]);
    *world.named.lock() = vec![1, 2];
    let mut common = config(&[9]);
    common.metadata_rebootstrap_trigger = 20_000 * MS;
    let metadata = known(&world, &common).await;
    world.set(9, Behaviour::Dead);
    metadata.request_refresh(Some("t"));
    sleep(10 * MS).await;
    for told in [1, 2] {
        world.set(told, Behaviour::Fails(ErrorCode::UNKNOWN_SERVER_ERROR));
    }
    world.set(9, Behaviour::Answers);
    metadata.request_refresh(Some("t"));
    sleep(15_000 * MS).await;
    assert!(!world.brokers_asked()[1..].contains(&9), "{:?}", world.asked());
    sleep(10_000 * MS).await;
    assert_eq!(world.brokers_asked().last(), Some(&9));
}

#[tokio::test(start_paused = true)]
async fn control_task_frees_a_replaced_snapshot_after_its_last_reader() {
    let world = World::new(&[1], &["t"]);
    let metadata = known(&world, &config(&[1])).await;
    let read = metadata.snapshot();
    let watch = Arc::downgrade(&read);
    world.topics.lock().insert("t".into(), 5);
    metadata.request_refresh(Some("t"));
    sleep(10 * MS).await;
    assert_eq!(metadata.snapshot().leader("t", 0).epoch, 5);
    drop(read);
    assert_eq!(watch.strong_count(), 1, "kept by the writer");
    metadata.request_refresh(Some("t"));
    advance(200 * MS).await;
    sleep(MS).await;
    assert_eq!(watch.strong_count(), 0, "freed on the control task");
}

#[tokio::test(start_paused = true)]
async fn leaderless_topic_is_refreshed_until_it_has_a_leader() {
    let world = World::new(&[1], &["t"]);
    let metadata = known(&world, &config(&[1])).await;
    world.leaderless.lock().insert("t".into());
    world.topics.lock().insert("t".into(), 1);
    metadata.request_refresh(Some("t"));
    sleep(450 * MS).await;
    assert_eq!(metadata.snapshot().leader("t", 0).id, -1);
    world.leaderless.lock().clear();
    world.topics.lock().insert("t".into(), 2);
    sleep(130 * MS).await;
    assert_eq!(metadata.snapshot().leader("t", 0).epoch, 2);
    let asked: Vec<Asked> = world.asked();
    sleep(10_000 * MS).await;
    assert_eq!(world.asked(), asked, "nothing more to ask");
}
