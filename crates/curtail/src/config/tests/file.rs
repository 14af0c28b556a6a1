//! Files of settings that several clients share.

use std::path::{Path, PathBuf};

use crate::{
    AdminConfig, ConfigError, ConsumerConfig, ProducerConfig,
    config::{load_properties, parse_properties},
};

/// A file that is deleted with the value.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("curtail-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl AsRef<Path> for File {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

#[test]
fn clients_of_every_kind_share_a_file() {
    let file = File::new(
        "shared.properties",
        "bootstrap.servers=a:1\nlinger.ms=7\ngroup.id=g\nfetch.min.bytes=3\nretries=2147483647\n\
         partitioner.class=com.example.Mine2\npartitioner.class=\nshare.acquire.mode=record_limit\n\
         default.api.timeout.ms=45000\ntransactional.id=t\n",
    );
    // `share.acquire.mode` is a setting of consumers.
    let error = ConsumerConfig::from_file(&file).unwrap_err().to_string();
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.contains(":8: share.acquire.mode=record_limit is not supported"), "{error}");
    // `partitioner.class` is one of producers, and line 6 names a class that Curtail lacks.
    let error = ProducerConfig::from_file(&file).unwrap_err().to_string();
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.contains(":6: partitioner.class=com.example.Mine2: expected"), "{error}");
    let admin = AdminConfig::from_file(&file).unwrap();
    assert_eq!(admin.common.default_api_timeout.as_millis(), 45_000);
    let text = std::fs::read_to_string(&file).unwrap();
    let text = text.replace("record_limit", "batch_optimized").replace("com.example.Mine2", "");
    let file = File::new("usable.properties", &text);
    let producer = ProducerConfig::from_file(&file).unwrap();
    assert_eq!(producer.linger.as_millis(), 7);
    assert_eq!(producer.transactional_id.as_deref(), Some("t"));
    let consumer = ConsumerConfig::from_file(&file).unwrap();
    assert_eq!((consumer.group_id.as_deref(), consumer.fetch_min_bytes), (Some("g"), 3));
    // In code the setting of another client is a mistake.
    let strict = ProducerConfig::from_properties([("bootstrap.servers", "a:1"), ("group.id", "g")]);
    assert!(matches!(strict, Err(ConfigError::OfOtherClients { .. })), "{strict:?}");
}

#[test]
fn every_problem_of_a_file_is_reported_with_its_line() {
    let file = File::new(
        "wrong.properties",
        "# one\nbootstrap.servers=a:1\nlinger.mss=5\n\nbatch.size=\\\n  many\ngroup.id=g\n\
         client.id=\\u12g4\nssl.keystore.pasword=hunter2-hunter2\nacks=2\n",
    );
    let mut config = ProducerConfig::default();
    let error = config.set_from_file(&file).unwrap_err();
    let path = file.as_ref().display();
    let expected = [
        format!("{path}:3: unknown property 'linger.mss'; did you mean 'linger.ms'?"),
        format!("{path}:5: batch.size=many: expected bytes, at least 0"),
        format!("{path}:8: a \\u escape has four hexadecimal digits"),
        format!(
            "{path}:9: unknown property 'ssl.keystore.pasword'; did you mean 'ssl.keystore.password'?"
        ),
        format!("{path}:10: acks=2: expected all, -1, 0 or 1"),
    ];
    assert_eq!(error.to_string(), expected.join("\n"));
    assert!(!format!("{error:?}").contains("hunter2"));
    assert!(config.common.bootstrap_servers.is_empty(), "nothing of an unusable file is set");
}

#[test]
fn a_contradiction_names_the_file_and_later_settings_can_complete_a_file() {
    let file = File::new("incomplete.properties", "linger.ms=7\n");
    let error = ProducerConfig::from_file(&file).unwrap_err().to_string();
    let path = file.as_ref().display();
    assert_eq!(error, format!("{path}: bootstrap.servers is required"));
    let mut config = ProducerConfig::default();
    config.set_from_file(&file).unwrap();
    config.set("bootstrap.servers", "a:1").unwrap();
    config.validate().unwrap();
    assert_eq!(config.linger.as_millis(), 7);
    let missing = ProducerConfig::from_file("no/such/file.properties").unwrap_err();
    assert!(matches!(missing, ConfigError::File { .. }), "{missing:?}");
}

#[test]
fn properties_files_are_read_as_java_does() {
    let text = "# comment\n! another\n\n  a=1\nb : 2\nc 3\nd\ne=\nf = x \\\n   y\\\\\n\
                g\\ h\\==\\u0041\\t\\q\r\ni==:\nj=\\ud83d\\ude00\nk=a\\\n#b\na=3\n";
    let expected = [
        ("a", "1"),
        ("b", "2"),
        ("c", "3"),
        ("d", ""),
        ("e", ""),
        ("f", "x y\\"),
        ("g h=", "A\tq"),
        ("i", "=:"),
        ("j", "\u{1f600}"),
        ("k", "a#b"),
        ("a", "3"),
    ];
    let read = parse_properties(text).unwrap();
    let read: Vec<_> = read.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    assert_eq!(read, expected);
    assert!(parse_properties("a=1\nb=\\u12g4").unwrap_err().starts_with("line 2"));
    let dangling = parse_properties("a=1\\").unwrap();
    assert_eq!(dangling, [("a".to_owned(), "1".to_owned())]);
}

#[test]
fn a_missing_file_is_named() {
    let error = load_properties("no/such/file.properties").unwrap_err().to_string();
    assert!(error.starts_with("cannot read properties from no/such/file.properties: "), "{error}");
}
