//! `curtail proxy`, and `curtail fault` with it.

use std::{
    fs,
    io::Write as _,
    net::{TcpListener, TcpStream},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    common::{run, run_with_input},
    faults::Ephemeral,
};

fn started() -> (Ephemeral, Ephemeral) {
    let cluster = Ephemeral::start(&["--brokers", "2"]);
    let topic = ["topics", "create", "--topic", "t", "-b", &cluster.bootstrap];
    run(&topic).ok();
    let proxy = Ephemeral::proxy(&cluster.bootstrap, &[]);
    (cluster, proxy)
}

#[test]
fn a_proxy_has_the_commands_of_a_cluster() {
    let (cluster, proxy) = started();
    assert_eq!(proxy.produce(&[]).code, Some(0));
    let consumed = run(&["consume", "-t", "t", "-o", "beginning", "-e", "-b", &proxy.bootstrap]);
    assert_eq!(consumed.ok(), "x\n");
    let brokers: Value = serde_json::from_str(&proxy.fault(&["brokers", "--json"]).ok()).unwrap();
    let brokers = brokers.as_array().unwrap();
    assert_eq!(brokers.len(), 2);
    assert!(brokers.iter().all(|broker| broker["live"] == true), "{brokers:?}");
    assert!(
        brokers
            .iter()
            .all(|broker| !cluster.bootstrap.contains(broker["address"].as_str().unwrap()))
    );
    assert_eq!(proxy.get("/readyz").0, 200);
    assert!(proxy.get("/metrics").1.contains("api=\"Produce\"} 1\n"));

    let error = ["add", "error", "--api", "Produce", "--topic", "t", "--times", "1"];
    let error = [&error[..], &["--code", "INVALID_TOPIC_EXCEPTION", "--name", "once"]].concat();
    assert_eq!(proxy.fault(&error).ok(), "once\n");
    let refused = proxy.produce(&[]);
    assert!(refused.err.contains("INVALID_TOPIC_EXCEPTION"), "{refused:?}");
    assert_eq!(proxy.produce(&[]).code, Some(0));
    let listed: Value = serde_json::from_str(&proxy.fault(&["list", "--json"]).ok()).unwrap();
    assert_eq!(listed[0]["hits"], 1);
    // The cluster has no fault.
    assert_eq!(cluster.fault(&["list"]).ok(), "");

    for (arguments, reason) in [
        (&["kill", "1"][..], "a proxy cannot do this to a broker"),
        (&["expire-fetch-sessions", "1"], "a proxy cannot do this to a broker"),
        (&["move-leader", "t", "0", "1"], "a proxy cannot do this to a broker"),
        (&["expire-producer-ids", "t", "0"], "a proxy cannot do this to a broker"),
        (&["move-coordinator", "1", "--group", "g"], "a proxy cannot do this to a broker"),
        (&["add", "freeze", "1"], "freeze: a proxy cannot do this to a broker; cut-clients"),
        (&["add", "silence", "--from", "brokers"], "a proxy sees the requests of clients only"),
        (&["add", "silence", "--broker", "7"], "the cluster has named no broker 7 (known: 1, 2)"),
    ] {
        let error = proxy.fault(arguments).failed();
        assert!(error.contains(reason), "{arguments:?}: {error}");
    }
    let (status, _) = proxy.send("POST", "/v1/brokers/1/kill", "");
    assert_eq!(status, 501);
    assert!(proxy.end().ends_with("stopped\n"));
    assert_eq!(cluster.produce(&[]).code, Some(0));
}

/// Runs the script. Returns whether its fault lasted while a record was sent.
fn runs_for_a_record(proxy: &Ephemeral, script: &str) -> bool {
    std::thread::scope(|scope| {
        let running = scope.spawn(|| proxy.fault(&["run", script]).ok());
        let listed =
            || -> Value { serde_json::from_str(&proxy.fault(&["list", "--json"]).ok()).unwrap() };
        let mut first = json!([]);
        let begun = Instant::now();
        while first == json!([]) && !running.is_finished() {
            assert!(begun.elapsed() < Duration::from_secs(30));
            first = listed();
        }
        if first == json!([]) {
            return false;
        }
        assert_eq!(first[0]["seed"], 7);
        let sent = Instant::now();
        assert_eq!(proxy.produce(&[]).code, Some(0));
        let took = sent.elapsed();
        let lasted = listed() != json!([]);
        assert!(!lasted || took >= Duration::from_millis(400), "{took:?}");
        lasted
    })
}

#[test]
fn a_script_runs_on_a_proxy() {
    let (_cluster, proxy) = started();
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("script.yaml");
    let steps = "seed: 7\nsteps:\n- at: 0s\n  name: slow\n  \
                 fault: {kind: delay, requests: {api: Produce}, time: 400ms}\n  for: 2s\n";
    fs::write(&script, steps).unwrap();
    let script = script.to_str().unwrap();
    // On a busy machine the fault may end before the record is sent.
    let begun = Instant::now();
    while !runs_for_a_record(&proxy, script) {
        assert!(begun.elapsed() < Duration::from_secs(60));
    }
    assert_eq!(proxy.fault(&["list"]).ok(), "");
}

/// The reason of each closed connection.
#[test]
fn the_trace_has_requests_and_closed_connections() {
    let (cluster, _) = started();
    let proxy = Ephemeral::proxy(&cluster.bootstrap, &["--trace"]);
    assert_eq!(proxy.produce(&[]).code, Some(0));
    let mut socket = TcpStream::connect(&proxy.bootstrap).unwrap();
    socket.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let closed = std::io::Read::read(&mut socket, &mut [0; 16]);
    assert!(matches!(closed, Ok(0) | Err(_)), "{closed:?}");
    let said = proxy.end();
    assert!(said.contains("api=Produce version="), "{said}");
    assert!(said.contains("closed: from the client: "), "{said}");
}

#[test]
fn wrong_arguments_of_a_proxy_are_one_line() {
    let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken_port = taken.local_addr().unwrap().port().to_string();
    for (arguments, reason) in [
        (&["--control", "0"][..], "--to"),
        (&["--to", "kafka"], "--to: 'kafka' is no address of a broker; use HOST:PORT"),
        (&["--to", &unused], "start the cluster first, or correct --to"),
        (&["--to", &unused, "--listen", &taken_port], "choose another port with --listen"),
        (&["--to", &unused, "--listen", "10.0.0.1:9"], "add --insecure"),
        (&["--to", &unused, "--listen", "kafka:9"], "expected PORT or ADDRESS:PORT"),
        (&["--to", &unused, "-X", "linger.mss=1"], "unknown property 'linger.mss'"),
        (&["--to", &unused, "-F", "/no/file"], "cannot read properties from /no/file"),
    ] {
        let error = run(&[&["proxy"], arguments].concat()).failed();
        assert!(error.contains(reason), "{arguments:?}: {error}");
    }
    let help = run_with_input(&["proxy", "--help"], b"").ok();
    assert!(help.contains("Examples:\n  curtail proxy --to kafka:9092 --control 8642"), "{help}");
}
