use std::time::Duration;

use super::{
    super::{
        Act, Arm, ArmReport, ClusterKind, LatencyUntil, Model, Order, Report, Sample, Setting,
        Simulated, When, Workload, find, run,
    },
    play_load,
};
use crate::peers::Client;

fn report(name: &str, scale: f64, seed: u64) -> Report {
    run(find(name).unwrap(), &setting(scale, seed), &mut |_| {}).unwrap()
}

fn setting(scale: f64, seed: u64) -> Setting {
    Setting { scale, seed, ..Setting::new(ClusterKind::Sim) }
}

#[test]
fn a_seed_determines_the_report_byte_for_byte() {
    let arms = |seed| serde_json::to_string(&report("slow-broker", 0.01, seed).arms).unwrap();
    let json = |seed| serde_json::to_string(&report("slow-broker", 0.01, seed)).unwrap();
    let first = json(1);
    assert_eq!(first, json(1));
    assert_ne!(arms(1), arms(2));
}

/// The experiments at a fraction of their size: faults happen, and nothing is lost, duplicated or out of order.
#[test]
fn faults_are_played_and_checked() {
    for (name, scale, figure) in [
        ("leader-move", 0.0005, "leaders_moved"),
        ("killed-leader", 0.02, "election_all_brokers_ms"),
        ("frozen-leader", 0.02, "election_all_brokers_ms"),
    ] {
        let report = report(name, scale, 3);
        assert_eq!(report.arms.len(), 4);
        for arm in &report.arms {
            let failures = [arm.errors, arm.lost, arm.duplicated, arm.reordered];
            assert_eq!(failures, [0; 4], "{name} {}", arm.name);
            assert!(arm.records > 500, "{name} {}: {} records", arm.name, arm.records);
            assert!(arm.phases_us.commit.is_some(), "{name} {}", arm.name);
            assert!(arm.extra["stall_ms"] > 0.0, "{name} {}: {:?}", arm.name, arm.extra);
            assert!(arm.extra[figure] >= 100.0, "{name} {}: {:?}", arm.name, arm.extra);
        }
        let modelled = |what: &str| report.models.iter().any(|of| of.what.contains(what));
        assert!(modelled("network") && modelled("metadata") && modelled("writing"), "{name}");
    }
}

/// Keyless records that were not sent when a broker froze go to partitions without a replica on it, not
/// to partitions that only look healthy.
///
/// Less than 1% are bound to the broker and wait until the cluster has fenced it, a second here.
#[test]
fn keyless_records_avoid_a_frozen_broker() {
    for seed in 1..=3 {
        let arms = vec!["rf2-keyless".to_owned()];
        let setting = Setting { arms, ..setting(0.1, seed) };
        let report = run(find("frozen-leader").unwrap(), &setting, &mut |_| {}).unwrap();
        let p99 = report.arms[0].latency_us.p99;
        assert!(p99 < 600_000.0, "seed {seed}: p99 {p99} us");
    }
}

#[test]
fn an_experiment_without_virtual_time_is_an_error() {
    let refused = run(find("metadata-churn").unwrap(), &setting(1.0, 1), &mut |_| {}).unwrap_err();
    assert!(refused.to_string().contains("metadata-churn is not available in virtual time"));
}

/// The arm of `fetch-sessions`, with sessions that may be evicted after a sixth of a second.
fn sessions(arm: &str, seed: u64) -> (Sample, String) {
    let experiment = find("fetch-sessions").unwrap();
    let setting = setting(1.0, seed);
    let arms = experiment.arms(&setting);
    let arm: &Arm = arms.iter().find(|of| of.name == arm).unwrap();
    let Simulated::Load(mut workload) = experiment.simulated(&setting, arm).unwrap() else {
        panic!("its records come when they are due")
    };
    let [warmup, end] = [Duration::from_millis(750), Duration::from_millis(1250)];
    workload.broker_properties.push(("min.incremental.fetch.session.eviction.ms", "166".into()));
    (workload.records, workload.warmup) = (250, 150);
    let count = |at| (When::At(at), Act::CountSessions);
    workload.script = vec![count(warmup), count(end)];
    let sample = play_load(*workload, seed).unwrap();
    let report = ArmReport::new(arm, Client::Curtail, &sample, Vec::new());
    (sample, serde_json::to_string(&report).unwrap())
}

#[test]
fn consumers_with_buffered_partitions_keep_their_sessions_and_read_everything() {
    let [(credit, first), (_, again)] = [sessions("credit", 1), sessions("credit", 1)];
    let (omit, _) = sessions("omit", 1);
    assert_eq!(first, again);
    for sample in [&credit, &omit] {
        let Sample { errors, lost, duplicated, reordered, .. } = *sample;
        assert_eq!([errors, lost, duplicated, reordered], [0; 4]);
        assert_eq!((sample.records, sample.latency.summary().max > 0.0), (100, true));
        assert_eq!(sample.figure("sessions"), 16.0);
    }
    assert_eq!(credit.figure("partitions_in_sessions"), 16.0 * 12.0);
    assert_eq!(credit.figure("evictions_per_s"), 0.0);
    assert!(omit.figure("evictions_per_s") > 0.0, "{:?}", omit.extra);
}

#[test]
fn a_consumer_reads_everything_while_brokers_restart_in_turn() {
    let arms = vec!["few-all".to_owned()];
    let roll = |seed| {
        let setting = Setting { arms: arms.clone(), ..setting(0.05, seed) };
        run(find("roll").unwrap(), &setting, &mut |_| {}).unwrap()
    };
    let report = roll(1);
    let json = |report: &Report| serde_json::to_string(report).unwrap();
    assert_eq!(json(&report), json(&roll(1)));
    let arm = &report.arms[0];
    assert_eq!([arm.errors, arm.lost, arm.duplicated, arm.reordered], [0; 4]);
    assert_eq!(arm.rounds[0].faults.len(), 6);
    let [rolled, stall, read] = ["rolled_s", "stall_ms", "e2e_p99_ms"].map(|name| arm.extra[name]);
    assert!(rolled > 6.0 * 0.1 && stall > 0.0 && read > 0.0, "{:?}", arm.extra);
    // The load ends with the script, not with its records.
    let longest = 2000.0 * (rolled + 0.001);
    assert!(arm.records > 1000 && (arm.records as f64) <= longest, "{}", arm.records);
}

#[test]
fn round_trips_return_to_a_member_of_either_group_protocol() {
    for arm in ["classic-3", "consumer-1"] {
        let setting = Setting { arms: vec![arm.to_owned()], ..setting(0.002, 1) };
        let json = || {
            let report = run(find("e2e").unwrap(), &setting, &mut |_| {}).unwrap();
            let arm = &report.arms[0];
            assert_eq!((arm.records, arm.latency_until), (200, LatencyUntil::Polled));
            // To the broker and to the consumer; with more replicas, two one-way delays of a follower's fetch
            // in between.
            let least = if arm.name == "classic-3" { 1000.0 } else { 500.0 };
            let latency = &arm.latency_us;
            assert!(latency.p50 > least && latency.max < 5.0 * least, "{}: {latency:?}", arm.name);
            assert!(arm.phases_us.fetch.is_some() && arm.phases_us.commit.is_some());
            serde_json::to_string(&report).unwrap()
        };
        assert_eq!(json(), json());
    }
}

/// Runs an arm of an experiment and checks that no record was lost, duplicated, reordered or rejected.
fn intact(experiment: &str, name: &str, setting: Setting) -> ArmReport {
    let setting = Setting { arms: vec![name.to_owned()], ..setting };
    let report = run(find(experiment).unwrap(), &setting, &mut |_| {}).unwrap();
    let arm = report.arms.into_iter().next().unwrap();
    assert_eq!([arm.errors, arm.lost, arm.duplicated, arm.reordered], [0; 4], "{name}");
    arm
}

#[test]
fn acks_wait_for_a_slow_replica_and_for_a_stopped_one_only_with_min_isr_3() {
    let arm = |name| intact("min-isr", name, setting(0.1, 2));
    let slow = arm("2-slow");
    assert_eq!(slow.rounds[0].faults.len(), 2);
    assert!(slow.latency_us.p99 > 50_000.0, "{:?}", slow.latency_us);
    let [two, three] = [arm("2-gone"), arm("3-gone")];
    let [stall, gone] = ["stall_ms", "gone_ms"].map(|name| three.extra[name]);
    assert!(gone > 250.0 && stall >= gone, "{:?}", three.extra);
    assert!(two.extra["stall_ms"] < 0.5 * gone, "{:?}", two.extra);
}

#[test]
fn records_of_a_burst_are_due_at_the_same_moment() {
    let arm = |name| intact("micro-burst", name, setting(0.02, 1));
    let [even, burst, linger] = ["even", "burst", "burst-linger"].map(arm);
    assert!(burst.latency_us.p50 > even.latency_us.p50);
    assert!(linger.extra["requests"] < burst.extra["requests"]);
}

#[test]
fn bystanders_counts_only_partitions_without_the_impaired_broker() {
    let arm = |name| intact("bystanders", name, setting(0.05, 1));
    let [none, slow] = ["none", "slow"].map(arm);
    assert_eq!([none.rounds[0].faults.len(), slow.rounds[0].faults.len()], [0, 1]);
    assert!(none.extra["victims_p999_ms"] < 10.0, "{:?}", none.extra);
    assert!(slow.extra["victims_p999_ms"] > 20.0, "{:?}", slow.extra);
    // Nor does the sender wait for it.
    let before = slow.extra["before_p999_ms"];
    assert!(slow.latency_us.p999 <= 1250.0 * before, "{:?}, {before} ms", slow.latency_us);
}

#[test]
fn a_produce_waiting_for_a_slow_replica_delays_later_ones_on_its_connection() {
    let arm = |name| intact("head-of-line", name, setting(0.1, 1));
    let [none, shared, apart] = ["none", "shared", "apart"].map(arm);
    assert!(none.extra["slow_p99_ms"] < 10.0, "{:?}", none.extra);
    assert!(shared.latency_us.p99 > 75_000.0, "{:?}", shared.latency_us);
    assert!(apart.latency_us.p99 < 10_000.0, "{:?}", apart.latency_us);
    assert!(apart.extra["slow_p99_ms"] > 75.0, "{:?}", apart.extra);
    // Lookups use another connection, so the waiting records do not delay them.
    assert!(shared.extra["lookup_p90_ms"] < 10.0, "{:?}", shared.extra);
}

#[test]
fn records_after_a_backlog_wait_for_the_catch_up() {
    let arm = |name| intact("catch-up", name, setting(0.02, 1));
    let [end, behind, one] = ["caught-up", "behind", "one-behind"].map(arm);
    assert!(!end.extra.contains_key("caught_up_ms"));
    let [all, of_one] = [&behind, &one].map(|arm| arm.extra["caught_up_ms"]);
    assert!(all > 0.0 && of_one > 0.0, "{all} {of_one}");
    assert!(behind.latency_us.max > end.latency_us.max, "{:?}", behind.latency_us);
    // One partition of twelve does not count.
    assert_eq!([end.records, behind.records, one.records], [320; 3]);
}

#[test]
fn the_wait_and_the_fill_time_of_a_fetch_response_bound_the_latency() {
    let arm = |name| intact("fetch-wait", name, setting(0.1, 1));
    let [default, long, short] = ["trickle", "trickle-256k", "trickle-256k-50"].map(arm);
    assert!(default.latency_us.max < 5_000.0, "{:?}", default.latency_us);
    assert!(long.latency_us.p50 > 100_000.0, "{:?}", long.latency_us);
    assert!(long.latency_us.max < 505_000.0, "{:?}", long.latency_us);
    assert!(short.latency_us.p50 > 10_000.0, "{:?}", short.latency_us);
    assert!(short.latency_us.max < 55_000.0, "{:?}", short.latency_us);
    let fetches = |arm: &ArmReport| arm.extra["fetches"];
    assert!(fetches(&long) < fetches(&short) && fetches(&short) < fetches(&default));
    let filled = arm("steady-256k");
    assert!(filled.latency_us.max < 110_000.0, "{:?}", filled.latency_us);
}

#[test]
fn clients_with_racks_cross_no_zones() {
    let arm = |name| intact("zones", name, setting(0.1, 1));
    let [far, reads, near] = ["far", "near-reads", "near"].map(arm);
    let across = |arm: &ArmReport| {
        ["produced_across_percent", "consumed_across_percent"].map(|name| arm.extra[name])
    };
    assert!(across(&far).iter().all(|percent| *percent > 33.0), "{:?}", far.extra);
    assert!(across(&reads)[0] > 33.0 && across(&reads)[1] < 1.0, "{:?}", reads.extra);
    assert!(across(&near).iter().all(|percent| *percent < 1.0), "{:?}", near.extra);
    // Two delays of 2.5 ms for the replication.
    assert!(far.latency_us.p50 > 5_000.0, "{:?}", far.latency_us);
}

/// While the socket is not writable, due batches wait for writability. A driver that polled instead would
/// stop virtual time.
#[test]
fn virtual_time_advances_while_a_producers_socket_is_full() {
    let workload = Workload {
        partitions: 4,
        properties: vec![("acks", "0".to_owned()), ("linger.ms", "5".to_owned())],
        records: 5_000,
        rate: None,
        size: 1_000,
        order: Order::Acknowledged,
        model: Model { socket_buffer: 1 << 16, disk_bandwidth: 1_000_000, ..Model::default() },
        ..Workload::default()
    };
    let (done, result) = std::sync::mpsc::channel();
    std::thread::spawn(move || drop(done.send(play_load(workload, 1))));
    let limit = Duration::from_secs(60);
    let sample = result.recv_timeout(limit).expect("time has stood still for a minute").unwrap();
    assert_eq!([sample.errors, sample.lost, sample.duplicated], [0; 3]);
    // Five megabytes at one a second, less what the memory of producer and sockets takes.
    assert!(sample.records == 5_000, "{}", sample.records);
}
