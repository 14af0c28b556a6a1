//! `curtail dump-log` on the files of both kinds of broker: what it prints is what Kafka's own reader prints.

use std::{
    fs,
    path::{Path, PathBuf},
};

use curtail::{Header, ProducerConfig, Record, blocking::TransactionalProducer};
use curtail_apache::{ApacheCluster, Toolchain};

use serde_json::Value;

use crate::{
    admin::At,
    common::{Cluster, Run, run, run_with_input},
};

const EVERYTHING: [&str; 2] = ["--deep-iteration", "--print-data-log"];

/// Writes every kind of batch to `t-0`: codecs, headers, absent keys and values, committed and aborted transactions.
fn write(bootstrap: &str) {
    let create =
        ["topics", "create", "t", "--partitions", "1", "--config", "index.interval.bytes=100"];
    run(&[&create[..], &["-b", bootstrap]].concat()).ok();
    let (long, headers) = ("v".repeat(200), [Header::new("a", "1"), Header::new("b", "2")]);
    let codecs = ["none", "gzip", "snappy", "lz4", "zstd"];
    for packed in ["uncompressed", "gzip", "zstd"] {
        let compression = format!("compression.type={packed}");
        let create = [
            "topics",
            "create",
            packed,
            "--partitions",
            "1",
            "--config",
            &compression,
            "-b",
            bootstrap,
        ];
        run(&create).ok();
        for codec in codecs {
            let produce = ["produce", "-t", packed, "--compression", codec, "-b", bootstrap];
            run_with_input(&produce, b"line\n").ok();
        }
    }
    for (turn, codec) in codecs.into_iter().enumerate() {
        let mut config = ProducerConfig::new(bootstrap).transactional_id(codec);
        config.set("compression.type", codec).unwrap();
        let mut producer = TransactionalProducer::new(config).unwrap();
        producer.init_transactions().unwrap();
        let key = format!("key {turn}");
        for round in 0..4 {
            let transaction = producer.begin_transaction().unwrap();
            let record = Record::to("t").headers(&headers);
            let sent = [
                transaction.send(record.key(&key).value("value ä")),
                transaction.send(record.value(&long)),
                transaction.send(Record::to("t").key("deleted")),
            ];
            for delivery in sent {
                delivery.unwrap().wait().unwrap();
            }
            match round % 2 {
                0 => transaction.commit().unwrap(),
                _ => transaction.abort().unwrap(),
            }
        }
    }
    await_markers(bootstrap);
}

/// Waits until the last transaction of `t-0` has its marker, which a broker writes after it has acknowledged the end.
fn await_markers(bootstrap: &str) {
    let producers = ["transactions", "describe-producers", "--topic", "t", "--partition", "0"];
    let ended = |rows: &Value| {
        rows.as_array().unwrap().iter().all(|row| row["transaction_start"].is_null())
    };
    At(bootstrap).until_printed(&producers, ended);
}

/// The files in a directory that both readers know, in one order.
fn files(directory: &Path) -> Vec<PathBuf> {
    let known = ["log", "index", "timeindex", "txnindex", "snapshot", "checkpoint"];
    let paths = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let is_known =
        |path: &PathBuf| known.iter().any(|name| path.extension().is_some_and(|is| is == *name));
    let mut files: Vec<_> = paths.filter(is_known).collect();
    files.sort();
    files
}

/// The codecs of all batches are those of their topics (`compression.type`), whatever the producers had.
fn check_codecs(data: &Path) {
    for (topic, codec) in [("uncompressed", "none"), ("gzip", "gzip"), ("zstd", "zstd")] {
        let segment = data.join(format!("{topic}-0/00000000000000000000.log"));
        let printed = dump(&segment, &EVERYTHING).ok();
        let with = |text: &str| printed.lines().filter(|line| line.contains(text)).count();
        assert_eq!(
            (with(&format!(" compresscodec: {codec} ")), with("payload: line")),
            (5, 5),
            "{printed}"
        );
    }
}

fn names(files: &[PathBuf]) -> String {
    files.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(",")
}

/// Compares both readers, with and without records.
fn compare(toolchain: &Toolchain, files: &[PathBuf]) -> String {
    let names = names(files);
    let mut all = String::new();
    for arguments in [
        &EVERYTHING[..],
        &[],
        &["--deep-iteration"],
        &["--print-data-log", "--skip-record-metadata"],
    ] {
        let arguments = [&["--files", &names], arguments].concat();
        let tool = toolchain.tool("org.apache.kafka.tools.DumpLogSegments").short_lived();
        let theirs = tool.args(&arguments).run().unwrap();
        assert!(theirs.success(), "{theirs:?}");
        let ours = run(&[&["dump-log"], &arguments[..]].concat());
        assert_eq!(ours.err, "");
        let ours = ours.ok();
        for (ours, theirs) in ours.lines().zip(theirs.stdout.lines()) {
            assert_eq!(ours, theirs);
        }
        assert_eq!(ours.lines().count(), theirs.stdout.lines().count(), "{}", theirs.stdout);
        all.push_str(&ours);
    }
    all
}

#[test]
fn files_of_an_embedded_broker_are_printed_as_kafka_prints_them() {
    let Some(toolchain) = curtail_apache::require_or_skip("dump_log_embedded") else { return };
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().to_str().unwrap();
    let cluster = Cluster::start(&["--brokers", "1", "--data", data]);
    write(&cluster.bootstrap);
    let log = log_of_t(directory.path());
    let printed = compare(&toolchain, &files(&log));
    assert!(printed.contains("endTxnMarker: ABORT"), "{printed}");
    check_codecs(log.parent().unwrap());
}

#[test]
fn files_of_apache_kafka_are_printed_as_kafka_prints_them() {
    let Some(toolchain) = curtail_apache::require_or_skip("dump_log_apache") else { return };
    let cluster = ApacheCluster::builder()
        .toolchain(toolchain.clone())
        .property("metadata.log.max.record.bytes.between.snapshots", "1")
        .short_lived()
        .start()
        .unwrap();
    write(&cluster.bootstrap());
    // The indexes of a segment in use end in zeros.
    let log = cluster.data_dir(0).join("t-0");
    let printed = compare(&toolchain, &files(&log));
    assert!(printed.lines().any(|line| line.starts_with("offset: ")), "{printed}");
    assert!(printed.lines().any(|line| line.starts_with("version: 0 producerId: ")), "{printed}");
    check_codecs(cluster.data_dir(0));
    cluster.terminate(0).unwrap();
    let printed = compare(&toolchain, &files(&log));
    assert!(printed.contains("currentTxnFirstOffset: OptionalLong.empty"), "{printed}");
    let mut metadata = files(&cluster.data_dir(0).join("__cluster_metadata-0"));
    metadata.extend(files(cluster.data_dir(0)));
    let printed = compare(&toolchain, &metadata);
    for text in
        ["Snapshot end offset: ", "KRaft bootstrap snapshot", "LeaderChange: {", "SnapshotHeader {"]
    {
        assert!(printed.contains(text), "{text}");
    }
}

/// A segment `t-0` of a broker that was killed, with entries in its indexes.
fn killed_log(directory: &Path) -> PathBuf {
    let cluster = Cluster::start(&["--brokers", "1", "--data", directory.to_str().unwrap()]);
    write(&cluster.bootstrap);
    // A broker writes the entries of its indexes in groups.
    let lines = "line\n".repeat(500);
    let produce = ["produce", "-t", "t", "-X", "batch.size=1", "-X", "linger.ms=0", "-b"];
    run_with_input(&[&produce[..], &[&cluster.bootstrap]].concat(), lines.as_bytes()).ok();
    drop(cluster);
    log_of_t(directory)
}

/// The directory of `t-0` below the data of an embedded cluster.
fn log_of_t(data: &Path) -> PathBuf {
    let brokers = fs::read_dir(data).unwrap().map(|entry| entry.unwrap().path());
    brokers.map(|broker| broker.join("t-0")).find(|log| log.exists()).unwrap()
}

fn dump(path: &Path, extra: &[&str]) -> Run {
    run(&[&["dump-log", path.to_str().unwrap()], extra].concat())
}

/// The lines on standard error of a dump that found damage, without the last one, which counts them.
fn findings(run: &Run) -> Vec<&str> {
    assert_eq!(run.code, Some(1), "{run:?}");
    let mut lines: Vec<_> = run.err.lines().collect();
    let counted = lines.pop().unwrap();
    assert_eq!(counted, format!("curtail: problems found: {}", lines.len()), "{run:?}");
    lines
}

#[test]
fn damage_to_a_segment_is_one_line_each() {
    let directory = tempfile::tempdir().unwrap();
    let segment = killed_log(directory.path()).join("00000000000000000000.log");
    let whole = dump(&segment, &EVERYTHING).ok();
    let bytes = fs::read(&segment).unwrap();
    let change = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut changed = bytes.clone();
        change(&mut changed);
        fs::write(&segment, changed).unwrap();
    };

    change(&|bytes| bytes.truncate(bytes.len() - 1));
    let torn = dump(&segment, &EVERYTHING);
    assert!(findings(&torn)[0].contains(" bytes after the last whole batch"), "{torn:?}");
    let (last, kept) = (torn.out.lines().last().unwrap(), torn.out.lines().count() - 1);
    assert!(
        last.starts_with("Found ") && last.contains(" invalid bytes at the end of 00"),
        "{last}"
    );
    assert!(torn.out.lines().take(kept).eq(whole.lines().take(kept)), "{}", torn.out);
    let limit = |bytes: &str| dump(&segment, &["--max-bytes", bytes]);
    assert_eq!(limit("400").ok().lines().filter(|line| line.starts_with("base")).count(), 2);
    findings(&limit("2147483647"));

    change(&|bytes| bytes[70] ^= 1);
    let flipped = dump(&segment, &[]);
    let wrong = format!("{}: the batch at position 0 has a wrong checksum", segment.display());
    assert_eq!(findings(&flipped), [wrong]);
    assert_eq!(flipped.out.lines().filter(|line| line.ends_with("isvalid: false")).count(), 1);

    // A codec that is not assigned: the batches after it are still printed.
    change(&|bytes| bytes[22] |= 7);
    let unknown = dump(&segment, &EVERYTHING);
    assert_eq!(findings(&unknown).len(), 2, "{unknown:?}");
    let batches = |text: &str| text.lines().filter(|line| line.starts_with("base")).count();
    assert_eq!(batches(&unknown.out), batches(&whole));

    change(&|bytes| bytes[16] = 7);
    let foreign = dump(&segment, &[]);
    let (lines, failure) = (foreign.err.lines().count(), foreign.err.lines().last().unwrap());
    assert!(lines == 2 && failure.contains("no batch at position 0: "), "{foreign:?}");
}

#[test]
fn indexes_are_compared_with_their_segment() {
    let directory = tempfile::tempdir().unwrap();
    let log = killed_log(directory.path());
    let segment = log.join("00000000000000000000.log");
    let (index, times) = (segment.with_extension("index"), segment.with_extension("timeindex"));
    let verify = ["--verify-index-only"];
    let title = |path: &Path| format!("Dumping {}\n", path.display());
    assert_eq!(dump(&index, &verify).ok(), title(&index));
    let sane = ["--index-sanity-check"];
    let passed = |path: &Path| format!("{}{} passed sanity check.\n", title(path), path.display());
    assert_eq!(dump(&index, &sane).ok(), passed(&index));
    assert_eq!(dump(&times, &sane).ok(), passed(&times));

    // The first batch is gone, so no entry is right.
    let bytes = fs::read(&segment).unwrap();
    let first = 12 + i32::from_be_bytes(bytes[8..12].try_into().unwrap()) as usize;
    fs::write(&segment, &bytes[first..]).unwrap();
    let compared = dump(&index, &verify);
    let entries = fs::read(&index).unwrap().len() / 8;
    assert_eq!(
        (compared.out.as_str(), findings(&compared).len()),
        (title(&index).as_str(), entries)
    );
    fs::write(&segment, &bytes).unwrap();

    let mut stamps = fs::read(&times).unwrap();
    stamps[7] ^= 1;
    fs::write(&times, &stamps).unwrap();
    let compared = dump(&times, &verify);
    assert!(findings(&compared)[0].contains(", where the largest timestamp is "), "{compared:?}");
    fs::write(&times, &stamps[1..]).unwrap();
    assert!(dump(&times, &[]).failed().contains("are no whole entries of 12"));

    // Zeros without an entry before them: an index of a broker that has written none yet.
    for (path, entry) in [(&index, 8), (&times, 12)] {
        fs::write(path, vec![0; 10 * entry]).unwrap();
        let printed = dump(path, &[]).ok();
        assert_eq!(printed.lines().count(), 2, "{printed}");
    }
}

#[test]
fn files_that_cannot_be_read_are_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    for (name, bytes, expected) in [
        ("partition.metadata", &b"x"[..], "not one of .log, .index, "),
        ("0.log", b"", "not named <20 digits>.log"),
        ("00000000000000000001.snapshot", &[0, 1], "damaged, or no snapshot of version 1"),
        ("00000000000000000001.txnindex", &[1; 34], "an entry has an unknown version"),
        ("7.checkpoint", b"", "not named <end offset>-<epoch>.checkpoint"),
    ] {
        fs::write(path(name), bytes).unwrap();
        let failed = dump(&path(name), &[]).failed();
        assert!(failed.ends_with(expected) || failed.contains(expected), "{failed}");
        assert!(failed.contains(name), "{failed}");
    }
    let absent = dump(&path("00000000000000000009.log"), &[]).failed();
    assert!(absent.starts_with("cannot read ") && absent.contains("No such file"), "{absent}");
    assert!(run(&["dump-log"]).failed().contains("FILE"));
    let decoder = run(&["dump-log", "--offsets-decoder", "0.log"]).failed();
    assert!(decoder.contains("keys and values are printed as text"), "{decoder}");
}

/// Compaction leaves gaps between offsets, which are no damage.
#[test]
fn gaps_of_a_compacted_segment_are_reported() {
    let directory = tempfile::tempdir().unwrap();
    let segment = killed_log(directory.path()).join("00000000000000000000.log");
    let bytes = fs::read(&segment).unwrap();
    let length =
        |at: usize| 12 + i32::from_be_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize;
    let base = |at: usize| i64::from_be_bytes(bytes[at..at + 8].try_into().unwrap());
    let second = length(0);
    let third = second + length(second);
    let kept = [&bytes[..second], &bytes[third..]].concat();
    fs::write(&segment, kept).unwrap();
    let dumped = dump(&segment, &["--deep-iteration"]);
    assert_eq!((dumped.code, dumped.err.lines().count()), (Some(0), 1), "{dumped:?}");
    let gap = format!("offset {} is followed by {}\n", base(second) - 1, base(third));
    assert!(dumped.err.ends_with(&gap), "{}", dumped.err);
}
