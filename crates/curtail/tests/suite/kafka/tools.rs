//! Kafka's own tools and this client on the same clusters. Each reads exactly what the other wrote, and Kafka's log
//! reader accepts the logs of both kinds of cluster. Kafka's consumers and its group tool see the same coordinator
//! behaviour on both.

#[path = "group_tools.rs"]
mod groups;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::Path,
    time::{Duration, SystemTime},
};

use crate::common::{Backend, producer, read_all};
use curtail::{
    Admin, AdminConfig, Consumer, ConsumerConfig, ConsumerRecord, Header, Record, TopicPartition,
    admin::NewTopic,
};
use curtail_apache::Toolchain;
use curtail_cluster::Storage;

/// Topic of this client's producer, with every codec.
const WRITTEN: &str = "written";
/// Topic of `ConsoleProducer`.
const TYPED: &str = "typed";
/// Topic of `ProducerPerformance`.
const COUNTED: &str = "counted";
const PARTITIONS: i32 = 3;
/// Topic of the consumers of one group.
const SHARED: &str = "shared";
/// Topic of `EndToEndLatency`.
const LATENCY: &str = "latency";
/// Limit for the part of a test before the dumps; its output shows how far it came.
const LIMIT: Duration = Duration::from_secs(180);

/// The topics of both kinds of cluster.
const TOPICS: [(&str, i32); 5] = [
    (WRITTEN, PARTITIONS),
    (TYPED, PARTITIONS),
    (COUNTED, PARTITIONS),
    (SHARED, PARTITIONS),
    (LATENCY, 1),
];

const CODECS: [&str; 5] = ["none", "gzip", "snappy", "lz4", "zstd"];
const PER_CODEC: usize = 100;
const COUNT: u64 = 10_000;
/// The tools' text for an absent key, value or header value.
const NULL: &str = "<null>";

/// A record of text, which the tools can show on one line. [`text`] never creates equal records.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Text {
    headers: Vec<(String, Option<String>)>,
    key: Option<String>,
    value: Option<String>,
}

/// The record with this number: with or without key, headers and value.
fn text(n: usize, random: &mut Random) -> Text {
    let value = (!n.is_multiple_of(5)).then(|| format!("{n}:{}", random.word(n * 37 % 700)));
    let headers = if n.is_multiple_of(3) || value.is_none() {
        let number = n.to_string();
        [("n", Some(number.as_str())), ("trace", Some("β")), ("trace", Some("2")), ("none", None)]
            .map(|(name, value)| (name.to_owned(), value.map(str::to_owned)))
            .to_vec()
    } else {
        Vec::new()
    };
    Text { headers, key: n.is_multiple_of(2).then(|| format!("ключ-{}", n % 34)), value }
}

impl Text {
    fn of(record: &ConsumerRecord) -> Self {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let headers = record.headers().map(|(name, value)| (name.to_owned(), value.map(text)));
        Self {
            headers: headers.collect(),
            key: record.key().map(text),
            value: record.value().map(text),
        }
    }

    /// Headers, key and value in the console tools' format; `bare` stands for no headers.
    fn line(&self, bare: &str) -> String {
        let or_null = |text: &Option<String>| text.as_deref().unwrap_or(NULL).to_owned();
        let headers: Vec<String> =
            self.headers.iter().map(|(name, value)| format!("{name}:{}", or_null(value))).collect();
        let headers = if headers.is_empty() { bare.to_owned() } else { headers.join(",") };
        format!("{headers}\t{}\t{}", or_null(&self.key), or_null(&self.value))
    }
}

/// Pseudo-random numbers, the same in every run (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Letters of one to three bytes in UTF-8.
    fn word(&mut self, letters: usize) -> String {
        let alphabet: Vec<char> =
            "abcdefghijklmnopqrstuvwxyz0123456789-_éßжю漢字".chars().collect();
        (0..letters).map(|_| alphabet[self.next() as usize % alphabet.len()]).collect()
    }
}

/// Kafka's tools, and their cluster.
struct Tools {
    toolchain: Toolchain,
    backend: Backend,
}

impl Tools {
    /// Returns a tool's output; it must succeed.
    #[track_caller]
    fn run<S: AsRef<str>>(&self, class: &str, args: &[S], stdin: &[u8]) -> String {
        run(&self.toolchain, class, args, stdin)
    }

    /// As [`Tools::run`], with the cluster's address and a topic.
    #[track_caller]
    fn on(&self, topic: &str, class: &str, args: &[&str], stdin: &[u8]) -> String {
        let bootstrap = self.backend.bootstrap();
        let at = ["--bootstrap-server", &bootstrap, "--topic", topic];
        self.run(class, &[&at[..], args].concat(), stdin)
    }

    async fn create_topics(&self, topics: &[(&str, i32)], replicas: i16) {
        let admin = Admin::new(AdminConfig::new(self.backend.bootstrap())).unwrap();
        let topic = |&(name, partitions): &(&str, i32)| {
            NewTopic::new(name).partitions(partitions).replication_factor(replicas)
        };
        let topics: Vec<NewTopic> = topics.iter().map(topic).collect();
        for (name, created) in admin.create_topics(&topics).await.unwrap() {
            created.unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }

    /// Types lines into `ConsoleProducer`. Its default limits on time and attempts are short for a busy machine.
    fn type_lines(&self, topic: &str, properties: &[&str], lines: &str) {
        let mut args = vec!["--compression-codec", "lz4", "--timeout", "5"];
        args.extend(["--request-timeout-ms", "30000", "--message-send-max-retries", "1000"]);
        for property in properties {
            args.extend(["--reader-property", property]);
        }
        self.on(topic, "ConsoleProducer", &args, lines.as_bytes());
    }

    async fn end_offsets(&self, topic: &str, partitions: i32) -> Vec<i64> {
        let consumer = Consumer::new(ConsumerConfig::new(self.backend.bootstrap())).unwrap();
        let all: Vec<_> = (0..partitions).map(|index| TopicPartition::new(topic, index)).collect();
        let ends = consumer.end_offsets(&all).await.unwrap();
        consumer.close().await;
        all.iter().map(|partition| ends[partition]).collect()
    }
}

#[track_caller]
#[expect(clippy::print_stdout, reason = "kept by the test runner and shown on failure")]
fn run<S: AsRef<str>>(toolchain: &Toolchain, class: &str, args: &[S], stdin: &[u8]) -> String {
    let class = format!("org.apache.kafka.tools.{class}");
    let output = toolchain.tool(&class).short_lived().args(args).stdin(stdin).run().unwrap();
    assert!(output.success(), "{class}: {}{}", output.stdout, output.stderr);
    // The producers' tools report unacknowledged records here, and DumpLogSegments reports damage.
    for bad in ["ERROR", "Exception", "ismatch", "out of order", "not found"] {
        assert!(!output.stderr.contains(bad), "{class}: {}", output.stderr);
    }
    println!("{class} is done");
    output.stdout
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
}

/// Runs the part of a test that needs a cluster, within [`LIMIT`].
fn in_time<T>(body: impl Future<Output = T>) -> T {
    runtime().block_on(async { tokio::time::timeout(LIMIT, body).await.expect("it ends in time") })
}

#[test]
fn kafkas_tools_agree_with_us_embedded() {
    let Some(toolchain) = curtail_apache::require_or_skip("kafkas_tools_agree_with_us_embedded")
    else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let (toolchain, expected) = in_time(async {
        let backend = Backend::embedded_with(3, |config| {
            config.storage = Storage::Dir(directory.path().to_owned());
            // The tools' JVMs may keep a small machine busy: no broker is dead here.
            config.broker_session_timeout = Duration::from_secs(30);
        });
        let tools = Tools { toolchain, backend: backend.await };
        tools.create_topics(&TOPICS, 3).await;
        let expected = both_ways(&tools).await;
        let Tools { toolchain, backend: Backend::Embedded(cluster) } = tools else {
            unreachable!("embedded")
        };
        cluster.shutdown().await;
        (toolchain, expected)
    });
    for broker in 1..=3 {
        check_logs(&toolchain, &directory.path().join(format!("broker-{broker}")), &expected);
    }
    groups::check_coordinators_log(&toolchain, &directory.path().join("broker-1"));
}

#[test]
fn kafkas_tools_agree_with_us_apache() {
    let name = "kafkas_tools_agree_with_us_apache";
    let Some(toolchain) = curtail_apache::require_or_skip(name) else { return };
    let tools = Tools { toolchain, backend: Backend::apache(name, 1).expect("it is there") };
    let expected = in_time(async {
        tools.create_topics(&TOPICS, 1).await;
        tools.create_topics(&[("ours", 7), ("javas", 7)], 1).await;
        let expected = both_ways(&tools).await;
        keys_go_where_javas_go(&tools).await;
        expected
    });
    let Backend::Apache(cluster) = &tools.backend else { unreachable!("apache") };
    cluster.terminate(0).unwrap();
    check_logs(&tools.toolchain, cluster.data_dir(0), &expected);
}

/// Records of [`WRITTEN`], by partition in offset order.
type Written = BTreeMap<i32, Vec<Stamped>>;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamped {
    timestamp: i64,
    text: Text,
}

/// This client writes and the tools read, alone and in groups; then the tools write and this client reads.
async fn both_ways(tools: &Tools) -> Written {
    let written = write(&tools.backend).await;
    console_consumer_reads(tools, &written);
    end_offsets_agree(tools, &written).await;
    consumer_performance_counts(tools, &written);
    groups::tool_sees_what_consumers_commit(tools, &written);
    console_producer_is_read(tools).await;
    producer_performance_is_read(tools).await;
    end_to_end_latency_runs(tools, LATENCY, 1).await;
    groups::two_consumers_share_a_topic(tools, SHARED).await;
    written
}

/// Writes to [`WRITTEN`] with this client's producer.
async fn write(backend: &Backend) -> Written {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as i64;
    let mut random = Random(1);
    let mut found = BTreeMap::new();
    for (round, codec) in CODECS.iter().enumerate() {
        // Small batches, so that every codec has several of them in every partition.
        let settings = [("compression.type", *codec), ("batch.size", "4096"), ("linger.ms", "5")];
        let producer = producer(backend, &settings);
        let mut deliveries = Vec::new();
        for n in round * PER_CODEC..(round + 1) * PER_CODEC {
            let text = text(n, &mut random);
            let headers: Vec<Header<'_>> = text
                .headers
                .iter()
                .map(|(key, value)| Header { key, value: value.as_deref().map(str::as_bytes) })
                .collect();
            let timestamp = now + n as i64;
            let mut record = Record::to(WRITTEN).headers(&headers).timestamp(timestamp);
            if let Some(key) = &text.key {
                record = record.key(key);
            }
            if let Some(value) = &text.value {
                record = record.value(value);
            }
            let delivery = producer.send(record).await.unwrap();
            deliveries.push((delivery, Stamped { timestamp, text }));
        }
        for (delivery, sent) in deliveries {
            let at = delivery.await.unwrap();
            let before = found.insert((at.partition, at.offset.unwrap()), sent);
            assert_eq!(before, None, "{codec}: two records at one offset");
        }
        producer.close().await.unwrap();
    }
    let mut written = Written::new();
    for ((partition, offset), sent) in found {
        let records = written.entry(partition).or_default();
        assert_eq!(offset, records.len() as i64, "partition {partition} has a gap");
        records.push(sent);
    }
    assert_eq!(written.len(), PARTITIONS as usize, "every partition has records");
    written
}

fn console_consumer_reads(tools: &Tools, written: &Written) {
    for (partition, records) in written {
        let (index, count) = (partition.to_string(), records.len().to_string());
        let mut args = vec!["--partition", &index, "--offset", "earliest"];
        args.extend(["--max-messages", &count, "--timeout-ms", "60000"]);
        let null = format!("null.literal={NULL}");
        let print = ["timestamp", "partition", "offset", "headers", "key", "value"]
            .map(|field| format!("print.{field}=true"));
        for property in print.iter().chain([&null]) {
            args.extend(["--formatter-property", property]);
        }
        let printed = tools.on(WRITTEN, "consumer.ConsoleConsumer", &args, b"");
        let mut expected = String::new();
        for (offset, Stamped { timestamp, text }) in records.iter().enumerate() {
            let line = text.line("NO_HEADERS");
            writeln!(
                expected,
                "CreateTime:{timestamp}\tPartition:{partition}\tOffset:{offset}\t{line}"
            )
            .unwrap();
        }
        assert_eq!(printed, expected);
    }
}

async fn end_offsets_agree(tools: &Tools, written: &Written) {
    let counts: Vec<i64> = written.values().map(|records| records.len() as i64).collect();
    assert_eq!(tools.end_offsets(WRITTEN, PARTITIONS).await, counts);
    let printed = tools.on(WRITTEN, "GetOffsetShell", &[], b"");
    let expected: Vec<String> =
        counts.iter().enumerate().map(|(index, end)| format!("{WRITTEN}:{index}:{end}")).collect();
    assert_eq!(printed.lines().collect::<Vec<_>>(), expected);
}

async fn console_producer_is_read(tools: &Tools) {
    let mut random = Random(2);
    let sent: Vec<Text> = (0..200).map(|n| text(n, &mut random)).collect();
    let mut lines = String::new();
    for text in &sent {
        writeln!(lines, "{}", text.line(NULL)).unwrap();
    }
    let marker = format!("null.marker={NULL}");
    tools.type_lines(TYPED, &["parse.key=true", "parse.headers=true", &marker], &lines);

    let number: BTreeMap<&Text, usize> =
        sent.iter().enumerate().map(|(n, text)| (text, n)).collect();
    assert_eq!(number.len(), sent.len(), "all differ");
    let mut found = BTreeSet::new();
    for (partition, records) in read_all(&tools.backend, TYPED, PARTITIONS).await {
        let numbers: Vec<usize> = records
            .iter()
            .map(|record| *number.get(&Text::of(record)).expect("a record that was typed"))
            .collect();
        assert!(numbers.is_sorted_by(|a, b| a < b), "partition {partition}: {numbers:?}");
        found.extend(numbers);
    }
    assert_eq!(found.len(), sent.len(), "everything typed is there");
}

async fn producer_performance_is_read(tools: &Tools) {
    let count = COUNT.to_string();
    let mut args = vec!["--num-records", &count, "--throughput", "-1", "--payload-monotonic"];
    args.extend(["--command-property", "acks=all", "compression.type=lz4"]);
    let printed = tools.on(COUNTED, "ProducerPerformance", &args, b"");
    assert!(printed.contains(&format!("{COUNT} records sent")), "{printed}");

    let mut found = BTreeSet::new();
    for (partition, records) in read_all(&tools.backend, COUNTED, PARTITIONS).await {
        let numbers: Vec<u64> = records
            .iter()
            .map(|record| str::from_utf8(record.value().unwrap()).unwrap().parse().unwrap())
            .collect();
        assert!(numbers.is_sorted_by(|a, b| a < b), "partition {partition} is out of order");
        found.extend(numbers);
    }
    assert!(found.iter().copied().eq(0..COUNT), "{} of {COUNT}", found.len());
}

fn consumer_performance_counts(tools: &Tools, written: &Written) {
    let texts = || written.values().flatten().map(|sent| &sent.text);
    let size = |part: &Option<String>| part.as_ref().map_or(0, String::len);
    let bytes: usize = texts().map(|text| size(&text.key) + size(&text.value)).sum();
    let count = texts().count();
    let args = ["--num-records", &count.to_string(), "--timeout", "60000", "--hide-header"];
    let printed = tools.on(WRITTEN, "ConsumerPerformance", &args, b"");
    // start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, ...
    let line = printed.lines().find(|line| line.matches(", ").count() == 9);
    let fields: Vec<&str> = line.unwrap_or_else(|| panic!("{printed}")).split(", ").collect();
    assert_eq!(fields[2], format!("{:.4}", bytes as f64 / 1024.0 / 1024.0), "{printed}");
    assert_eq!(fields[4], count.to_string(), "{printed}");
}

/// Every record that it sends must return to it, or it fails.
async fn end_to_end_latency_runs(tools: &Tools, topic: &str, partitions: i32) {
    let before: i64 = tools.end_offsets(topic, partitions).await.iter().sum();
    let printed = tools.run(
        "EndToEndLatency",
        &[&tools.backend.bootstrap(), topic, "100", "all", "128"],
        b"",
    );
    assert!(printed.contains("Avg latency") && printed.contains("Percentiles"), "{printed}");
    let after: i64 = tools.end_offsets(topic, partitions).await.iter().sum();
    assert_eq!(after - before, 100);
}

/// Records of one key are in one partition, whichever client wrote them.
async fn keys_go_where_javas_go(tools: &Tools) {
    let mut random = Random(3);
    // Lengths of every remainder by four, which murmur2 handles differently, and the empty key.
    let keys: BTreeSet<String> = (0..200).map(|n| random.word(n % 41)).collect();
    assert!(keys.len() > 190 && keys.contains(""));
    let producer = producer(&tools.backend, &[]);
    let mut deliveries = Vec::new();
    for key in &keys {
        deliveries
            .push((key, producer.send(Record::to("ours").key(key).value("v")).await.unwrap()));
    }
    let mut ours = BTreeMap::new();
    for (key, delivery) in deliveries {
        ours.insert(key.clone(), delivery.await.unwrap().partition);
    }
    producer.close().await.unwrap();
    let mut lines = String::new();
    for key in &keys {
        writeln!(lines, "{key}\tv").unwrap();
    }
    tools.type_lines("javas", &["parse.key=true"], &lines);
    let mut javas = BTreeMap::new();
    for (partition, records) in read_all(&tools.backend, "javas", 7).await {
        javas.extend(records.iter().map(|record| (Text::of(record).key.unwrap(), partition)));
    }
    assert_eq!(ours, javas);
    assert_eq!(ours.values().collect::<BTreeSet<_>>().len(), 7, "no partition is left out");
}

/// Findings of `DumpLogSegments` in one log.
#[derive(Debug, Default)]
struct Dumped<'a> {
    codecs: BTreeSet<&'a str>,
    /// Records by the batches' counts.
    counted: usize,
    records: Vec<String>,
    /// Lines of the two indexes.
    index_entries: usize,
}

/// Dumps the logs and indexes of a broker that has been shut down.
fn check_logs(toolchain: &Toolchain, data: &Path, written: &Written) {
    let mut files = Vec::new();
    for topic in [WRITTEN, TYPED, COUNTED] {
        for partition in 0..PARTITIONS {
            let log = data.join(format!("{topic}-{partition}/00000000000000000000.log"));
            for extension in ["log", "index", "timeindex"] {
                files.push(log.with_extension(extension).display().to_string());
            }
        }
    }
    let args = ["--deep-iteration", "--print-data-log", "--files", &files.join(",")];
    let printed = run(toolchain, "DumpLogSegments", &args, b"");
    let logs = dumped(&printed);
    for (partition, records) in written {
        let log = &logs[format!("{WRITTEN}-{partition}").as_str()];
        assert_eq!(log.codecs, BTreeSet::from(CODECS));
        assert!(log.index_entries > 2, "the indexes have entries");
        let expected: Vec<String> = records.iter().enumerate().map(|(n, r)| r.dumped(n)).collect();
        assert_eq!(log.records, expected);
    }
    for (topic, count) in [(TYPED, 200), (COUNTED, COUNT as usize)] {
        let logs: Vec<&Dumped<'_>> =
            (0..PARTITIONS).map(|p| &logs[format!("{topic}-{p}").as_str()]).collect();
        assert_eq!(logs.iter().map(|log| log.counted).sum::<usize>(), count);
        assert!(logs.iter().all(|log| log.codecs.iter().all(|codec| *codec == "lz4")));
    }
}

impl Stamped {
    /// The line of a record in a dump, without its sequence number.
    fn dumped(&self, offset: usize) -> String {
        let Self { timestamp, text: Text { headers, key, value } } = self;
        let size = |part: &Option<String>| part.as_ref().map_or(-1, |text| text.len() as i64);
        let names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
        let mut line = format!(
            "| offset: {offset} CreateTime: {timestamp} keySize: {} valueSize: {} headerKeys: [{}]",
            size(key),
            size(value),
            names.join(",")
        );
        for (name, part) in [("key", key), ("payload", value)] {
            if let Some(text) = part {
                write!(line, " {name}: {text}").unwrap();
            }
        }
        line
    }
}

/// Parses a dump, by directory name. Every batch must be valid and have the records that it counts. Batches, records
/// and index entries must be the only reports.
fn dumped(printed: &str) -> BTreeMap<&str, Dumped<'_>> {
    let mut logs: BTreeMap<&str, Dumped<'_>> = BTreeMap::new();
    let mut current = "";
    for line in printed.lines() {
        if let Some(path) = line.strip_prefix("Dumping ") {
            current = path.rsplit('/').nth(1).unwrap();
            continue;
        }
        let log = logs.entry(current).or_default();
        if line.starts_with("baseOffset: ") {
            assert!(line.ends_with(" isvalid: true"), "{current}: {line}");
            assert_eq!(log.counted, log.records.len(), "{current}: a batch is not complete");
            assert_eq!(field(line, "baseOffset"), log.counted.to_string(), "{current}: {line}");
            log.counted += field(line, "count").parse::<usize>().unwrap();
            log.codecs.insert(field(line, "compresscodec"));
        } else if line.starts_with("| offset: ") {
            let (before, after) = line.split_once(" sequence: ").unwrap();
            let (_, after) = after.split_once(' ').unwrap();
            log.records.push(format!("{before} {after}"));
        } else {
            // A log shorter than index.interval.bytes leaves its index empty.
            let entry = line.starts_with("offset: ") || line.starts_with("timestamp: ");
            let known = line == "Log starting offset: 0" || line.ends_with(".index is empty.");
            assert!(entry || known, "{current}: {line}");
            log.index_entries += usize::from(entry);
        }
    }
    for (name, log) in &logs {
        assert_eq!(log.counted, log.records.len(), "{name}: a batch is not complete");
    }
    logs
}

/// The word after a name in a line of a dump.
fn field<'a>(line: &'a str, name: &str) -> &'a str {
    let mut words = line.split(' ');
    words.find(|word| word.strip_suffix(':') == Some(name)).unwrap();
    words.next().unwrap()
}
