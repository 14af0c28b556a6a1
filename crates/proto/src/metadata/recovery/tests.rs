use super::*;

const MS: Duration = Duration::from_millis(1);

#[test]
fn the_bootstrap_servers_come_last_and_alone_when_known_brokers_keep_failing() {
    let start = Instant::now();
    let mut recovery = Recovery::new(RecoveryStrategy::Rebootstrap, 300 * MS);
    assert_eq!(recovery.source(false, start), Source::Bootstrap);
    assert_eq!(recovery.source(true, start), Source::KnownThenBootstrap);
    recovery.failed(start);
    recovery.failed(start + 200 * MS);
    assert_eq!(recovery.source(true, start + 299 * MS), Source::KnownThenBootstrap);
    assert_eq!(recovery.source(true, start + 300 * MS), Source::Bootstrap);
    recovery.answered();
    assert_eq!(recovery.source(true, start + 400 * MS), Source::KnownThenBootstrap);
}

#[test]
fn a_broker_can_demand_a_rebootstrap() {
    let start = Instant::now();
    let mut recovery = Recovery::new(RecoveryStrategy::Rebootstrap, 300 * MS);
    recovery.demand();
    assert_eq!(recovery.source(true, start), Source::Bootstrap);
    recovery.answered();
    assert_eq!(recovery.source(true, start), Source::KnownThenBootstrap);
}

#[test]
fn without_the_strategy_only_known_brokers_are_tried() {
    let start = Instant::now();
    let mut recovery = Recovery::new(RecoveryStrategy::None, 300 * MS);
    assert_eq!(recovery.source(false, start), Source::Bootstrap);
    recovery.demand();
    recovery.failed(start);
    assert_eq!(recovery.source(true, start + 1000 * MS), Source::Known);
}
