use std::time::Duration;

use curtail_lab::{
    latency::Summary,
    perf::{Interval, PhasesReport, Report, Window},
};

use super::*;

fn report() -> Report {
    let summary =
        Summary { avg: 1234.5, p50: 999.9, p95: 2000.0, p99: 3999.0, p999: 8001.0, max: 9876.5 };
    Report {
        tool: "produce",
        client: "curtail",
        version: "0",
        records: 1000,
        errors: 0,
        first_error: None,
        record_size: 100,
        seconds: 2.0,
        throughput_rps: 500.25,
        throughput_mbps: 0.0477,
        target_rps: None,
        cpu_us_per_record: 3.0,
        cpu_user_us: 2000.0,
        cpu_system_us: 1000.0,
        cpu_includes_brokers: false,
        latency_us: Some(Summary { max: 20_000.0, ..summary }),
        send_latency_us: Some(summary),
        phases_us: PhasesReport::default(),
    }
}

#[test]
fn producer_lines_are_those_of_kafkas_tool() {
    let window = Window {
        records: 50_001,
        bytes: 5 * 1024 * 1024,
        elapsed: Duration::from_secs(5),
        avg: Duration::from_micros(1250),
        max: Duration::from_micros(17_040),
    };
    assert_eq!(
        produce_window(&window),
        "50001 records sent, 10000.2 records/sec (1.00 MB/sec), 1.2 ms avg latency, 17.0 ms max latency."
    );
    assert_eq!(
        produce_total(&report(), false),
        "1000 records sent, 500.250000 records/sec (0.05 MB/sec), 1.23 ms avg latency, 9.88 ms max latency, \
         0 ms 50th, 2 ms 95th, 3 ms 99th, 8 ms 99.9th."
    );
    assert!(produce_total(&report(), true).starts_with("1000 steady state records sent, 500.25"));
}

#[test]
fn open_loop_figures_are_there_with_a_rate_only() {
    assert_eq!(open_loop(&report()), None);
    let line = open_loop(&Report { target_rps: Some(10_000.0), ..report() }).unwrap();
    assert_eq!(
        line,
        "Latency from the intended send time at 10000 records/sec: 1.234 ms avg, 1.000 ms 50th, \
         2.000 ms 95th, 3.999 ms 99th, 8.001 ms 99.9th, 20.000 ms max."
    );
}

#[test]
fn end_to_end_lines_are_those_of_kafkas_tool() {
    assert_eq!(e2e_sample(3000, Duration::from_nanos(412_345)), "3000\t0.412345");
    assert_eq!(
        e2e_total(&report()),
        "Avg latency: 1.2345 ms\nPercentiles: 50th = 0, 99th = 3, 99.9th = 8"
    );
}

#[test]
fn consumer_lines_are_those_of_kafkas_tool() {
    assert_eq!(
        consume_header(false),
        "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, \
         rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
    );
    assert!(consume_header(true).starts_with("time, threadId, data.consumed.in.MB, "));
    let row = ConsumeRow {
        bytes: 10 * 1024 * 1024,
        records: 1000,
        elapsed: Duration::from_millis(2000),
        rebalance: Duration::from_millis(1000),
    };
    assert_eq!(
        row.total("A", "B"),
        "A, B, 10.0000, 5.0000, 1000, 500.0000, 1000, 1000, 10.0000, 1000.0000"
    );
    let interval = Interval {
        at_ms: 0,
        records: 300,
        bytes: 3 * 1024 * 1024,
        new_records: 100,
        new_bytes: 1024 * 1024,
        elapsed: Duration::from_secs(2),
    };
    assert_eq!(
        ConsumeRow::interval(&interval, Duration::ZERO, "T"),
        "T, 0, 3.0000, 0.5000, 300, 50.0000, 0, 2000, 0.5000, 50.0000"
    );
}

#[test]
fn phases_are_a_table_and_nothing_when_unknown() {
    assert_eq!(phases(&report()), None);
    let produce = Some(Summary { avg: 10.0, ..Summary::default() });
    let acknowledge = Some(Summary { avg: 20.0, ..Summary::default() });
    let phases_us = PhasesReport { produce, acknowledge, ..PhasesReport::default() };
    let table = phases(&Report { phases_us, ..report() }).unwrap();
    let row = table.lines().nth(1).unwrap();
    assert_eq!(row.split_whitespace().collect::<Vec<_>>()[..2], ["produce", "0.010"]);
    assert!(row.contains("waiting in the client"), "{row}");
    let row = table.lines().nth(2).unwrap();
    assert_eq!(row.split_whitespace().collect::<Vec<_>>()[..2], ["acknowledge", "0.020"]);
    assert!(row.ends_with("until the producer has read the acknowledgement"), "{row}");
}

#[test]
fn time_outside_the_known_phases_is_named_on_a_foreign_cluster() {
    let average = |avg| Some(Summary { avg, ..Summary::default() });
    let phases_us = PhasesReport { produce: average(100.0), ..PhasesReport::default() };
    let foreign = Report { latency_us: average(350.0), phases_us, ..report() };
    assert!(
        unseparated(&foreign).unwrap().starts_with("The other 0.250 ms of the average are publish")
    );
    let phases_us = PhasesReport { publish: average(100.0), ..phases_us };
    assert_eq!(unseparated(&Report { phases_us, ..foreign }), None);
}

#[test]
fn the_cpu_line_says_whether_brokers_are_included() {
    assert_eq!(cpu(&report()), "CPU: 3.000 us per record (2.000 user, 1.000 system).");
    let unknown = Report { cpu_us_per_record: 0.0, ..report() };
    assert_eq!(cpu(&unknown), "CPU: this system does not report it.");
    let embedded = Report { cpu_includes_brokers: true, ..report() };
    assert!(cpu(&embedded).ends_with("the brokers in this process included."));
}
