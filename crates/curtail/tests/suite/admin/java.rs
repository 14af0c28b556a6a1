//! Kafka's own tools administer the embedded cluster and see this client's changes.

use std::collections::BTreeMap;

use curtail::{
    Record,
    admin::{ConfigChange, ConfigResource, Mode, OffsetSpec},
    config::IsolationLevel,
};
use curtail_apache::Toolchain;

use super::{Backend, admin, at, common, only, topics::described, until};

/// Returns a tool's output; it must succeed.
fn run(toolchain: &Toolchain, backend: &Backend, class: &str, args: &[&str]) -> String {
    let class = format!("org.apache.kafka.tools.{class}");
    let bootstrap = backend.bootstrap();
    let all = [&["--bootstrap-server", &bootstrap][..], args].concat();
    let output = toolchain.tool(&class).short_lived().args(&all).stdin(b"").run().unwrap();
    assert!(output.success(), "{class}: {}{}", output.stdout, output.stderr);
    output.stdout
}

#[tokio::test(flavor = "multi_thread")]
async fn kafkas_tools_administer_the_embedded_cluster() {
    let name = "kafkas_tools_administer_the_embedded_cluster";
    let Some(toolchain) = curtail_apache::require_or_skip(name) else { return };
    let backend = Backend::embedded(3).await;
    let admin = admin(&backend);
    backend.create_topic("ours", 2, 3).await;
    let producer = common::producer(&backend, &[]);
    for _ in 0..5 {
        let record = Record::to("ours").partition(0).value("x");
        producer.send(record).await.unwrap().await.unwrap();
    }
    let change = [ConfigChange::set("retention.ms", "7200000")];
    let topic = ConfigResource::Topic("ours".into());
    let altered = admin.incremental_alter_configs(&[(topic, change.into())], Mode::Apply).await;
    only(altered.unwrap()).unwrap();

    let on_topic = ["--topic", "ours"];
    let grow = [&["--alter", "--partitions", "3"][..], &on_topic].concat();
    run(&toolchain, &backend, "TopicCommand", &grow);
    assert_eq!(described(&backend, "ours", 3).await.partitions[2].replicas.len(), 3);
    let described = [&["--describe"][..], &on_topic].concat();
    let printed = run(&toolchain, &backend, "TopicCommand", &described);
    assert!(printed.contains("PartitionCount: 3"), "{printed}");
    assert!(printed.contains("retention.ms=7200000"), "{printed}");

    let file = tempfile::NamedTempFile::new().unwrap();
    let wanted =
        r#"{"version": 1, "partitions": [{"topic": "ours", "partition": 0, "offset": 3}]}"#;
    std::fs::write(file.path(), wanted).unwrap();
    let path = file.path().to_str().unwrap();
    let printed = run(&toolchain, &backend, "DeleteRecordsCommand", &["--offset-json-file", path]);
    assert!(printed.contains("low_watermark: 3"), "{printed}");
    let first = [(at("ours", 0), OffsetSpec::Earliest)];
    let listed = admin.list_offsets(&first, IsolationLevel::ReadUncommitted).await.unwrap();
    assert_eq!(only(listed).unwrap().offset, Some(3));

    let wanted =
        r#"{"version": 1, "partitions": [{"topic": "ours", "partition": 1, "replicas": [2, 3]}]}"#;
    std::fs::write(file.path(), wanted).unwrap();
    let execute = ["--reassignment-json-file", path, "--execute"];
    let printed = run(&toolchain, &backend, "reassign.ReassignPartitionsCommand", &execute);
    assert!(
        printed.contains("Successfully started partition reassignment for ours-1"),
        "{printed}"
    );
    let ask = async || admin.list_partition_reassignments(None).await.unwrap();
    until(ask, BTreeMap::is_empty).await;
    let verify = ["--reassignment-json-file", path, "--verify"];
    let printed = run(&toolchain, &backend, "reassign.ReassignPartitionsCommand", &verify);
    assert!(printed.contains("Reassignment of partition ours-1 is completed."), "{printed}");

    let printed = run(&toolchain, &backend, "LogDirsCommand", &["--describe"]);
    assert!(printed.contains(r#""partition":"ours-2""#), "{printed}");
}
