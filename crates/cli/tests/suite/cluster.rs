//! `curtail cluster` on a directory, and names that do not exist.

use std::{
    fs,
    process::{Command, Stdio},
};

use crate::common::{Cluster, curtail, run, run_with_input};

#[test]
fn a_second_cluster_in_a_directory_names_the_process_of_the_first() {
    let data = tempfile::tempdir().unwrap();
    let path = data.path().to_str().unwrap();
    let arguments = ["--brokers", "1", "--data", path];
    let second = ["cluster", "--port", "0", "--brokers", "1", "--data", path];
    let cluster = Cluster::start(&arguments);
    run_with_input(&["produce", "-t", "t", "-b", &cluster.bootstrap], b"kept\n").ok();
    let pid = fs::read_to_string(data.path().join(".lock")).unwrap();
    let error = run(&second).failed();
    let process = format!("in use by another cluster (process {})", pid.trim());
    assert!(error.contains(path) && error.contains(&process), "{error}");
    // The lock ends with the process, even after SIGKILL.
    let killed = cluster.stop("-KILL");
    assert_eq!(killed.code, None);
    let cluster = Cluster::start(&arguments);
    assert_eq!(run(&["consume", "-t", "t", "-e", "-b", &cluster.bootstrap]).ok(), "kept\n");
}

#[test]
fn a_directory_is_used_with_the_brokers_it_was_made_with() {
    let data = tempfile::tempdir().unwrap();
    let path = data.path().to_str().unwrap();
    drop(Cluster::start(&["--brokers", "2", "--data", path]));
    let wrong = ["cluster", "--port", "0", "--brokers", "1", "--data", path];
    let error = run(&wrong).failed();
    assert!(
        error.contains("made with 2 broker(s), not 1") && error.contains("--resize"),
        "{error}"
    );
    let cluster = Cluster::start(&["--data", path]);
    assert_eq!(cluster.bootstrap.split(',').count(), 2);
    drop(cluster);
    let cluster = Cluster::start(&["--data", path, "--brokers", "3", "--resize"]);
    assert_eq!(cluster.bootstrap.split(',').count(), 3);
}

#[test]
fn lost_metadata_refuses_the_start_in_one_line() {
    let data = tempfile::tempdir().unwrap();
    let path = data.path().to_str().unwrap();
    let cluster = Cluster::start(&["--brokers", "1", "--data", path]);
    run_with_input(&["produce", "-t", "t", "-b", &cluster.bootstrap], b"kept\n").ok();
    cluster.stop("-TERM");
    fs::remove_file(data.path().join("cluster-metadata.jsonl")).unwrap();
    let error = run(&["cluster", "--port", "0", "--data", path]).failed();
    assert!(error.contains("broker-1/t-0") && error.contains("restore that file"), "{error}");
    assert!(data.path().join("broker-1/t-0").exists());
}

#[test]
fn users_of_the_environment_log_in_and_flags_are_warned_of() {
    let login = "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"alice\" password=\"secret\";";
    let jaas = format!("sasl.jaas.config={login}");
    let client = [
        "-X",
        "security.protocol=SASL_PLAINTEXT",
        "-X",
        "sasl.mechanism=PLAIN",
        "-X",
        jaas.as_str(),
    ];
    let secured =
        ["cluster", "--port", "0", "--brokers", "1", "--security-protocol", "SASL_PLAINTEXT"];
    let mut command = curtail();
    command.args(secured).env("CURTAIL_USERS", "# mine\nalice:secret\n");
    let cluster = Cluster::spawn(command);
    run(&[&["topics", "list", "-b", &cluster.bootstrap][..], &client].concat()).ok();
    assert!(!cluster.stop("-TERM").err.contains("--user"), "nothing to warn of");
    let mut command = curtail();
    command.args(secured).args(["--user", "alice:secret"]);
    let stopped = Cluster::spawn(command).stop("-TERM");
    assert!(stopped.err.contains("use --user-file FILE or CURTAIL_USERS"), "{stopped:?}");
    let mut command = curtail();
    command.args(secured).env("CURTAIL_USERS", "alice").stdout(Stdio::null());
    let error = String::from_utf8(command.output().unwrap().stderr).unwrap();
    assert!(error.contains("CURTAIL_USERS, line 1: expected NAME:PASSWORD"), "{error}");
}

/// The names of the flags are those of Kafka's tools, which read the same files.
#[test]
fn a_secure_cluster_writes_the_properties_of_each_user() {
    use std::os::unix::fs::PermissionsExt as _;
    let data = tempfile::tempdir().unwrap();
    let path = fs::canonicalize(data.path()).unwrap();
    let file = |name: &str| path.join(name).to_str().unwrap().to_owned();
    let common = ["--brokers", "1", "--data", data.path().to_str().unwrap()];
    let secured = ["--security-protocol", "SASL_SSL"];
    let users = ["--user", r#"alice:p"\ w="#, "--user", "bob/x:secret:PLAIN"];
    for _ in 0..2 {
        let cluster = Cluster::start(&[&common[..], &secured, &users].concat());
        let mut notes = String::new();
        for (user, name) in
            [("alice", "client-alice.properties"), ("bob/x", "client-bob_x.properties")]
        {
            let file = file(name);
            run(&["topics", "list", "--command-config", &file]).ok();
            let mode = fs::metadata(&file).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{file}");
            notes += &format!("clients connect as user '{user}' with --command-config {file}\n");
        }
        let said = cluster.stop("-TERM").err;
        assert!(said.contains(&notes) && !said.contains("clients need"), "{said}");
    }
    let cluster = Cluster::start(&[&common[..], &["--security-protocol", "SSL"]].concat());
    let file = file("client.properties");
    run(&["topics", "list", "--command-config", &file]).ok();
    let note = format!("clients connect with --command-config {file}\n");
    assert!(cluster.stop("-TERM").err.contains(&note));
    let plain = Cluster::start(&["--brokers", "1"]).stop("-TERM").err;
    assert!(!plain.contains("--command-config"), "{plain}");
}

/// Java reads the file as ISO 8859-1, and its value as a JAAS configuration: both have their own escapes.
#[test]
fn kafkas_tools_read_the_properties_of_a_secure_cluster() {
    let name = "kafkas_tools_read_the_properties_of_a_secure_cluster";
    let Some(toolchain) = curtail_apache::require_or_skip(name) else { return };
    let data = tempfile::tempdir().unwrap();
    let common = ["--brokers", "1", "--data", data.path().to_str().unwrap()];
    let secured = ["--security-protocol", "SASL_SSL", "--user", "alice:p\"\\ w\u{e9}\u{1f600};"];
    let cluster = Cluster::start(&[&common[..], &secured].concat());
    let file = data.path().join("client-alice.properties");
    let file = file.to_str().unwrap();
    run(&["topics", "create", "t", "--command-config", file]).ok();
    let list = ["--bootstrap-server", &cluster.bootstrap, "--command-config", file, "--list"];
    let tool = toolchain.tool("org.apache.kafka.tools.TopicCommand").short_lived().args(&list);
    let output = tool.run().unwrap();
    assert!(output.success(), "{}{}", output.stdout, output.stderr);
    assert_eq!(output.stdout.trim(), "t", "{}", output.stderr);
}

#[test]
fn a_mistyped_topic_is_not_created_and_its_nearest_is_named() {
    let cluster = Cluster::start(&["--brokers", "1"]);
    let bootstrap = cluster.bootstrap.as_str();
    run(&["topics", "create", "orders", "-b", bootstrap]).ok();
    let group = ["consume", "-t", "ordres", "-G", "g", "-b", bootstrap];
    let perf =
        ["perf", "consume", "--topic", "ordres", "--hide-header", "--bootstrap-server", bootstrap];
    for command in [
        &["consume", "-t", "ordres", "-b", bootstrap][..],
        &group,
        &perf,
        &["topics", "describe", "ordres", "-b", bootstrap],
        &["topics", "delete", "ordres", "-b", bootstrap],
        &["topics", "alter", "ordres", "--partitions", "2", "-b", bootstrap],
    ] {
        let error = run(command).failed();
        assert_eq!(error, "topic 'ordres' does not exist; did you mean 'orders'?", "{command:?}");
    }
    assert_eq!(run(&["topics", "list", "-b", bootstrap]).ok(), "orders\n");
    let error = run(&["consume", "-t", "clicks", "-b", bootstrap]).failed();
    assert_eq!(error, "topic 'clicks' does not exist; `curtail topics list` prints the topics");
}

#[test]
fn a_topic_is_created_where_that_is_asked_for_or_written_to() {
    let cluster = Cluster::start(&["--brokers", "1"]);
    let bootstrap = cluster.bootstrap.as_str();
    let produce = |topic: &str| run_with_input(&["produce", "-t", topic, "-b", bootstrap], b"x\n");
    let first = produce("orders");
    assert_eq!(first.code, Some(0));
    assert!(first.err.contains("the brokers created it"), "{first:?}");
    assert_eq!(produce("orders").err, "", "it exists now");
    let second = produce("order");
    assert!(
        second.err.ends_with("created it (auto.create.topics.enable); did you mean 'orders'?\n"),
        "{second:?}"
    );
    let asked = ["-e", "-X", "allow.auto.create.topics=true", "-b", bootstrap];
    assert_eq!(run(&[&["consume", "-t", "new"][..], &asked].concat()).ok(), "");
    assert_eq!(run(&["topics", "list", "-b", bootstrap]).ok(), "new\norder\norders\n");
}

#[test]
fn a_mistyped_group_is_named_with_its_nearest() {
    let cluster = Cluster::start(&["--brokers", "1"]);
    let bootstrap = cluster.bootstrap.as_str();
    run_with_input(&["produce", "-t", "t", "-b", bootstrap], b"x\n").ok();
    run(&["consume", "-t", "t", "-G", "billing", "-c", "1", "-b", bootstrap]).ok();
    for action in ["describe", "delete"] {
        let error = run(&["groups", action, "biling", "-b", bootstrap]).failed();
        assert_eq!(error, "group 'biling' does not exist; did you mean 'billing'?");
    }
}

/// Unusable data directories.
#[test]
fn a_data_directory_that_cannot_be_written_is_named() {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("file");
    fs::write(&file, "").unwrap();
    let below = file.join("below");
    for path in [below.to_str().unwrap(), "/proc/curtail"] {
        let error = run(&["cluster", "--port", "0", "--data", path]).failed();
        assert!(error.contains(&format!("cannot use {path} for data")), "{error}");
    }
    let file = file.to_str().unwrap();
    let error = run(&["cluster", "--port", "0", "--data", file]).failed();
    assert!(error.contains("(choose a directory, not a file)"), "{error}");
    // A file in place of a broker's directory.
    fs::write(data.path().join("broker-1"), "").unwrap();
    let path = data.path().to_str().unwrap();
    let error = run(&["cluster", "--port", "0", "--brokers", "1", "--data", path]).failed();
    assert!(error.contains("broker-1"), "{error}");
}

/// A file system of 64 KiB in a mount namespace. The test is skipped if the kernel does not permit one.
#[cfg(target_os = "linux")]
#[test]
fn a_full_file_system_refuses_records_and_topics_in_one_line() {
    let script = r#"mount -t tmpfs -o size=64k tmpfs "$1" && exec "$0" cluster --brokers 1 --port 0 --data "$1""#;
    let available = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", "mount -t tmpfs tmpfs /mnt"])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !available {
        return;
    }
    let data = tempfile::tempdir().unwrap();
    let path = data.path().to_str().unwrap();
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]);
    command.args([env!("CARGO_BIN_EXE_curtail"), path]);
    let cluster = Cluster::spawn(command);
    let bootstrap = cluster.bootstrap.as_str();
    let line = "x".repeat(999) + "\n";
    let short = ["-X", "request.timeout.ms=900", "-X", "delivery.timeout.ms=1000"];
    let produce = [&["produce", "-t", "t", "-b", bootstrap][..], &short].concat();
    let error = run_with_input(&produce, line.repeat(100).as_bytes());
    assert_eq!(error.code, Some(1), "{error:?}");
    assert!(error.err.contains("t-0: not acknowledged"), "{error:?}");
    let limits = ["-X", "default.api.timeout.ms=2000", "-X", "request.timeout.ms=1000"];
    let create = [&["topics", "create", "-b", bootstrap][..], &limits].concat();
    let mut refused = None;
    for n in 0..200 {
        let name = format!("topic-{n}");
        let run = run(&[&create[..], &[name.as_str()]].concat());
        if run.code != Some(0) {
            refused = Some((name, run.failed()));
            break;
        }
    }
    let (name, error) = refused.unwrap();
    assert!(error.contains("KAFKA_STORAGE_ERROR"), "{error}");
    let listed = run(&["topics", "list", "-b", bootstrap]).ok();
    assert!(!listed.lines().any(|topic| topic == name), "what was refused is not there");
}
