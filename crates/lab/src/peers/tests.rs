use std::{ffi::OsString, fmt::Write as _, time::Duration};

use super::{
    driver::{Drained, InTurn, Measured, Order, Reading, RoundTrips, Until},
    fates::{Place, SIZE, Told, read},
    *,
};
use crate::cpu::CpuTime;

#[test]
fn names_are_read_as_they_are_written() {
    let ours = [Client::Curtail, Client::CurtailCompletions];
    for client in ours.into_iter().chain(Peer::ALL.map(Client::Peer)) {
        assert_eq!(client.to_string().parse::<Client>().unwrap(), client);
    }
    let error = "kafkajs".parse::<Client>().unwrap_err().to_string();
    assert!(
        error.contains("unknown client 'kafkajs'")
            && error.contains("curtail, curtail-completions, java, java-3.9, java-3.6")
    );
}

#[test]
fn a_client_takes_the_settings_it_has() {
    let availability = ("partitioner.availability.timeout.ms", "5");
    for (peer, (name, value), takes) in [
        (Peer::Java, ("curtail.leader.discovery", "hint"), false),
        (Peer::Java, availability, true),
        (Peer::Java39, ("group.protocol", "consumer"), true),
        (Peer::Java39, ("metadata.recovery.rebootstrap.trigger.ms", "1"), false),
        (Peer::Java36, availability, true),
        (Peer::Java32, availability, false),
        (Peer::Java28, ("acks", "1"), true),
        (Peer::Java36, ("group.protocol", "classic"), false),
        (Peer::ConfluentRust, ("group.protocol", "consumer"), true),
        (Peer::ConfluentRust, ("group.protocol", "classic"), false),
        (Peer::FranzGo, ("group.protocol", "classic"), true),
        (Peer::FranzGo, ("group.protocol", "consumer"), false),
        (Peer::FranzGo, ("request.timeout.ms", "1000"), false),
        (Peer::Krafka, ("group.protocol", "consumer"), false),
        (Peer::Krafka, ("compression.type", "zstd"), false),
        (Peer::Krafka, ("acks", "all"), true),
        (Peer::Librdkafka, ("linger.ms", "0"), true),
        (Peer::Librdkafka, availability, false),
    ] {
        assert_eq!(peer.takes(name, value), takes, "{peer:?} {name}={value}");
    }
    let properties = [("linger.ms", "0"), availability];
    let lacks = Peer::FranzGo.lacks(&properties).unwrap();
    assert_eq!(lacks, "it does not support partitioner.availability.timeout.ms=5");
    assert_eq!(Peer::Java.lacks(&properties), None);
}

fn bytes(sent: i64, acknowledged: i64, partition: i32, offset: i64) -> Vec<u8> {
    let mut bytes = [sent.to_le_bytes(), acknowledged.to_le_bytes()].concat();
    bytes.extend(partition.to_le_bytes());
    bytes.extend(offset.to_le_bytes());
    assert_eq!(bytes.len(), SIZE);
    bytes
}

#[test]
fn fates_are_read_as_they_are_documented() {
    let all = [bytes(5, 7, 2, 9), bytes(6, -1, -1, -1), bytes(6, 6, 0, -1)].concat();
    let place = |at, partition, offset| Some(Place { at, partition, offset });
    let expected = [
        Told { sent: 5, acknowledged: place(7, 2, Some(9)) },
        Told { sent: 6, acknowledged: None },
        Told { sent: 6, acknowledged: place(6, 0, None) },
    ];
    assert_eq!(read(&all, 3).unwrap(), expected);
    assert!(read(&all, 2).is_err());
    assert!(read(&all[..SIZE + 1], 1).is_err());
}

#[test]
fn malformed_fates_are_rejected() {
    for wrong in [bytes(-1, 7, 2, 9), bytes(8, 7, 2, 9), bytes(5, -2, 2, 9), bytes(5, 7, -1, 9)] {
        assert!(read(&wrong, 1).is_err(), "{wrong:?}");
    }
}

fn order() -> Order {
    Order {
        bootstrap: "127.0.0.1:1,127.0.0.1:2".into(),
        topic: "t".into(),
        records: 2,
        warmup: 3,
        rate: 1000.0,
        size: 100,
        keys: Some(7),
        senders: InTurn { producers: 3, partitions: vec![4, 0], burst: 2 },
        until: Until::Acknowledged,
        seed: 9,
        properties: vec![("linger.ms".into(), "0".into())],
    }
}

/// A driver that is a shell script, which receives the driver's command line.
pub(super) fn script(text: &str) -> Driver {
    let words = ["sh", "-c", text, "driver"].map(OsString::from);
    Driver::new(Peer::FranzGo, words.into())
}

/// Sets `fates` and `json` to the paths on the command line.
pub(super) const FIND: &str = r#"
    words="$*"
    while [ $# -gt 0 ]; do
        case "$1" in --fates) fates="$2";; --json) json="$2";; esac
        shift
    done
"#;
const JSON: &str = r#"echo '{"tool":"load","cpu_user_us":1500,"cpu_system_us":500}' > "$json"; "#;

/// Runs the script up to its end.
fn run(text: &str) -> Result<Measured> {
    script(&format!("{FIND}{text}")).load(&order())?.go()?.0.finish()
}

/// A shell command that writes fates.
fn write_fates(fates: &[Vec<u8>]) -> String {
    let mut escaped = String::new();
    for byte in fates.concat() {
        let _ = write!(escaped, "\\{byte:03o}");
    }
    format!("printf '{escaped}' > \"$fates\"; ")
}

#[test]
fn a_driver_receives_its_order_and_its_output_is_read() {
    let fates = write_fates(&[bytes(5, 7, 2, 9), bytes(6, -1, -1, -1)]);
    let text = format!(
        "echo ready; read go when; echo \"first error: $go $words\" >&2; \
         test \"$when\" -gt 0 || exit 3; {fates}{JSON} echo 2 records"
    );
    let measured = run(&text).unwrap();
    assert_eq!(measured.fates.len(), 2);
    assert_eq!(measured.fates[0].sent, 5);
    assert_eq!(measured.cpu.total(), std::time::Duration::from_millis(2));
    let told = measured.first_error.unwrap();
    let expected = "go load --bootstrap-server 127.0.0.1:1,127.0.0.1:2 --topic t --num-records 5 \
                    --warmup-records 3 --throughput 1000 --record-size 100 --seed 9 --keys 7 \
                    --producers 3 --to-partitions 4,0 --burst 2 \
                    --command-property linger.ms=0 --fates ";
    assert!(told.starts_with(expected), "{told}");
}

#[test]
fn a_driver_that_reads_the_load_receives_until_read() {
    let fates = write_fates(&[bytes(5, 7, 2, 9), bytes(6, 8, 2, 10)]);
    let text = format!(
        "{FIND}echo ready; read go; echo \"first error: $words\" >&2; {fates}{JSON} echo 2 records"
    );
    let order = Order { until: Until::Read, ..order() };
    let measured = script(&text).load(&order).unwrap().go().unwrap().0.finish().unwrap();
    let told = measured.first_error.unwrap();
    assert!(
        told.contains(
            " --keys 7 --producers 3 --to-partitions 4,0 --burst 2 --until read --command-property "
        ),
        "{told}"
    );
}

#[test]
fn a_round_trip_driver_starts_without_go() {
    let fates = write_fates(&[bytes(5, 7, 2, 9)]);
    let trips = RoundTrips {
        bootstrap: "b:1".into(),
        topic: "t".into(),
        records: 1,
        warmup: 1,
        size: 8,
        acks: "1",
        properties: Vec::new(),
    };
    let text = format!("{FIND}echo \"first error: $words\" >&2; {fates}{JSON}");
    let measured = script(&text).round_trips(&trips).unwrap();
    assert_eq!(measured.fates.len(), 1);
    let expected = "e2e --bootstrap-server b:1 --topic t --num-records 2 --warmup-records 1 \
                    --record-size 8 --producer-acks 1 --fates ";
    assert!(measured.first_error.unwrap().starts_with(expected));
}

#[test]
fn a_driver_that_reads_a_topic_reports_totals() {
    let reading = Reading { bootstrap: "b:1".into(), topic: "t".into(), records: 30 };
    let json =
        r#"{"records":30,"record_size":100,"seconds":0.5,"cpu_user_us":7,"cpu_system_us":2}"#;
    let words = r#"[ "$1 $3 $5 $7" = "consume b:1 t 30" ] || exit 9;"#;
    let drained = script(&format!("{words} {FIND} echo '{json}' > \"$json\"")).read(&reading);
    let us = Duration::from_micros;
    assert_eq!(
        drained.unwrap(),
        Drained {
            records: 30,
            bytes: 3000,
            elapsed: Duration::from_millis(500),
            cpu: CpuTime { user: us(7), system: us(2) },
        }
    );
    let unread = script(&format!("{FIND} echo '{{}}' > \"$json\"")).read(&reading);
    let error = unread.unwrap_err().to_string();
    assert!(error.contains("has written unreadable figures: missing field"), "{error}");
}

#[test]
fn a_failed_driver_is_an_error_with_its_last_stderr_lines() {
    let fates = write_fates(&[bytes(5, 7, 2, 9)]);
    let short = format!("echo ready; read go; {fates}{JSON}");
    for (text, expected) in [
        ("echo no broker >&2; exit 1", "has ended (exit status: 1); last stderr lines: no broker"),
        ("kill -9 $$", "has ended (signal: 9 (SIGKILL)); last stderr lines: nothing"),
        (
            "echo Killroy was here; echo a >&2; echo b >&2; exec sleep 60",
            "says \"Killroy was here\" instead of \"ready\"; last stderr lines: ",
        ),
        (
            "echo ready; read go; echo lost >&2; exit 4",
            "has ended (exit status: 4); last stderr lines: lost",
        ),
        ("echo ready; read go; true", "has written no json: "),
        ("echo ready; read go; echo rubbish > \"$json\"", "has written unreadable figures: "),
        (&short, "has written 28 bytes of fates for 2 records of 28 bytes"),
    ] {
        let error = run(text).unwrap_err().to_string();
        assert!(error.starts_with("the driver of franz-go "), "{error}");
        assert!(error.contains(expected), "{error}");
    }
    let missing = Driver::new(Peer::FranzGo, vec!["/no/such/driver".into()]);
    let error = missing.load(&order()).err().unwrap().to_string();
    assert!(error.starts_with("franz-go does not start: "), "{error}");
}
