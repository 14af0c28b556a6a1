//! Topologies and the topics they need.

use std::collections::BTreeMap;

use curtail_wire::cold::newer::streams::{CopartitionGroup, KeyValue, Subtopology, TopicInfo};

use super::{
    super::{configure::configure, *},
    bench::{Bench, DELAY, internal, join_of, joining, word_count},
    codes,
};

/// Configures a topology for topics of these sizes.
fn configured(topology: &Topology, sizes: &[(&str, i32)]) -> Result<Configured, Refused> {
    let sizes: BTreeMap<&str, i32> = sizes.iter().copied().collect();
    configure(topology, &|topic| sizes.get(topic).copied())
}

fn problem(topology: &Topology, sizes: &[(&str, i32)]) -> (i8, String) {
    let problem = configured(topology, sizes).unwrap().problem.unwrap();
    (problem.code, problem.detail)
}

fn tasks(configured: &Configured) -> Vec<i32> {
    configured.subtopologies.values().map(|subtopology| subtopology.tasks).collect()
}

fn of(id: &str, sources: &[&str]) -> Subtopology {
    let source_topics = sources.iter().map(|topic| (*topic).to_owned()).collect();
    Subtopology { subtopology_id: id.into(), source_topics, ..Subtopology::default() }
}

fn topology(subtopologies: Vec<Subtopology>) -> Topology {
    Topology { epoch: 0, subtopologies }
}

#[test]
fn internal_topics_have_as_many_partitions_as_their_sources() {
    let word_count = word_count();
    let (code, detail) = problem(&word_count, &[]);
    assert_eq!(code, Status::MissingSourceTopics as i8);
    assert!(detail.contains("lines"), "{detail}");

    let missing = configured(&word_count, &[("lines", 3)]).unwrap();
    assert_eq!(tasks(&missing), [3, 3]);
    let specs = missing.missing.iter();
    let specs: Vec<_> =
        specs.map(|spec| (&*spec.name, spec.partitions, spec.replication_factor)).collect();
    assert_eq!(specs, [("counts", 3, -1), ("words", 3, -1)]);
    let (code, detail) = problem(&word_count, &[("lines", 3)]);
    assert_eq!(code, Status::MissingInternalTopics as i8);
    assert!(detail.contains("counts, words"), "{detail}");

    let ready = configured(&word_count, &[("lines", 3), ("words", 3), ("counts", 3)]).unwrap();
    assert!(ready.is_ready() && ready.missing.is_empty());
    assert!(ready.subtopologies["1"].is_stateful() && !ready.subtopologies["0"].is_stateful());

    let wrong = [("lines", 3), ("words", 3), ("counts", 2)];
    let (code, detail) = problem(&word_count, &wrong);
    assert_eq!(code, Status::IncorrectlyPartitionedTopics as i8);
    assert!(detail.contains("counts") && detail.contains('2') && detail.contains('3'), "{detail}");
}

#[test]
fn internal_topics_are_created_with_the_topologys_settings() {
    let cleanup = KeyValue { key: "cleanup.policy".into(), value: "compact".into() };
    let changelog =
        TopicInfo { replication_factor: 2, topic_configs: vec![cleanup], ..internal("counts", 0) };
    let mut word_count = word_count();
    word_count.subtopologies[1].state_changelog_topics = vec![changelog];
    word_count.subtopologies[1].repartition_source_topics = vec![internal("words", 7)];
    let configured = configured(&word_count, &[("lines", 3)]).unwrap();
    assert_eq!(tasks(&configured), [3, 7], "a fixed number of partitions");
    let counts = &configured.missing[0];
    assert_eq!((counts.partitions, counts.replication_factor), (7, 2));
    assert_eq!(counts.configs, [("cleanup.policy".to_owned(), "compact".to_owned())]);
}

#[test]
fn repartition_topics_in_a_row_take_their_numbers_from_each_other() {
    // The subtopology that is listed first depends on the last one.
    let last = Subtopology { repartition_source_topics: vec![internal("r2", 0)], ..of("0", &[]) };
    let middle = Subtopology {
        repartition_source_topics: vec![internal("r1", 0)],
        repartition_sink_topics: vec!["r2".into()],
        ..of("1", &[])
    };
    let first = Subtopology { repartition_sink_topics: vec!["r1".into()], ..of("2", &["a", "b"]) };
    let configured = configured(&topology(vec![last, middle, first]), &[("a", 2), ("b", 5)]);
    assert_eq!(tasks(&configured.unwrap()), [5, 5, 5]);
}

#[test]
fn copartitioned_topics_need_the_same_number_of_partitions() {
    let join = join_of(&["a", "b"]);
    assert_eq!(tasks(&configured(&join, &[("a", 4), ("b", 4)]).unwrap()), [4]);
    let (code, detail) = problem(&join, &[("a", 4), ("b", 3)]);
    assert_eq!(code, Status::IncorrectlyPartitionedTopics as i8);
    assert!(detail.contains("a=4, b=3"), "{detail}");

    // A join of a topic with a repartition topic that other sources would make larger.
    let joined = |repartition: TopicInfo| {
        let writes =
            Subtopology { repartition_sink_topics: vec!["r".into()], ..of("0", &["large"]) };
        let group = CopartitionGroup {
            source_topics: vec![0],
            repartition_source_topics: vec![0],
            ..CopartitionGroup::default()
        };
        let joins = Subtopology {
            repartition_source_topics: vec![repartition],
            copartition_groups: vec![group],
            ..of("1", &["a"])
        };
        topology(vec![writes, joins])
    };
    let sizes = [("large", 9), ("a", 4)];
    let flexible = configured(&joined(internal("r", 0)), &sizes).unwrap();
    assert_eq!((flexible.missing[0].partitions, tasks(&flexible)), (4, vec![9, 4]));
    let (code, detail) = problem(&joined(internal("r", 5)), &sizes);
    assert_eq!(code, Status::IncorrectlyPartitionedTopics as i8);
    assert!(detail.contains("r has 5"), "{detail}");

    // Only repartition topics: the largest one counts, or a fixed one.
    let all_internal = |second: TopicInfo| {
        let writes = |id: &str, to: &str, from: &str| Subtopology {
            repartition_sink_topics: vec![to.into()],
            ..of(id, &[from])
        };
        let group = CopartitionGroup {
            repartition_source_topics: vec![0, 1],
            ..CopartitionGroup::default()
        };
        let joins = Subtopology {
            repartition_source_topics: vec![internal("r", 0), second],
            copartition_groups: vec![group],
            ..of("2", &[])
        };
        topology(vec![writes("0", "r", "a"), writes("1", "s", "large"), joins])
    };
    assert_eq!(tasks(&configured(&all_internal(internal("s", 0)), &sizes).unwrap()), [4, 9, 9]);
    assert_eq!(tasks(&configured(&all_internal(internal("s", 2)), &sizes).unwrap()), [4, 9, 2]);
}

#[test]
fn impossible_topologies_are_refused() {
    let circle = Subtopology {
        repartition_source_topics: vec![internal("r", 0)],
        repartition_sink_topics: vec!["r".into()],
        ..of("0", &[])
    };
    let unwritten =
        Subtopology { repartition_source_topics: vec![internal("r", 0)], ..of("0", &["a"]) };
    let group = CopartitionGroup { source_topics: vec![1], ..CopartitionGroup::default() };
    let beyond = Subtopology { copartition_groups: vec![group], ..of("0", &["a"]) };
    let negative =
        Subtopology { repartition_source_topics: vec![internal("r", -1)], ..of("0", &["a"]) };
    let invalid = ErrorCode::STREAMS_INVALID_TOPOLOGY;
    for (what, subtopology, code) in [
        ("a circle", circle, invalid),
        ("no writer", unwritten, invalid),
        ("no sources", of("0", &[]), invalid),
        // Kafka fails with an unexpected exception.
        ("an index beyond the topics", beyond, ErrorCode::UNKNOWN_SERVER_ERROR),
        ("a negative number", negative, ErrorCode::UNKNOWN_SERVER_ERROR),
    ] {
        let refused = configured(&topology(vec![subtopology]), &[("a", 1)]).unwrap_err();
        assert_eq!(refused.code, code, "{what}: {}", refused.reason);
    }
}

/// Tasks and internal topics are kept in memory, and one name of a topic may stand in every subtopology.
#[test]
fn topologies_with_more_tasks_than_a_cluster_can_serve_are_refused() {
    let many = |number: i32| {
        let all = (0..number).map(|id| of(&id.to_string(), &["lines"])).collect();
        configured(&topology(all), &[("lines", 1_000)]).map(|configured| configured.is_ready())
    };
    assert!(many(100).unwrap());
    assert_eq!(many(101).unwrap_err().code, ErrorCode::STREAMS_INVALID_TOPOLOGY);

    let mut one = of("0", &["lines"]);
    one.state_changelog_topics =
        (0..101).map(|number| internal(&format!("c{number}"), 0)).collect();
    let refused = configured(&topology(vec![one]), &[("lines", 1_000)]).unwrap_err();
    assert_eq!(refused.code, ErrorCode::STREAMS_INVALID_TOPOLOGY);
}

#[test]
fn many_missing_topics_are_counted() {
    let names = ["a", "b", "c", "d", "e"];
    let (_, detail) = problem(&topology(vec![of("0", &names)]), &[]);
    assert!(detail.ends_with("a, b, c and 2 more"), "{detail}");
}

#[test]
fn the_group_starts_once_its_topics_exist() {
    let mut bench = Bench::new();
    bench.set(|settings| settings.initial_delay = Duration::ZERO);
    let first = bench.send(joining("a", &word_count())).unwrap();
    assert_eq!(codes(&first.status), [Status::MissingSourceTopics as i8]);
    assert_eq!((first.epoch, bench.group.state()), (2, StreamsState::NotReady));
    assert_eq!(bench.group.value.validated_epoch, -1);
    bench.world.add("lines", 2);
    bench.pass(DELAY);
    let beat = bench.beat("a");
    assert_eq!(codes(&beat.status), [Status::MissingInternalTopics as i8]);
    assert_eq!(beat.missing.len(), 2);
    // They are told until they exist, without further epochs.
    let epoch = bench.group.epoch();
    assert_eq!((bench.beat("a").missing.len(), bench.group.epoch()), (2, epoch));
    bench.world.add("words", 2);
    bench.world.add("counts", 2);
    bench.pass(DELAY);
    let ready = bench.beat("a");
    assert!(ready.status.is_empty() && ready.missing.is_empty());
    assert_eq!(
        (bench.tasks("a"), bench.group.state()),
        ("0[0 1]1[0 1]".to_owned(), StreamsState::Stable,)
    );
    // A source topic that grows makes the internal topics wrong, and one that is gone stops all tasks.
    bench.world.add("lines", 3);
    bench.pass(DELAY);
    let grown = bench.beat("a");
    assert_eq!(codes(&grown.status), [Status::IncorrectlyPartitionedTopics as i8]);
    bench.world.remove("lines");
    bench.pass(DELAY);
    assert_eq!(codes(&bench.beat("a").status), [Status::MissingSourceTopics as i8]);
    assert_eq!((bench.tasks("a"), bench.group.state()), (String::new(), StreamsState::NotReady));
}
