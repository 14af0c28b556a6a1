//! The crash test, at a size that shows its structure.

use serde_json::Value;

use crate::common::run;

#[test]
fn a_short_crash_test_on_the_embedded_cluster_holds() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let json = file.path().to_str().unwrap();
    let out = run(&[
        "lab",
        "kills",
        "--cluster",
        "embedded",
        "--broker-kills",
        "1",
        "--copy-kills",
        "1",
        "--json",
        json,
    ]);
    assert_eq!(out.code, Some(0), "{out:?}");
    let report: Value =
        serde_json::from_str(&std::fs::read_to_string(file.path()).unwrap()).unwrap();
    let kills = ["broker_kills", "copy_broker_kills", "copy_client_kills"];
    for name in kills {
        assert_eq!(report[name], 1, "{name}: {report}");
    }
    let topics = report["topics"].as_array().unwrap();
    assert_eq!(topics.len(), 3, "{report}");
    for topic in topics {
        let acknowledged = topic["acknowledged"].as_u64().unwrap();
        assert!(acknowledged > 0 && topic["sent"] == acknowledged, "{topic}");
        assert_eq!(topic["readings"][0]["records"], acknowledged, "{topic}");
    }
}

#[test]
fn a_cluster_of_others_is_not_killed() {
    let out = run(&["lab", "kills", "--cluster", "localhost:9092"]);
    assert_eq!(out.code, Some(1), "{out:?}");
    assert!(out.err.contains("this command kills brokers"), "{out:?}");
}

#[test]
fn a_crash_test_without_kills_is_refused_at_once() {
    let said = run(&["lab", "kills", "--broker-kills", "0", "--copy-kills", "0"]).failed();
    assert_eq!(said, "nothing to kill: --broker-kills or --copy-kills must be above 0");
}
