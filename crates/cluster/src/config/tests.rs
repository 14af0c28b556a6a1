use std::time::Duration;

use super::*;

#[test]
fn a_property_reads_back_as_it_was_set() {
    let mut config = ClusterConfig::default();
    let before: Vec<_> = config.properties().collect();
    for (name, value) in &before {
        config.set(name, value).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
    assert_eq!(before, config.properties().collect::<Vec<_>>());

    config.set("min.insync.replicas", " 2 ").unwrap();
    config.set("broker.session.timeout.ms", "3000").unwrap();
    config.set("log.message.timestamp.type", "LogAppendTime").unwrap();
    assert_eq!(config.min_insync_replicas, 2);
    assert_eq!(config.broker_session_timeout, Duration::from_secs(3));
    assert_eq!(config.log_message_timestamp_type, TimestampType::LogAppendTime);
    config.set("broker.rack", "a, ,b").unwrap();
    assert_eq!([0, 1, 2, 3, 4].map(|id| config.rack(id)), [None, Some("a"), None, Some("b"), None]);
}

#[test]
fn topics_keep_records_as_long_as_their_own_setting_or_the_brokers_says() {
    use crate::topic_config::TopicConfig;
    let mut config = ClusterConfig::default();
    let kept = |config: &ClusterConfig, own: &[(&str, &str)]| {
        let own = own.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let log = TopicConfig::new(own.collect()).unwrap().log_config(config);
        (log.retention_ms, log.retention_bytes)
    };
    assert_eq!(kept(&config, &[]), (Some(604_800_000), None));
    // The finer unit counts, whatever the order.
    for (name, value, expected) in [
        ("log.retention.minutes", "2", Some(120_000)),
        ("log.retention.hours", "3", Some(120_000)),
        ("log.retention.ms", "5", Some(5)),
        ("log.retention.ms", "-1", None),
        ("log.retention.ms", "", Some(120_000)),
        ("log.retention.minutes", "", Some(10_800_000)),
        ("log.retention.hours", "-1", None),
    ] {
        config.set(name, value).unwrap();
        assert_eq!(kept(&config, &[]).0, expected, "{name}={value}");
    }
    config.set("log.retention.bytes", "1000").unwrap();
    assert_eq!(kept(&config, &[]), (None, Some(1000)));
    assert_eq!(kept(&config, &[("retention.ms", "7"), ("retention.bytes", "-1")]), (Some(7), None));
    let compacted = [("cleanup.policy", "compact"), ("retention.ms", "7")];
    assert_eq!(kept(&config, &compacted), (None, None));
    for name in ["log.retention.ms", "log.retention.minutes", "log.retention.hours"] {
        assert!(config.set(name, "0").is_err(), "{name}");
    }
}

#[test]
fn topics_without_a_value_of_their_own_have_the_brokers() {
    use crate::topic_config::TopicConfig;
    let mut config = ClusterConfig::default();
    let log = |config: &ClusterConfig, own: &[(&str, &str)]| {
        let own = own.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        TopicConfig::new(own.collect()).unwrap().log_config(config)
    };
    for (name, value) in [
        ("log.cleanup.policy", "compact"),
        ("log.cleaner.min.cleanable.ratio", "0.25"),
        ("log.cleaner.delete.retention.ms", "7"),
        ("log.index.interval.bytes", "100"),
        ("log.message.timestamp.before.max.ms", "60000"),
        ("compression.type", "zstd"),
    ] {
        config.set(name, value).unwrap();
    }
    let of_brokers = log(&config, &[]);
    assert!(of_brokers.compacted && of_brokers.retention_ms.is_none());
    assert_eq!(of_brokers.compaction.min_dirty_ratio, 0.25);
    assert_eq!(of_brokers.compaction.delete_retention_ms, 7);
    assert_eq!(of_brokers.index_interval_bytes, 100);
    assert_eq!(of_brokers.timestamp_before_max_ms, 60_000);
    assert!(of_brokers.compression.is_some());
    let own = log(&config, &[("cleanup.policy", "delete"), ("compression.type", "producer")]);
    assert!(!own.compacted && own.compression.is_none());
    config.set("log.cleanup.policy", "delete").unwrap();
    assert!(!log(&config, &[]).compacted);
    // The finer unit counts, whatever the order.
    for (name, value, expected) in [
        ("log.roll.ms", "5", 5),
        ("log.roll.hours", "2", 5),
        ("log.roll.ms", "", 7_200_000),
        ("log.roll.hours", "168", 604_800_000),
    ] {
        config.set(name, value).unwrap();
        assert_eq!(log(&config, &[]).segment_ms, expected, "{name}={value}");
        assert_eq!(log(&config, &[("segment.ms", "9")]).segment_ms, 9);
    }
    for (name, value, said) in [
        (
            "log.cleanup.policy",
            "delete,shrink",
            "Invalid value shrink for configuration log.cleanup.policy: String must be one of: compact, delete",
        ),
        (
            "log.roll.hours",
            "0",
            "Invalid value 0 for configuration log.roll.hours: Value must be at least 1",
        ),
        (
            "unclean.leader.election.enable",
            "perhaps",
            "Invalid value perhaps for configuration unclean.leader.election.enable: \
             Expected value to be either true or false",
        ),
    ] {
        assert_eq!(config.set(name, value).unwrap_err().to_string(), said);
    }
    let error = config.set("log.cleanup.polic", "compact").unwrap_err().to_string();
    assert!(error.ends_with("did you mean 'log.cleanup.policy'?"), "{error}");
}

#[test]
fn an_unknown_name_names_the_nearest() {
    let error = ClusterConfig::default().set("min.insync.replica", "2").unwrap_err();
    assert_eq!(
        error.to_string(),
        "the embedded cluster has no property 'min.insync.replica'; did you mean 'min.insync.replicas'?"
    );
    let error = ClusterConfig::default().set("colour", "2").unwrap_err();
    assert_eq!(error.to_string(), "the embedded cluster has no property 'colour'");
}

#[test]
fn a_refused_value_is_shown_as_it_was_given() {
    let error = ClusterConfig::default().set("num.partitions", "many").unwrap_err();
    assert_eq!(error.to_string(), "num.partitions=many: expected a count, at least 1");
}

#[test]
fn times_after_which_coordinators_forget_are_those_of_kafka() {
    let mut config = ClusterConfig::default();
    for (name, default) in [
        ("offsets.retention.minutes", "10080"),
        ("offsets.retention.check.interval.ms", "600000"),
        ("transactional.id.expiration.ms", "604800000"),
        ("transaction.remove.expired.transaction.cleanup.interval.ms", "3600000"),
    ] {
        assert_eq!(config.property(name).as_deref(), Some(default), "{name}");
        assert_eq!(config.set_server_property(name, "1"), Ok(Effect::Set), "{name}");
        assert!(config.set_server_property(name, "0").is_err(), "{name}");
    }
    assert_eq!(config.offsets_retention_check_interval, Duration::from_millis(1));
    assert_eq!(config.transactional_id_expiration, Duration::from_millis(1));
    assert_eq!(config.transactional_id_removal_interval, Duration::from_millis(1));
}

#[test]
fn a_value_out_of_range_is_refused() {
    let mut config = ClusterConfig::default();
    for (name, value) in [
        ("group.consumer.assignors", ""),
        ("group.consumer.assignors", "uniform,best"),
        ("group.consumer.assignors", "range,range"),
        ("group.consumer.max.size", "0"),
        ("min.insync.replicas", "0"),
        ("num.partitions", "many"),
        ("auto.create.topics.enable", "yes"),
        ("socket.request.max.bytes", "104857601"),
        ("log.message.timestamp.type", "createtime"),
    ] {
        assert!(matches!(config.set(name, value), Err(ConfigError::Value { .. })), "{name}");
    }
}

#[test]
fn times_beyond_their_range_are_refused_by_name() {
    type Field = fn(&mut ClusterConfig) -> &mut Duration;
    let fields: [Field; 36] = [
        |c| &mut c.replica_lag_time_max,
        |c| &mut c.replica_fetch_wait_max,
        |c| &mut c.replica_fetch_backoff,
        |c| &mut c.broker_session_timeout,
        |c| &mut c.broker_heartbeat_interval,
        |c| &mut c.group_initial_rebalance_delay,
        |c| &mut c.group_min_session_timeout,
        |c| &mut c.group_max_session_timeout,
        |c| &mut c.group_consumer_session_timeout,
        |c| &mut c.group_consumer_min_session_timeout,
        |c| &mut c.group_consumer_max_session_timeout,
        |c| &mut c.group_consumer_heartbeat_interval,
        |c| &mut c.group_consumer_min_heartbeat_interval,
        |c| &mut c.group_consumer_max_heartbeat_interval,
        |c| &mut c.group_consumer_assignment_interval,
        |c| &mut c.group_consumer_regex_refresh_interval,
        |c| &mut c.group_streams_session_timeout,
        |c| &mut c.group_streams_min_session_timeout,
        |c| &mut c.group_streams_max_session_timeout,
        |c| &mut c.group_streams_heartbeat_interval,
        |c| &mut c.group_streams_min_heartbeat_interval,
        |c| &mut c.group_streams_max_heartbeat_interval,
        |c| &mut c.group_streams_initial_rebalance_delay,
        |c| &mut c.group_streams_assignment_interval,
        |c| &mut c.group_streams_max_assignment_interval,
        |c| &mut c.offsets_commit_timeout,
        |c| &mut c.transaction_max_timeout,
        |c| &mut c.offsets_retention_check_interval,
        |c| &mut c.transaction_abort_interval,
        |c| &mut c.transactional_id_expiration,
        |c| &mut c.transactional_id_removal_interval,
        |c| &mut c.log_retention_check_interval,
        |c| &mut c.log_cleaner_backoff,
        |c| &mut c.producer_id_expiration,
        |c| &mut c.security.max_reauth,
        |c| &mut c.security.failed_authentication_delay,
    ];
    for field in fields {
        for beyond in [Duration::from_millis(i32::MAX as u64 + 1), Duration::MAX] {
            let mut config = ClusterConfig::default();
            *field(&mut config) = beyond;
            match config.validate() {
                Err(ConfigError::Value { name, value, .. }) => {
                    assert_eq!(value, beyond.as_millis().to_string(), "{name}");
                }
                other => panic!("{beyond:?}: {other:?}"),
            }
        }
    }
}

#[test]
fn contradicting_settings_are_refused() {
    let ok = ClusterConfig::default();
    ok.validate().unwrap();
    let refused = |change: fn(&mut ClusterConfig)| {
        let mut config = ok.clone();
        change(&mut config);
        config.validate().is_err()
    };
    assert!(refused(|c| c.brokers = 0));
    assert!(refused(|c| c.default_replication_factor = 4));
    assert!(refused(|c| c.broker_heartbeat_interval = Duration::from_secs(10)));
    assert!(refused(|c| c.group_consumer_session_timeout = Duration::from_secs(44)));
    assert!(refused(|c| c.group_consumer_session_timeout = Duration::from_secs(61)));
    assert!(refused(|c| c.group_consumer_heartbeat_interval = Duration::from_secs(4)));
    assert!(refused(|c| c.group_consumer_heartbeat_interval = Duration::from_secs(16)));
    assert!(refused(|c| {
        c.group_consumer_max_heartbeat_interval = Duration::from_secs(60);
        c.group_consumer_heartbeat_interval = c.group_consumer_session_timeout;
    }));
    assert!(refused(|c| c.group_streams_session_timeout = Duration::from_secs(44)));
    assert!(refused(|c| c.group_streams_heartbeat_interval = Duration::from_secs(16)));
    assert!(refused(|c| c.group_streams_assignment_interval = Duration::from_secs(16)));
    assert!(refused(|c| c.group_streams_num_standby_replicas = 3));
    assert!(refused(|c| c.racks = vec!["a".into()]));
    assert!(refused(|c| c.storage = Storage::Disks(vec![])));
}

#[test]
fn mechanism_of_amazon_is_refused() {
    let mut config = ClusterConfig::default();
    config.security.mechanisms.push(Mechanism::AwsMskIam);
    let error = config.validate().unwrap_err().to_string();
    assert!(error.contains("AWS_MSK_IAM is a mechanism of Amazon MSK"), "{error}");
}

#[test]
fn unsigned_tokens_beyond_loopback_need_permission() {
    let mut config = ClusterConfig {
        listeners: Listeners::local(SecurityProtocol::SaslSsl),
        ..ClusterConfig::default()
    };
    config.set("sasl.enabled.mechanisms", "OAUTHBEARER").unwrap();
    config.validate().unwrap();
    for (listeners, advertised) in [
        ("SASL_SSL://0.0.0.0:9092", "SASL_SSL://10.0.0.1:9092"),
        ("SASL_SSL://10.0.0.1:9092", ""),
        ("SASL_SSL://kafka.example:9092", ""),
        ("SASL_SSL://localhost:1;SASL_SSL://localhost:2;SASL_SSL://10.0.0.1:3", ""),
        ("PLAINTEXT://localhost:1,SASL_SSL://:11", "PLAINTEXT://localhost:1,SASL_SSL://h:11"),
    ] {
        let mut config = config.clone();
        config.set("listeners", listeners).unwrap();
        config.set("advertised.listeners", advertised).unwrap();
        let error = config.validate().unwrap_err().to_string();
        assert!(error.contains("sasl.oauthbearer.allow.unsecured.tokens=true"), "{error}");
        assert!(error.contains("unsigned tokens"), "{error}");
        config.set("sasl.oauthbearer.allow.unsecured.tokens", "true").unwrap();
        config.validate().unwrap();
        config.set("sasl.oauthbearer.allow.unsecured.tokens", "false").unwrap();
        config.set("sasl.enabled.mechanisms", "SCRAM-SHA-512").unwrap();
        config.security.users = vec![User::new("alice", "secret")];
        config.validate().unwrap();
    }
}
