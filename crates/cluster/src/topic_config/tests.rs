use super::*;

/// How a topic's setting takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// In the log of each replica.
    Log,
    /// In the leader, which counts the in-sync replicas.
    Isr,
    /// In the controller, which elects.
    Election,
    /// The setting has no effect.
    None,
    /// The value is refused.
    Refused,
}

/// A setting and a value.
type Value = (&'static str, &'static str);

/// A value other than the default of every setting, with another setting on which its effect depends.
const VALUES: &[(&str, &str, Option<Value>, Effect)] = &[
    ("cleanup.policy", "compact", None, Effect::Log),
    ("compression.gzip.level", "1", Some(("compression.type", "gzip")), Effect::Log),
    ("compression.lz4.level", "1", Some(("compression.type", "lz4")), Effect::None),
    ("compression.type", "gzip", None, Effect::Log),
    ("compression.zstd.level", "1", Some(("compression.type", "zstd")), Effect::Log),
    ("delete.retention.ms", "1", None, Effect::Log),
    ("file.delete.delay.ms", "1", None, Effect::None),
    ("flush.messages", "2", None, Effect::Log),
    ("flush.ms", "1", None, Effect::Log),
    ("follower.replication.throttled.replicas", "*", None, Effect::None),
    ("index.interval.bytes", "1", None, Effect::Log),
    ("leader.replication.throttled.replicas", "*", None, Effect::None),
    ("local.retention.bytes", "1", None, Effect::None),
    ("local.retention.ms", "1", None, Effect::None),
    ("max.compaction.lag.ms", "1", None, Effect::Log),
    ("max.message.bytes", "1", None, Effect::Log),
    ("message.timestamp.after.max.ms", "1", None, Effect::Log),
    ("message.timestamp.before.max.ms", "1", None, Effect::Log),
    ("message.timestamp.type", "LogAppendTime", None, Effect::Log),
    ("min.cleanable.dirty.ratio", "0.1", None, Effect::Log),
    ("min.compaction.lag.ms", "1", None, Effect::Log),
    ("min.insync.replicas", "2", None, Effect::Isr),
    ("preallocate", "true", None, Effect::None),
    ("remote.log.copy.disable", "true", None, Effect::None),
    ("remote.log.delete.on.disable", "true", None, Effect::None),
    ("remote.storage.enable", "true", None, Effect::Refused),
    ("retention.bytes", "1", None, Effect::Log),
    ("retention.ms", "1", None, Effect::Log),
    ("segment.bytes", "1048576", None, Effect::Log),
    ("segment.index.bytes", "100", None, Effect::Log),
    ("segment.jitter.ms", "1", None, Effect::Log),
    ("segment.ms", "1", None, Effect::Log),
    ("unclean.leader.election.enable", "true", None, Effect::Election),
];

fn config(given: &[(&str, &str)]) -> Result<TopicConfig, String> {
    let given = given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    TopicConfig::new(given.collect())
}

/// Returns the log's settings without the level of lz4, which its encoder ignores.
fn of_log(topic: &TopicConfig, cluster: &ClusterConfig) -> LogConfig {
    let mut log = topic.log_config(cluster);
    if let Some(compression) = log.compression.as_mut().filter(|c| c.codec == Codec::Lz4) {
        compression.level = None;
    }
    log
}

#[test]
fn levels_of_lz4_do_not_change_its_output() {
    let compressed = |level| {
        let mut out = Vec::new();
        let text: Vec<u8> = (0..5000_u32).map(|n| (n * n % 251) as u8).collect();
        Compression::new(Codec::Lz4, level).unwrap().compress(&text, &mut out).unwrap();
        out
    };
    for level in [1, 9, 17] {
        assert_eq!(compressed(Some(level)), compressed(None), "level {level}");
    }
}

fn effect(before: &TopicConfig, after: &TopicConfig, cluster: &ClusterConfig) -> Effect {
    if of_log(after, cluster) != of_log(before, cluster) {
        Effect::Log
    } else if after.min_insync_replicas(cluster) != before.min_insync_replicas(cluster) {
        Effect::Isr
    } else if after.elects_uncleanly() != before.elects_uncleanly() {
        Effect::Election
    } else {
        Effect::None
    }
}

#[test]
fn every_topic_setting_takes_effect_or_is_known_to_have_none() {
    let names: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
    assert_eq!(names, VALUES.iter().map(|(name, ..)| *name).collect::<Vec<_>>());
    let cluster = ClusterConfig::default();
    for (name, value, with, expected) in VALUES {
        let before: Vec<(&str, &str)> = with.iter().copied().collect();
        let after = [&before[..], &[(*name, *value)]].concat();
        let found = match config(&after) {
            Ok(after) => effect(&config(&before).unwrap(), &after, &cluster),
            Err(_) => Effect::Refused,
        };
        assert_eq!(found, *expected, "{name}");
        assert_eq!(WITHOUT_EFFECT.contains(name), *expected == Effect::None, "{name}");
    }
}

/// A broker's default does to a topic what the topic's own value does.
#[test]
fn defaults_of_brokers_have_the_effects_of_topic_settings() {
    for (name, value, with, expected) in VALUES {
        let Some(of_brokers) = Setting::named(name).unwrap().brokers else { continue };
        let topic = config(&with.iter().copied().collect::<Vec<_>>()).unwrap();
        let (before, mut after) = (ClusterConfig::default(), ClusterConfig::default());
        after.set(of_brokers, value).unwrap_or_else(|error| panic!("{of_brokers}: {error}"));
        let found = if of_log(&topic, &before) != of_log(&topic, &after) {
            Effect::Log
        } else if topic.min_insync_replicas(&before) != topic.min_insync_replicas(&after) {
            Effect::Isr
        } else {
            Effect::None
        };
        // The controller reads the broker's setting itself.
        let expected = if *expected == Effect::Election { Effect::None } else { *expected };
        assert_eq!(found, expected, "{of_brokers}");
    }
}

#[test]
fn page_of_the_embedded_cluster_has_the_reason_for_every_setting_without_effect() {
    let page = include_str!("../../../../docs/embedded-cluster.md");
    let section =
        page.split("\n### ").find(|text| text.starts_with("Topic settings without effect"));
    let section = section.expect("a section");
    let section = section.split("\n## ").next().unwrap_or_default();
    for name in WITHOUT_EFFECT.iter().chain([&REMOTE_STORAGE]) {
        assert!(section.contains(&format!("`{name}`")), "{name}");
    }
    for setting in SETTINGS.iter().filter(|setting| setting.name != REMOTE_STORAGE) {
        let is_listed = section.contains(&format!("| `{}`", setting.name))
            || section.contains(&format!(", `{}`", setting.name));
        assert_eq!(is_listed, WITHOUT_EFFECT.contains(&setting.name), "{}", setting.name);
    }
}

#[test]
fn coarser_units_of_the_roll_jitter_and_the_flush_time_stand_in() {
    let mut cluster = ClusterConfig::default();
    let topic = TopicConfig::default();
    assert_eq!(topic.log_config(&cluster).segment_jitter_ms, 0);
    for (name, value, expected) in [
        ("log.roll.jitter.hours", "2", 7_200_000),
        ("log.roll.jitter.ms", "5", 5),
        ("log.roll.jitter.hours", "3", 5),
        ("log.roll.jitter.ms", "", 10_800_000),
    ] {
        cluster.set(name, value).unwrap();
        assert_eq!(topic.log_config(&cluster).segment_jitter_ms, expected, "{name}={value}");
    }
    assert_eq!(config(&[(SEGMENT_JITTER, "7")]).unwrap().log_config(&cluster).segment_jitter_ms, 7);

    assert_eq!(topic.log_config(&cluster).flush_ms, i64::MAX);
    for (name, value, expected) in [
        ("log.flush.scheduler.interval.ms", "1000", 1000),
        ("log.flush.interval.ms", "50", 50),
        ("log.flush.interval.ms", "", 1000),
    ] {
        cluster.set(name, value).unwrap();
        assert_eq!(topic.log_config(&cluster).flush_ms, expected, "{name}={value}");
    }
    assert_eq!(config(&[(FLUSH_MS, "7")]).unwrap().log_config(&cluster).flush_ms, 7);
}
