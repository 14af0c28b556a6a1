//! Every example runs to its end and prints what it promises.

use std::{error::Error, process::Command};

use curtail_examples::Brokers;

const PROGRAMS: [(&str, &str, &[&str]); 13] = [
    (
        "first_record",
        env!("CARGO_BIN_EXE_first_record"),
        &["read 42.00 at offset", "header trace-id=Some(\"7f3a\")", "header retried=None"],
    ),
    ("batches", env!("CARGO_BIN_EXE_batches"), &["10000 of 10000 records written"]),
    (
        "group",
        env!("CARGO_BIN_EXE_group"),
        &["assigned", "100 records done and committed", "revoked"],
    ),
    ("by_partition", env!("CARGO_BIN_EXE_by_partition"), &["1000 of 1000 records processed"]),
    ("by_key", env!("CARGO_BIN_EXE_by_key"), &["500 transfers scored"]),
    (
        "exactly_once",
        env!("CARGO_BIN_EXE_exactly_once"),
        &["killed the worker", "killed a broker", "1000 of 1000 orders have exactly one invoice"],
    ),
    (
        "transactions",
        env!("CARGO_BIN_EXE_transactions"),
        &["debits: 10.00 20.00", "credits: 10.00 20.00"],
    ),
    (
        "metrics_over_http",
        env!("CARGO_BIN_EXE_metrics_over_http"),
        &[
            "HTTP/1.1 200 OK",
            "text/plain",
            "curtail_consumer_records_total{client_id=\"curtail\"} 100",
        ],
    ),
    (
        "tracing",
        env!("CARGO_BIN_EXE_tracing"),
        &[
            "order 00-",
            "otel.name=send orders otel.kind=\"producer\"",
            "otel.name=\"Produce\" otel.kind=\"client\"",
            "poll 00-",
            "rebalance 00-",
            "commit 00-",
            "process 00-",
            "one trace: true",
        ],
    ),
    (
        "tls_and_sasl",
        env!("CARGO_BIN_EXE_tls_and_sasl"),
        &["written at offset Some(0) over TLS", "refused: "],
    ),
    (
        "admin",
        env!("CARGO_BIN_EXE_admin"),
        &["created ledger", "6 partitions", "retention.ms=3600000", "deleted ledger"],
    ),
    ("threads", env!("CARGO_BIN_EXE_threads"), &["4000 of 4000 records written"]),
    ("broker_dies", env!("CARGO_BIN_EXE_broker_dies"), &["1000 of 1000 records acknowledged"]),
];

#[test]
fn every_example_starts_its_own_cluster_and_prints_what_it_promises() -> Result<(), Box<dyn Error>>
{
    for (name, path, promised) in PROGRAMS {
        let output = Command::new(path).output()?;
        let printed = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {printed}{errors}");
        for line in promised {
            assert!(printed.contains(line), "{name} did not print {line}: {printed}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_example_uses_the_brokers_of_its_argument() -> Result<(), Box<dyn Error>> {
    let brokers = Brokers::embedded().await?;
    let bootstrap = brokers.bootstrap().to_owned();
    let path = env!("CARGO_BIN_EXE_first_record");
    // The second run reads its own record, after that of the first one.
    for _ in 0..2 {
        let bootstrap = bootstrap.clone();
        let run = move || Command::new(path).arg(bootstrap).output();
        let output = tokio::task::spawn_blocking(run).await??;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// The list above is complete.
#[test]
fn every_program_is_run() -> Result<(), Box<dyn Error>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/bin");
    let found = std::fs::read_dir(folder)?.count();
    assert_eq!(found, PROGRAMS.len());
    Ok(())
}
