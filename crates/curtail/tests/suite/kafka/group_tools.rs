//! Kafka's consumers in groups, and its group tool.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Stdio},
    sync::mpsc,
    time::Instant,
};

use curtail::Record;
use curtail_apache::Toolchain;

use super::{LIMIT, PARTITIONS, Tools, WRITTEN, Written, producer, run};

/// The group of [`tool_sees_what_consumers_commit`].
const READERS: &str = "readers";
const COMMAND: &str = "consumer.group.ConsumerGroupCommand";

/// A consumer of a group reads and commits all records, and the tool shows, resets and deletes the group.
pub(super) fn tool_sees_what_consumers_commit(tools: &Tools, written: &Written) {
    let group = READERS;
    let count: usize = written.values().map(Vec::len).sum();
    let max = count.to_string();
    let mut args = vec!["--group", group, "--from-beginning", "--max-messages", &max];
    args.extend(["--timeout-ms", "60000"]);
    let printed = tools.on(WRITTEN, "consumer.ConsoleConsumer", &args, b"");
    assert_eq!(printed.lines().count(), count, "{printed}");

    let listed = on_groups(tools, &["--list", "--state"]);
    assert_eq!(rows(&listed, group), [[group, "Empty"]], "{listed}");
    let ends: Vec<usize> = written.values().map(Vec::len).collect();
    expect_offsets(tools, group, &ends, &ends);

    let reset = ["--reset-offsets", "--group", group, "--topic", WRITTEN];
    let printed = on_groups(tools, &[&reset[..], &["--to-offset", "1", "--execute"]].concat());
    let expected: Vec<Vec<String>> = (0..written.len())
        .map(|index| [group, WRITTEN, &index.to_string(), "1"].map(str::to_owned).to_vec())
        .collect();
    assert_eq!(rows(&printed, group), expected, "{printed}");
    expect_offsets(tools, group, &vec![1; ends.len()], &ends);

    let deleted = on_groups(tools, &["--delete", "--group", group]);
    assert!(deleted.contains("successful"), "{deleted}");
}

fn on_groups(tools: &Tools, args: &[&str]) -> String {
    let bootstrap = tools.backend.bootstrap();
    tools.run(COMMAND, &[&["--bootstrap-server", &bootstrap][..], args].concat(), b"")
}

/// The lines of a table about a group, in words, in the order of the topic's partitions.
fn rows(printed: &str, group: &str) -> Vec<Vec<String>> {
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let mut rows: Vec<_> = printed.lines().map(words).collect();
    rows.retain(|row| row.first().is_some_and(|first| first == group));
    rows.sort();
    rows
}

/// Checks the group's committed offsets and the ends of the logs.
fn expect_offsets(tools: &Tools, group: &str, committed: &[usize], ends: &[usize]) {
    let described = on_groups(tools, &["--describe", "--group", group]);
    let expected: Vec<Vec<String>> = committed
        .iter()
        .zip(ends)
        .enumerate()
        .map(|(index, (committed, end))| {
            let (index, lag) = (index.to_string(), (end - committed).to_string());
            let (committed, end) = (committed.to_string(), end.to_string());
            let row = [group, WRITTEN, &index, &committed, &end, &lag, "-", "-", "-"];
            row.map(str::to_owned).to_vec()
        })
        .collect();
    assert_eq!(rows(&described, group), expected, "{described}");
}

/// Kafka's log reader decodes every record of the coordinator's topic in the data directory of an embedded broker.
pub(super) fn check_coordinators_log(toolchain: &Toolchain, data: &Path) {
    let log = |partition: i32| {
        let directory = data.join(format!("__consumer_offsets-{partition}"));
        directory.join("00000000000000000000.log").display().to_string()
    };
    let files: Vec<String> = (0..4).map(log).collect();
    let args = ["--offsets-decoder", "--files", &files.join(",")];
    let printed = run(toolchain, "DumpLogSegments", &args, b"");
    assert!(!printed.contains("skipping"), "{printed}");
    let of = |words: &[&str]| {
        printed.lines().filter(|line| words.iter().all(|word| line.contains(word))).count()
    };
    let readers = format!("\"group\":\"{READERS}\"");
    assert!(of(&[&readers, "\"topic\":\"written\"", "\"offset\":1,"]) == 3, "{printed}");
    assert!(of(&[&readers, "\"protocolType\":\"consumer\""]) > 0, "{printed}");
    assert!(of(&[&readers, "<DELETE>"]) > 0, "{printed}");
}

/// A console consumer that runs until it is killed.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a console consumer of a group. Each line that it prints goes to the channel with its name.
fn consume(
    tools: &Tools,
    topic: &str,
    name: &'static str,
    lines: &mpsc::Sender<(&'static str, String)>,
) -> Running {
    let bootstrap = tools.backend.bootstrap();
    let mut args = vec!["--bootstrap-server", &bootstrap, "--topic", topic, "--group", "sharing"];
    args.extend(["--from-beginning", "--command-property", "session.timeout.ms=6000"]);
    args.extend(["--command-property", "heartbeat.interval.ms=1000"]);
    let tool = tools
        .toolchain
        .tool("org.apache.kafka.tools.consumer.ConsoleConsumer")
        .short_lived()
        .args(&args);
    let mut command = tool.command();
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut child = spawned.unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    let lines = lines.clone();
    std::thread::spawn(move || {
        for line in out.lines().map_while(Result::ok) {
            if lines.send((name, line)).is_err() {
                return;
            }
        }
    });
    Running(child)
}

/// Two consumers of a group share its partitions. When one is killed, the other takes over all partitions. Records
/// may be duplicated where partitions move, but none is lost.
pub(super) async fn two_consumers_share_a_topic(tools: &Tools, topic: &str) {
    let begun = Instant::now();
    let (sender, lines) = mpsc::channel();
    let one = consume(tools, topic, "one", &sender);
    let _other = consume(tools, topic, "other", &sender);
    let producer = producer(&tools.backend, &[]);
    let mut one = Some(one);
    let mut round = 0;
    loop {
        // One record for each partition, repeated until all of them have been printed.
        let mut missing = BTreeSet::new();
        for partition in 0..PARTITIONS {
            let value = format!("{round}-{partition}");
            let record = Record::to(topic).partition(partition).value(&value);
            producer.send(record).await.unwrap().await.unwrap();
            missing.insert(value);
        }
        let mut by = BTreeSet::new();
        while !missing.is_empty() {
            let left = LIMIT.saturating_sub(begun.elapsed());
            let (name, line) = lines.recv_timeout(left).expect("every record is printed in time");
            if missing.remove(&line) {
                by.insert(name);
            }
        }
        round += 1;
        match &one {
            Some(_) if by.len() == 2 => one = None,
            Some(_) => {}
            None if by.contains("one") => {}
            None => break,
        }
    }
    producer.close().await.unwrap();
}
