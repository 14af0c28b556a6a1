//! `curtail cluster --ephemeral --json`, its control endpoint, and `curtail fault`.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::common::{Run, curtail, run, run_with_input};

/// A cluster or a proxy as another program starts it.
pub(crate) struct Ephemeral {
    child: Child,
    pub(crate) bootstrap: String,
    pub(crate) control: String,
}

impl Ephemeral {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_with(Stdio::piped(), arguments)
    }

    fn start_with(input: Stdio, arguments: &[&str]) -> Self {
        Self::start_command(input, &[&["cluster"], arguments].concat())
    }

    /// Starts a proxy in front of a cluster.
    pub(crate) fn proxy(to: &str, arguments: &[&str]) -> Self {
        Self::start_command(Stdio::piped(), &[&["proxy", "--to", to], arguments].concat())
    }

    fn start_command(input: Stdio, arguments: &[&str]) -> Self {
        let mut command = curtail();
        command.args(arguments).args(["--ephemeral", "--json"]);
        command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let started: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(started["pid"], child.id());
        let text = |name: &str| started[name].as_str().unwrap().to_owned();
        Self { child, bootstrap: text("bootstrap_servers"), control: text("control") }
    }

    pub(crate) fn fault(&self, arguments: &[&str]) -> Run {
        let mut command = vec!["fault"];
        command.extend(arguments);
        command.extend(["--control", &self.control]);
        run(&command)
    }

    /// Sends a request and returns the status and the body.
    fn http(&self, request: &str) -> (u16, String) {
        let mut socket = TcpStream::connect(self.control.strip_prefix("http://").unwrap()).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        self.http(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
    }

    pub(crate) fn send(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let (status, answer) = self.http(&format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        ));
        (status, serde_json::from_str(&answer).unwrap())
    }

    pub(crate) fn produce(&self, more: &[&str]) -> Run {
        let command = ["produce", "-t", "t", "-b", &self.bootstrap];
        run_with_input(&[&command[..], more].concat(), b"x\n")
    }

    /// Closes the standard input, waits for the end and returns standard error.
    pub(crate) fn end(mut self) -> String {
        drop(self.child.stdin.take());
        let mut said = String::new();
        self.child.stderr.as_mut().unwrap().read_to_string(&mut said).unwrap();
        assert!(self.child.wait().unwrap().success(), "{said}");
        said
    }
}

impl Drop for Ephemeral {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn an_ephemeral_cluster_ends_with_its_input() {
    let cluster = Ephemeral::start(&["--brokers", "1"]);
    assert_eq!(cluster.produce(&[]).code, Some(0));
    let control = cluster.control.clone();
    assert!(cluster.end().ends_with("stopped\n"));
    let error = run(&["fault", "list", "--control", &control]).failed();
    assert!(
        error.contains("cannot reach") && error.contains("curtail cluster --control"),
        "{error}"
    );
}

/// The parent's end is noticed also if the input is not a pipe.
#[cfg(target_os = "linux")]
#[test]
fn an_ephemeral_cluster_ends_with_its_parent() {
    // The shell prints the line, and ends when its input does.
    let script = r#""$0" cluster --ephemeral --json --brokers 1 < /dev/null & read line"#;
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_curtail")]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut shell = command.spawn().unwrap();
    let mut output = BufReader::new(shell.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    let started: Value = serde_json::from_str(&line).unwrap();
    let process = format!("/proc/{}", started["pid"]);
    assert!(fs::exists(&process).unwrap());
    drop(shell.stdin.take());
    shell.wait().unwrap();
    // The output ends with the last process that has it.
    assert_eq!(output.read_line(&mut line).unwrap(), 0);
    let mut said = String::new();
    shell.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.ends_with("stopped\n"), "{said}");
}

/// Some CI runners give such an input to their jobs. The cluster watches the parent process.
#[cfg(target_os = "linux")]
#[test]
fn an_ephemeral_cluster_ignores_an_input_that_ended_before_its_start() {
    let (input, other_end) = std::io::pipe().unwrap();
    drop(other_end);
    let mut cluster = Ephemeral::start_with(input.into(), &["--brokers", "1"]);
    assert_eq!(cluster.produce(&[]).code, Some(0));
    assert_eq!(cluster.child.try_wait().unwrap(), None);
}

#[test]
fn faults_are_added_listed_and_lifted() {
    let cluster = Ephemeral::start(&["--brokers", "1"]);
    assert_eq!(cluster.produce(&[]).code, Some(0));
    let error = ["add", "error", "--api", "Produce", "--code", "INVALID_TOPIC_EXCEPTION"];
    let limited = ["--topic", "t", "--times", "1", "--name", "once", "--seed", "7"];
    assert_eq!(cluster.fault(&[&error[..], &limited].concat()).ok(), "once\n");
    let refused = cluster.produce(&[]);
    assert!(refused.err.contains("INVALID_TOPIC_EXCEPTION"), "{refused:?}");
    assert_eq!(cluster.produce(&[]).code, Some(0));
    let listed: Value = serde_json::from_str(&cluster.fault(&["list", "--json"]).ok()).unwrap();
    assert_eq!(
        listed,
        json!([{"name": "once", "seed": 7, "hits": 1, "fault": {
            "kind": "error", "requests": {"api": "Produce", "topic": "t", "times": 1},
            "code": "INVALID_TOPIC_EXCEPTION",
        }}])
    );
    let delay = ["add", "delay", "--api", "Produce", "--time", "uniform(300ms, 400ms)"];
    assert_eq!(cluster.fault(&delay).ok(), "delay-1\n");
    let table = cluster.fault(&["list"]).ok();
    let lines: Vec<_> = table.lines().collect();
    assert!(lines[0].starts_with("NAME     KIND   HITS  SEED"), "{table}");
    assert!(lines[1].starts_with("once     error  1     7"), "{table}");
    assert!(lines[2].ends_with(r#"{"requests":{"api":"Produce"},"time":"uniform(300ms, 400ms)"}"#));
    let begun = Instant::now();
    assert_eq!(cluster.produce(&[]).code, Some(0));
    assert!(begun.elapsed() >= Duration::from_millis(300));
    cluster.fault(&["lift", "once"]).ok();
    let gone = cluster.fault(&["lift", "once", "no/name"]).failed();
    assert_eq!(gone, "no fault is named 'once'; 'no/name' has characters that no name has");
    let lifted = cluster.fault(&["lift", "--all"]);
    assert_eq!((lifted.code, lifted.err.as_str()), (Some(0), "1 fault lifted\n"));
    assert_eq!(cluster.fault(&["list"]).ok(), "");
    for (arguments, reason) in [
        (
            &["add", "error", "--api", "DescribeAcls", "--code", "NONE"][..],
            "cannot be injected, only of Produce",
        ),
        (&["add", "error", "--api", "Produce", "--code", "SAD"], "'SAD' is no error code"),
        (&["add", "delay", "--time", "20"], "'20' is no time"),
        (&["add", "delay", "--time", "1ms", "--from", "me"], "unknown variant `me`"),
        (&["add", "freeze", "4"], "the cluster has no broker 4"),
        (&["add", "kafka-version", "2.9"], "'2.9' is no known Kafka release"),
        (&["kill", "4"], "the cluster has no broker 4"),
        (&["move-leader", "t", "9", "1"], "no partition t-9"),
        (&["expire-producer-ids", "t", "9"], "no partition t-9"),
        (&["move-coordinator", "1", "--group", "g"], "does not exist until a client asks"),
        (&["add", "throttle", "0"], "bytes_per_second: 0 transfers nothing"),
        (&["add", "throttle", "9", "--direction", "up"], "unknown variant `up`"),
        (&["add", "cut-clients", "--broker", "4"], "the cluster has no broker 4"),
        (&["add", "slow-disk", "1", "--time", "1"], "'1' is no time"),
        (&["add", "full-disk", "4"], "the cluster has no broker 4"),
        (&["add", "delay", "--time", "1ms", "--topic", "t"], "requests.api: a topic needs an API"),
        (&["add", "corrupt", "--api", "Produce"], "this fault concerns Fetch, not Produce"),
        (&["add", "wrong-leader", "--api", "Fetch"], "leader: nothing is wrong; give leader,"),
        (&["add", "wrong-leader", "--address", "kafka:9"], "'kafka:9' is no address; use IP:PORT"),
    ] {
        let error = cluster.fault(arguments).failed();
        assert!(error.contains(reason), "{arguments:?}: {error}");
    }
}

/// Every flag arrives in its field.
#[test]
fn flags_are_the_fields_of_a_fault() {
    let cluster = Ephemeral::start(&["--brokers", "2"]);
    let selector = ["--broker", "1", "--client-id", "x*"];
    let mut expected = Vec::new();
    let mut add = |arguments: &[&str], fault: Value| {
        cluster.fault(&[&["add"], arguments].concat()).ok();
        expected.push(fault);
    };
    add(
        &[&["throttle", "1000", "--from", "all", "--direction", "in"][..], &selector].concat(),
        json!({
            "kind": "throttle", "broker": 1, "client_id": "x*", "from": "all", "direction": "in",
            "bytes_per_second": 1000,
        }),
    );
    add(
        &[&["cut-clients", "--direction", "out"][..], &selector].concat(),
        json!({"kind": "cut-clients", "broker": 1, "client_id": "x*", "direction": "out"}),
    );
    add(
        &["slow-disk", "2", "--time", "uniform(1ms, 2ms)"],
        json!({"kind": "slow-disk", "broker": 2, "time": "uniform(1ms, 2ms)"}),
    );
    add(&["full-disk", "2"], json!({"kind": "full-disk", "broker": 2}));
    let part = ["--topic", "t", "--partition", "0"];
    let requests = json!({"api": "Fetch", "topic": "t", "partition": 0});
    add(
        &[&["delay", "--time", "1ms", "--api", "Fetch"][..], &part].concat(),
        json!({"kind": "delay", "requests": requests, "time": "1ms"}),
    );
    let requests = json!({"topic": "t", "partition": 0});
    add(&[&["corrupt"][..], &part].concat(), json!({"kind": "corrupt", "requests": requests}));
    add(
        &["wrong-leader", "--leader", "2", "--epoch-shift", "-1", "--address", "127.0.0.1:9"],
        json!({
            "kind": "wrong-leader", "requests": {}, "leader": 2, "epoch_shift": -1,
            "address": "127.0.0.1:9",
        }),
    );
    let listed: Value = serde_json::from_str(&cluster.fault(&["list", "--json"]).ok()).unwrap();
    let listed = listed.as_array().unwrap().iter().map(|fault| &fault["fault"]);
    assert_eq!(listed.collect::<Vec<_>>(), expected.iter().collect::<Vec<_>>());
}

#[test]
fn a_cluster_must_be_named() {
    let error = run(&["fault", "list"]).failed();
    assert!(error.contains("--control PORT or CURTAIL_CONTROL"), "{error}");
    let error = run(&["cluster", "--control", "0.0.0.0:0"]).failed();
    assert!(error.contains("anyone who reaches it can kill brokers"), "{error}");
}

#[test]
fn brokers_are_killed_and_restarted_and_leaders_move() {
    let cluster = Ephemeral::start(&["--brokers", "3"]);
    run(&["topics", "create", "t", "-b", &cluster.bootstrap, "--replication-factor", "3"]).ok();
    for to in ["1", "2"] {
        cluster.fault(&["move-leader", "t", "0", to]).ok();
        let described = run(&["topics", "describe", "t", "--json", "-b", &cluster.bootstrap]).ok();
        assert!(described.contains(&format!("\"leader\":{to}")), "{described}");
    }
    cluster.fault(&["kill", "2"]).ok();
    let error = cluster.fault(&["kill", "2"]).failed();
    assert_eq!(error, "broker 2 is not running");
    assert_eq!(cluster.get("/readyz").0, 503);
    assert_eq!(cluster.produce(&[]).code, Some(0), "another broker leads");
    cluster.fault(&["restart", "2"]).ok();
    let error = cluster.fault(&["restart", "2"]).failed();
    assert_eq!(error, "broker 2 is already running");
    cluster.fault(&["stop", "1"]).ok();
    let brokers = cluster.fault(&["brokers"]).ok();
    let states: Vec<_> =
        brokers.lines().skip(1).map(|line| line.split_whitespace().nth(2).unwrap()).collect();
    assert_eq!(states, ["false", "true", "true"], "{brokers}");
    cluster.fault(&["restart", "1"]).ok();
    assert_eq!(cluster.produce(&[]).code, Some(0));
}

#[test]
fn a_script_runs_its_steps_and_lifts_its_faults() {
    let cluster = Ephemeral::start(&["--brokers", "1"]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("day.yaml");
    let path = file.to_str().unwrap();
    fs::write(
        &file,
        "seed: 3
steps:
- {at: 0s, name: slow, fault: {kind: delay, requests: {api: Produce, rate: 0.5}, time: exponential(1ms)}}
- {at: 50ms, fault: {kind: silence, requests: {api: Heartbeat}}, for: 50ms}
- {at: 150ms, kill: 1}
- {at: 200ms, restart: 1}
",
    )
    .unwrap();
    let printed = cluster.fault(&["run", path]).ok();
    let steps: Vec<_> = printed.lines().map(|line| line.split_once("s  ").unwrap().1).collect();
    assert_eq!(
        steps,
        ["delay slow (seed 3)", "silence step-2 (seed 4)", "lift step-2", "kill 1", "restart 1"]
    );
    assert_eq!(cluster.fault(&["list"]).ok(), "", "its faults are lifted");
    // A step that fails ends the run, and lifts as well.
    fs::write(
        &file,
        "steps:
- {at: 0s, fault: {kind: freeze, broker: 1}}
- {at: 0s, kill: 7}
",
    )
    .unwrap();
    assert_eq!(cluster.fault(&["run", path]).failed(), "the cluster has no broker 7");
    assert_eq!(cluster.fault(&["list"]).ok(), "");
    fs::write(&file, "steps: [{at: 0s}]").unwrap();
    let error = cluster.fault(&["run", path]).failed();
    assert!(error.starts_with(&format!("{path}: step 1: an action is missing")), "{error}");
    assert_eq!(cluster.produce(&[]).code, Some(0));
}

/// A freeze ends with the process of its broker.
#[test]
fn a_script_lifts_a_freeze_that_ended_with_its_broker() {
    let cluster = Ephemeral::start(&["--brokers", "1"]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("freeze.yaml");
    fs::write(
        &file,
        "steps:
- {at: 0s, name: ice, fault: {kind: freeze, broker: 1}, for: 20ms}
- {at: 0s, name: snow, fault: {kind: freeze, broker: 1}}
- {at: 10ms, kill: 1}
- {at: 30ms, restart: 1}
",
    )
    .unwrap();
    let printed = cluster.fault(&["run", file.to_str().unwrap()]).ok();
    let steps: Vec<_> = printed.lines().map(|line| line.split_once("s  ").unwrap().1).collect();
    assert_eq!(steps.len(), 5, "{printed}");
    assert_eq!(steps[2..], ["kill 1", "lift ice", "restart 1"], "{printed}");
    assert_eq!(cluster.fault(&["lift", "ice"]).failed(), "no fault is named 'ice'");
}

#[test]
fn a_signal_ends_a_script_and_its_faults() {
    let cluster = Ephemeral::start(&["--brokers", "1"]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("long.yaml");
    let steps = "steps:
- {at: 0s, name: slow, fault: {kind: delay, time: 1ms}}
- {at: 600s, kill: 1}
";
    fs::write(&file, steps).unwrap();
    for signal in ["INT", "TERM", "HUP"] {
        let mut command = curtail();
        command.args(["fault", "run", file.to_str().unwrap(), "--control", &cluster.control]);
        let mut script = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(script.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("delay slow"), "{line}");
        let pid = script.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
        assert!(script.wait().unwrap().success(), "{signal}");
        assert_eq!(cluster.fault(&["list"]).ok(), "", "{signal}");
    }
    assert_eq!(cluster.produce(&[]).code, Some(0), "the broker was not killed");
}

#[test]
fn the_endpoint_answers_in_http_and_refuses_pages_of_browsers() {
    let cluster = Ephemeral::start(&["--brokers", "1", "--trace"]);
    assert_eq!(cluster.get("/healthz"), (200, "ok\n".into()));
    let (status, body) = cluster.get("/readyz");
    assert_eq!(status, 200);
    let address = cluster.bootstrap.as_str();
    let broker = json!({"id": 1, "address": address, "running": true, "live": true});
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap(), json!({"brokers": [broker]}));
    let fault = r#"{"name":"a","seed":1,"fault":{"kind":"cut-off","broker":1}}"#;
    let active =
        json!({"name": "a", "seed": 1, "hits": 0, "fault": {"kind": "cut-off", "broker": 1}});
    assert_eq!(cluster.send("POST", "/v1/faults", fault), (201, active.clone()));
    assert_eq!(cluster.send("GET", "/v1/faults/a", ""), (200, active));
    for (method, path, body, status, reason) in [
        ("POST", "/v1/faults", fault, 409, "a fault named 'a' exists"),
        ("POST", "/v1/faults", "{", 400, "the body is not as expected"),
        ("POST", "/v1/faults", r#"{"fault":{"kind":"melt"}}"#, 400, "unknown variant `melt`"),
        ("POST", "/v1/faults", r#"{"fault":{"kind":"freeze","broker":2}}"#, 400, "no broker 2"),
        ("GET", "/v1/faults/b", "", 404, "no fault is named 'b'"),
        ("GET", "/v2", "", 404, "no such path"),
        ("PUT", "/v1/faults", "{}", 405, "use GET, POST, DELETE"),
        ("PUT", "/v1/topics/t/partitions/0/leader", r#"{"broker":1}"#, 404, "no partition t-0"),
    ] {
        let (answered, refusal) = cluster.send(method, path, body);
        let error = refusal["error"].as_str().unwrap();
        assert_eq!(answered, status, "{method} {path}: {error}");
        assert!(error.contains(reason) && !error.contains('\n'), "{method} {path}: {error}");
    }
    assert_eq!(cluster.send("DELETE", "/v1/faults/a", ""), (200, json!({"lifted": 1})));
    let large = " ".repeat(70_000);
    assert_eq!(cluster.send("POST", "/v1/faults", &large).0, 413);
    for (headers, status) in [
        ("Host: localhost\r\nOrigin: http://evil.example", 403),
        ("Host: localhost\r\nOrigin: null", 403),
        ("Host: evil.example", 403),
        ("Host: localhost", 415),
    ] {
        let request = format!(
            "POST /v1/faults HTTP/1.1\r\n{headers}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{fault}",
            fault.len()
        );
        assert_eq!(cluster.http(&request).0, status, "{headers}");
    }
    assert_eq!(cluster.fault(&["list"]).ok(), "");
    assert_eq!(cluster.produce(&["-X", "client.id=a\"b"]).code, Some(0));
    let (_, metrics) = cluster.get("/metrics");
    let produced = r#"curtail_requests_total{client_id="a\"b",api="Produce"} 1"#;
    assert!(metrics.lines().any(|line| line == produced), "{metrics}");
    assert!(metrics.contains("curtail_broker_running{broker=\"1\"} 1\n"), "{metrics}");
    let said = cluster.end();
    let traced = |line: &&str| line.contains(r#"client="a\"b""#) && line.contains("api=Produce");
    assert_eq!(said.lines().filter(traced).count(), 1, "{said}");
}

/// A client that negotiates versions works with those of old releases.
#[test]
fn clients_work_with_the_versions_of_an_old_kafka() {
    let cluster = Ephemeral::start(&["--brokers", "1"]);
    assert_eq!(cluster.produce(&[]).code, Some(0));
    for release in ["0.11", "2.3", "2.8", "3.9"] {
        let name = cluster.fault(&["add", "kafka-version", release]).ok();
        let produced = cluster.produce(&[]);
        assert_eq!(produced.code, Some(0), "{release}: {produced:?}");
        let consume =
            ["consume", "-t", "t", "-o", "beginning", "-c", "1", "-b", &cluster.bootstrap];
        assert_eq!(run(&consume).ok(), "x\n", "{release}");
        cluster.fault(&["lift", name.trim()]).ok();
    }
}
