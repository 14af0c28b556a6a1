//! Mistakes and mishaps end in one clear line and exit code 1.

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use crate::common::{Cluster, files, run, run_with_input};

/// Every command that goes to a cluster.
fn commands(bootstrap: &str) -> Vec<Vec<&str>> {
    vec![
        vec!["produce", "-t", "t", "-b", bootstrap],
        vec!["consume", "-t", "t", "-e", "-b", bootstrap],
        vec!["topics", "list", "-b", bootstrap],
        vec!["perf", "produce", "--num-records", "10", "--bootstrap-server", bootstrap],
        vec!["perf", "consume", "--num-records", "10", "--bootstrap-server", bootstrap],
        vec!["perf", "e2e", "--num-records", "10", "--bootstrap-server", bootstrap],
    ]
}

#[test]
fn a_refused_connection_is_named() {
    // Bound but not listening: nothing else can take the port during the test.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = socket.local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    for command in commands(&address) {
        let error = run_with_input(&command, b"x\n").failed();
        assert!(error.contains(&address) && error.contains("refused"), "{command:?}: {error}");
    }
}

/// Otherwise the figures of the whole run would be lost. These commands would name the unknown host if they began.
#[test]
fn an_unwritable_json_file_is_named_before_the_run() {
    let nowhere = "no-such-host.invalid:9092";
    for tool in ["produce", "consume", "e2e"] {
        let command = ["perf", tool, "--num-records", "10", "--bootstrap-server", nowhere];
        let error = run(&[&command[..], &["--json", "/dev/null/x.json"]].concat()).failed();
        assert!(error.contains("cannot write /dev/null/x.json"), "{tool}: {error}");
    }
}

#[test]
fn an_unknown_host_is_named() {
    for command in commands("no-such-host.invalid:9092") {
        let error = run_with_input(&command, b"x\n").failed();
        assert!(error.contains("cannot resolve 'no-such-host.invalid' ("), "{command:?}: {error}");
        assert!(
            error.contains("; check the name, the DNS of this machine"),
            "{command:?}: {error}"
        );
    }
}

#[test]
fn a_port_that_speaks_http_is_noticed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 512];
            // The client may have closed the connection; that is fine.
            let _ = stream.read(&mut request);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        }
    });
    for command in commands(&address) {
        let error = run_with_input(&command, b"x\n").failed();
        assert!(error.contains(&address) && error.contains("HTTP"), "{command:?}: {error}");
    }
}

#[test]
fn an_unknown_topic_is_named() {
    let cluster =
        Cluster::start(&["--brokers", "1", "--property", "auto.create.topics.enable=false"]);
    let bootstrap = cluster.bootstrap.as_str();
    let write = "create it with `curtail topics create nowhere`";
    let find = "`curtail topics list` prints the topics";
    for (command, advice) in [
        (&["produce", "-t", "nowhere", "-b", bootstrap, "-X", "max.block.ms=500"][..], write),
        (&["consume", "-t", "nowhere", "-b", bootstrap], find),
        (&["topics", "describe", "nowhere", "-b", bootstrap], find),
        (&["topics", "delete", "nowhere", "-b", bootstrap], find),
        (&["elect", "-t", "nowhere", "-b", bootstrap], find),
        (&["configs", "describe", "-t", "nowhere", "-b", bootstrap], find),
        (&["perf", "consume", "--topic", "nowhere", "--bootstrap-server", bootstrap], find),
        (
            &[
                "perf",
                "produce",
                "--topic",
                "nowhere",
                "--bootstrap-server",
                bootstrap,
                "--command-property",
                "max.block.ms=500",
            ],
            write,
        ),
    ] {
        let error = run_with_input(command, b"x\n").failed();
        assert_eq!(error, format!("topic 'nowhere' does not exist; {advice}"), "{command:?}");
    }
}

#[test]
fn a_record_too_large_is_refused_before_or_by_the_broker() {
    let cluster = Cluster::start(&["--brokers", "1"]);
    let bootstrap = cluster.bootstrap.as_str();
    let large = vec![b'x'; 2_000_000];
    let produce = ["produce", "-t", "t", "-b", bootstrap];
    let error = run_with_input(&produce, &large).failed();
    assert!(error.contains("larger than max.request.size=1048576"), "{error}");
    let patient = [&produce[..], &["-X", "max.request.size=3000000"]].concat();
    let error = run_with_input(&patient, &large).failed();
    assert!(error.contains("not written") && error.contains("max.message.bytes"), "{error}");
    let read = run(&["consume", "-t", "t", "-e", "-b", bootstrap]).ok();
    assert_eq!(read, "", "nothing was written");
    let perf = ["perf", "produce", "--bootstrap-server", bootstrap, "--num-records", "3"];
    let sizes = ["--record-size", "2000000", "--producer-props", "max.request.size=3000000"];
    let mut out = run(&[&perf[..], &sizes].concat());
    // The topic stays, also without a record.
    let note = "topic curtail-perf keeps the records of this run\n";
    out.err = out.err.strip_prefix(note).unwrap_or_else(|| panic!("{out:?}")).to_owned();
    let error = out.failed();
    assert!(error.starts_with("3 records were not acknowledged; the first: "), "{error}");
    assert!(error.contains("MESSAGE_TOO_LARGE"), "{error}");
}

#[test]
fn an_invalid_property_is_named_with_its_nearest() {
    let produce = |property: &str| run(&["produce", "-t", "t", "-X", property]).failed();
    assert_eq!(produce("linger=5"), "unknown property 'linger'; did you mean 'linger.ms'?");
    assert!(produce("linger.ms=soon").starts_with("linger.ms=soon: expected milliseconds"));
    assert!(produce("transaction.two.phase.commit.enable=true").contains("not supported yet"));
    assert!(produce("sasl.mechanism=KERBEROS").contains("SCRAM-SHA-512"));
    assert!(produce("fetch.min.bytes=1").contains("setting of consumers"));
    assert!(produce("max.in.flight.requests.per.connection=6").contains("enable.idempotence"));
    assert!(produce("bootstrap.servers=nowhere").contains("expected host:port"));
    assert!(produce("nonsense").contains("expected name=value"));
    let cluster = run(&["cluster", "--port", "0", "--property", "num.partition=1"]).failed();
    assert!(cluster.contains("num.partitions"), "{cluster}");
    let replicas = run(&["cluster", "--brokers", "1", "--replication-factor", "2"]).failed();
    assert!(replicas.contains("default.replication.factor"), "{replicas}");
    let perf = run(&["perf", "produce", "--producer-props", "acks=maybe"]).failed();
    assert!(perf.starts_with("acks=maybe: expected all, -1, 0 or 1"), "{perf}");
    let file = run(&["perf", "e2e", "--command-config", "no-such.properties"]).failed();
    assert!(file.contains("no-such.properties"), "{file}");
}

/// The connection closes at the first request. No command waits for its timeout, which is a minute.
#[test]
fn a_listener_that_requires_sasl_is_noticed() {
    let cluster = Cluster::start(&[
        "--brokers",
        "1",
        "--security-protocol",
        "SASL_PLAINTEXT",
        "--user",
        "alice:secret:SCRAM-SHA-512",
        "--property",
        "sasl.enabled.mechanisms=SCRAM-SHA-512",
    ]);
    let begun = Instant::now();
    for command in commands(&cluster.bootstrap) {
        let error = run_with_input(&command, b"x\n").failed();
        let expected = format!(
            "authentication with {} failed: this listener requires SASL, which security.protocol=PLAINTEXT lacks; \
             set it to SASL_PLAINTEXT, and sasl.mechanism to one of the listener's: SCRAM-SHA-512",
            cluster.bootstrap
        );
        assert_eq!(error, expected, "{command:?}");
    }
    assert!(begun.elapsed() < Duration::from_secs(55), "{:?}", begun.elapsed());
}

#[test]
fn a_missing_truststore_is_named_with_its_setting() {
    let cluster = Cluster::start(&["--brokers", "1"]);
    let tls = ["-X", "security.protocol=SSL", "-X", "ssl.truststore.location=/missing/ca.pem"];
    for command in [&["topics", "list"][..], &["consume", "-t", "t"], &["produce", "-t", "t"]] {
        let all = [command, &["-b", &cluster.bootstrap], &tls].concat();
        let error = run_with_input(&all, b"x\n").failed();
        let expected =
            "ssl.truststore.location=/missing/ca.pem: No such file or directory (os error 2)";
        assert_eq!(error, expected, "{command:?}");
    }
}

#[test]
fn options_that_make_no_run_are_refused() {
    for (arguments, word) in [
        (&["perf", "produce", "--num-records", "0"][..], "above 0"),
        (&["perf", "produce", "--throughput", "0"], "throughput"),
        (&["perf", "produce", "--num-records", "5", "--warmup-records", "5"], "warm-up"),
        (&["perf", "produce", "--payload-file", "no-such-file"], "no-such-file"),
        (&["perf", "produce", "--transactional-id", ""], "transactional.id"),
        (&["perf", "produce", "--transaction-duration-ms", "0"], "duration of a transaction"),
        (&["perf", "consume", "--date-format", "EEE"], "date pattern"),
        (&["perf", "e2e", "--producer-acks", "0"], "producer-acks"),
        (&["doctor", "--target-p99", "50 parsecs", "--throughput", "1MB/s"], "50 parsecs"),
        (&["doctor", "--target-p99", "50ms", "--throughput", "90 parsecs"], "90 parsecs"),
        (&["doctor", "--target-p99", "50ms", "--throughput", "1MB/s"], "--bootstrap-server"),
        (&["produce", "-t", "t", "-l", "no-such-file"], "no-such-file"),
        (&["consume"], "--topic"),
        (&["consume", "-t", "t", "-f", "%q"], "%q"),
        (&["consume", "-t", "t", "--group-protocol", "consumer"], "--group <GROUP>"),
        (&["consume", "-t", "t", "-G", "g", "--group-protocol", "mine"], "classic or consumer"),
        (
            &[
                "consume",
                "-t",
                "t",
                "-G",
                "g",
                "-X",
                "group.protocol=consumer",
                "-X",
                "session.timeout.ms=6000",
            ],
            "session.timeout.ms cannot be set with group.protocol=consumer",
        ),
        (&["nonsense"], "nonsense"),
    ] {
        let error = run(arguments).failed();
        assert!(error.contains(word), "{arguments:?}: {error}");
    }
}

/// Mistakes that only a cluster can notice, of an operator who knows Kafka's own tools.
#[test]
fn mistakes_are_explained_with_what_to_do() {
    let cluster = Cluster::start(&["--brokers", "1"]);
    let at = |command: &str| {
        let words: Vec<&str> = command.split(' ').chain(["-b", &cluster.bootstrap]).collect();
        run_with_input(&words, b"x\n")
    };
    at("topics create payments --partitions 2").ok();
    at("topics create single --partitions 1").ok();
    for (command, expected) in [
        (
            "topics create t --command-config retention.ms=1000",
            "retention.ms is a setting of topics; use `curtail topics create --config retention.ms=VALUE` or \
             `curtail configs alter --topic NAME --add retention.ms=VALUE`; --command-config is a file of client properties",
        ),
        ("elect -t paymets", "topic 'paymets' does not exist; did you mean 'payments'?"),
        (
            "elect -t payments:9",
            "payments-9: UNKNOWN_TOPIC_OR_PARTITION (3): No such partition as payments-9",
        ),
        (
            "consume -t payments -p 9",
            "topic 'payments' has no partition 9; its partitions are 0 to 1",
        ),
        ("produce -t single -p 9", "topic 'single' has no partition 9; its only partition is 0"),
        (
            "topics delete-records -t payments --before 9:0",
            "topic 'payments' has no partition 9; its partitions are 0 to 1",
        ),
        (
            "configs describe --broker 9",
            "broker 9: BROKER_ID_NOT_REGISTERED (102): it is not alive; the only live broker is 1",
        ),
        ("groups describe g", "group 'g' does not exist; `curtail groups list` prints the groups"),
        (
            "acls list",
            "ACLs: SECURITY_DISABLED (54): No Authorizer is configured; set authorizer.class.name on the brokers to use ACLs",
        ),
        (
            "consume -t payments --property print.key=true",
            "print.key is a property of Kafka's console tools; use --key-delimiter TEXT, or %k in --format",
        ),
        (
            "produce -t payments -X num.partitions=3",
            "num.partitions is a setting of brokers; use `curtail configs alter --all-brokers --add num.partitions=VALUE`, \
             or `curtail cluster --property num.partitions=VALUE`",
        ),
        ("produce -t payments -X linger.ms=-5", "linger.ms=-5: expected milliseconds, at least 0"),
        (
            "acls add --topic payments --principal alice --operation read",
            "invalid value 'alice' for --principal: expected a type and a name, for example User:alice; --help shows the usage",
        ),
    ] {
        assert_eq!(at(command).failed(), expected, "{command}");
    }
}

/// As in kafka-console-producer. A record with another key than intended may go to another partition, unnoticed.
#[test]
fn a_line_without_a_key_is_named_by_its_number() {
    let cluster = Cluster::start(&["--brokers", "1"]);
    let produce = |extra: &[&str], input: &[u8]| {
        let produce = ["produce", "-t", "t", "-b", &cluster.bootstrap, "-K", ":"];
        run_with_input(&[&produce[..], extra].concat(), input)
    };
    run(&["topics", "create", "t", "-b", &cluster.bootstrap]).ok();
    let end = "has no key separator ':', and was not sent; --optional-key sends such records without a key";
    assert_eq!(produce(&[], b"k:v\nhunter2\nl:w\n").failed(), format!("line 2 {end}"));
    assert_eq!(produce(&["-D", ";"], b"hunter2;").failed(), format!("record 1 {end}"));
    let consume = ["consume", "-t", "t", "-e", "-K", ":", "-b", &cluster.bootstrap];
    assert_eq!(run(&consume).ok(), "k:v\n", "the lines before are sent");
}

/// A silent start at the end would look as if the topic had no such records.
#[test]
fn consume_from_an_offset_outside_the_log_fails_with_the_range() {
    let cluster = Cluster::start(&["--brokers", "1", "--partitions", "2"]);
    let bootstrap = cluster.bootstrap.as_str();
    let produce = |partition: &str, lines: &[u8]| {
        run_with_input(&["produce", "-t", "t", "-p", partition, "-b", bootstrap], lines).ok();
    };
    let consume =
        |extra: &[&str]| run(&[&["consume", "-t", "t", "-e", "-b", bootstrap][..], extra].concat());
    produce("0", b"a\nb\nc\n");
    run(&["topics", "delete-records", "-t", "t", "--before", "0:1", "-b", bootstrap]).ok();
    produce("1", b"d\n");
    let advice = "use an offset of the log, or -X auto.offset.reset=earliest or latest to start at its \
                  beginning or end";
    for (arguments, outside) in [
        (&["-p", "0", "-o", "9"][..], "offset 9 is outside the log of t-0 (offsets 1 to 2)"),
        (&["-p", "0", "-o", "0"], "offset 0 is outside the log of t-0 (offsets 1 to 2)"),
        (&["-o", "4"], "offset 4 is outside the log of t-0 (offsets 1 to 2), t-1 (only offset 0)"),
        (&["-o", "2"], "offset 2 is outside the log of t-1 (only offset 0)"),
        (
            &["-p", "0", "-o", "9", "-X", "auto.offset.reset=none"],
            "offset 9 is outside the log of t-0 (offsets 1 to 2)",
        ),
    ] {
        let refused = consume(arguments);
        assert_eq!(refused.out, "", "{arguments:?}");
        assert_eq!(refused.failed(), format!("{outside}; {advice}"), "{arguments:?}");
    }
    // The end is the position of the next record.
    assert_eq!(consume(&["-p", "0", "-o", "3"]).ok(), "");
    assert_eq!(consume(&["-p", "0", "-o", "1"]).ok(), "b\nc\n");
    let chosen = |reset: &str| {
        let said = consume(&["-p", "0", "-o", "9", "-X", &format!("auto.offset.reset={reset}")]);
        let place = "offset 9 is outside the log of t-0 (offsets 1 to 2)";
        let note = format!("{place}; auto.offset.reset={reset} decides where to start there\n");
        assert_eq!(said.err, note);
        said.ok()
    };
    assert_eq!(chosen("earliest"), "b\nc\n");
    assert_eq!(chosen("latest"), "");
    run(&["topics", "delete-records", "-t", "t", "--before", "1:-1", "-b", bootstrap]).ok();
    let empty = consume(&["-p", "1", "-o", "0"]).failed();
    assert!(
        empty.starts_with("offset 0 is outside the log of t-1 (empty, next offset 1); "),
        "{empty}"
    );
}

/// Scripts read nothing from standard output, and people a sentence from standard error.
#[test]
fn a_table_without_rows_has_no_header() {
    let cluster = Cluster::start(&["--brokers", "1"]);
    let at = |command: &str| {
        let words: Vec<&str> = command.split(' ').chain(["-b", &cluster.bootstrap]).collect();
        run(&words)
    };
    for (command, said) in [
        ("topics list", "no topics"),
        ("topics describe", "no topics"),
        ("groups list", "no groups"),
        ("reassign list", "no reassignment is in progress"),
        (
            "configs describe --all-brokers",
            "no setting differs from Kafka's defaults; --all prints every setting",
        ),
    ] {
        let done = at(command);
        assert_eq!((done.code, &*done.out, done.err.trim_end()), (Some(0), "", said), "{command}");
    }
    assert_eq!(at("topics describe --json").ok(), "[]\n");
}

#[test]
fn an_occupied_port_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let error = run(&["cluster", "--brokers", "1", "--port", &port]).failed();
    assert!(error.contains(&port) && error.contains("choose another port"), "{error}");
}

#[test]
fn an_address_of_another_machine_is_named() {
    // Reserved for documentation (RFC 5737).
    let arguments =
        ["cluster", "--brokers", "1", "--port", "0", "--insecure", "--listen", "192.0.2.1"];
    let error = run(&arguments).failed();
    assert!(
        error.contains("192.0.2.1") && error.contains("(choose an address of this machine)"),
        "{error}"
    );
}

#[test]
fn an_invalid_topic_name_says_which_names_are_valid() {
    let cluster = Cluster::start(&["--brokers", "1"]);
    for command in ["produce", "consume"] {
        let run = run_with_input(&[command, "-t", "a b", "-b", &cluster.bootstrap], b"x\n");
        let error = run.failed();
        assert!(error.contains("'a b'") && error.contains("1 to 249 characters"), "{error}");
    }
}

#[test]
fn a_directory_that_cannot_be_used_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let error = run(&["cluster", "--brokers", "1", "--port", "0", "--data", path]).failed();
    assert!(error.contains(path), "{error}");
}

/// A segment on /dev/full takes nothing: the broker's disk is full.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_acknowledges_nothing() {
    let data = tempfile::tempdir().unwrap();
    let arguments = ["--brokers", "1", "--data", data.path().to_str().unwrap()];
    let cluster = Cluster::start(&arguments);
    run(&["topics", "create", "t", "-b", &cluster.bootstrap]).ok();
    cluster.stop("-TERM");
    for segment in files(data.path(), ".log").iter().filter(|p| p.to_string_lossy().contains("t-0"))
    {
        std::fs::remove_file(segment).unwrap();
        std::os::unix::fs::symlink("/dev/full", segment).unwrap();
    }
    let cluster = Cluster::start(&arguments);
    let produce = ["produce", "-t", "t", "-b", &cluster.bootstrap];
    let once = [&produce[..], &["-X", "retries=0"]].concat();
    let error = run_with_input(&once, b"lost\n").failed();
    assert!(error.contains("t-0: not acknowledged"), "{error}");
    assert!(error.contains("KAFKA_STORAGE_ERROR") && error.contains("disk full"), "{error}");
    let timeouts = ["-X", "request.timeout.ms=400", "-X", "delivery.timeout.ms=500"];
    let retried = [&produce[..], &timeouts].concat();
    let error = run_with_input(&retried, b"lost\n").failed();
    assert!(error.contains("t-0: not acknowledged"), "{error}");
    let read = run(&["consume", "-t", "t", "-e", "-b", &cluster.bootstrap]).ok();
    assert_eq!(read, "", "nothing was written");
}

/// A file may grow to a limit and no further, which is a full disk that once had room.
#[cfg(unix)]
#[test]
fn a_disk_that_fills_up_loses_nothing_that_was_acknowledged() {
    let data = tempfile::tempdir().unwrap();
    let mut command = Command::new("sh");
    // 512-byte blocks: 256 KiB a file. The signal that comes with the error is ignored.
    let script =
        r#"trap '' XFSZ; ulimit -f 512; exec "$0" cluster --brokers 1 --port 0 --data "$1""#;
    command.args(["-c", script, env!("CARGO_BIN_EXE_curtail"), data.path().to_str().unwrap()]);
    let cluster = Cluster::spawn(command);
    let line = "x".repeat(999) + "\n";
    let produce = [
        "produce",
        "-t",
        "t",
        "-b",
        &cluster.bootstrap,
        "-X",
        "request.timeout.ms=900",
        "-X",
        "delivery.timeout.ms=1000",
    ];
    assert_eq!(run_with_input(&produce, line.repeat(100).as_bytes()).ok(), "");
    let error = run_with_input(&produce, line.repeat(1000).as_bytes()).failed();
    assert!(error.contains("t-0: not acknowledged"), "{error}");
    drop(cluster);
    let arguments = ["--brokers", "1", "--data", data.path().to_str().unwrap()];
    let cluster = Cluster::start(&arguments);
    let read = run(&["consume", "-t", "t", "-e", "-b", &cluster.bootstrap]).ok();
    assert!(read.lines().count() >= 100, "{}", read.lines().count());
    assert!(read.lines().all(|l| l == line.trim_end()));
}
