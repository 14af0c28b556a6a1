use std::{fmt::Write as _, time::Instant};

use super::*;
use crate::peers::tests::{FIND, script};

fn bytes(consumer: u32, partition: i32, offset: i64, number: u64, at: i64) -> Vec<u8> {
    let mut bytes = consumer.to_le_bytes().to_vec();
    bytes.extend(partition.to_le_bytes());
    bytes.extend(offset.to_le_bytes());
    bytes.extend(number.to_le_bytes());
    bytes.extend(at.to_le_bytes());
    assert_eq!(bytes.len(), SIZE);
    bytes
}

fn followed(partition: i32, offset: i64, number: u64, at: u64) -> Followed {
    Followed { partition, offset, number, at }
}

#[test]
fn readings_are_read_by_consumer_as_they_are_documented() {
    let all = [bytes(1, 2, 9, 0, 70), bytes(0, 0, 3, 1 << 40, 50), bytes(1, 2, 10, 1, 80)].concat();
    let expected =
        [vec![followed(0, 3, 1 << 40, 50)], vec![followed(2, 9, 0, 70), followed(2, 10, 1, 80)]];
    assert_eq!(read(&all, 2).unwrap(), expected);
    assert_eq!(read(&[], 2).unwrap(), [vec![], vec![]]);
}

#[test]
fn malformed_readings_are_rejected() {
    for wrong in
        [bytes(2, 0, 0, 0, 0), bytes(0, -1, 0, 0, 0), bytes(0, 0, -1, 0, 0), bytes(0, 0, 0, 0, -1)]
    {
        let all = [bytes(0, 0, 0, 0, 0), wrong].concat();
        assert_eq!(read(&all, 2).unwrap_err(), "a malformed reading, number 1");
    }
    assert_eq!(read(&[0; 33], 1).unwrap_err(), "33 bytes of readings of 32 bytes");
}

fn follow() -> Follow {
    Follow {
        bootstrap: "b:1".into(),
        topic: "t".into(),
        records: 3,
        length: Duration::from_secs(1),
        wanted: Wanted {
            consumers: 2,
            from_beginning: vec![0, 4],
            backlog: 7,
            read_first: 5,
            work: Duration::from_millis(6),
        },
        properties: vec![("fetch.max.bytes".into(), "16384".into())],
    }
}

/// Runs a shell script as the driver, up to its end.
fn run(text: &str, start: Instant) -> Result<(Vec<Vec<Followed>>, CpuTime)> {
    let driver = script(&format!("{FIND} echo ready; read go when; {text}"));
    driver.follow(&follow())?.go_at(start)?.followed(2)
}

const JSON: &str = r#"echo '{"cpu_user_us":1500,"cpu_system_us":500}' > "$json"; "#;

#[test]
fn a_driver_receives_consumers_and_the_start_of_the_load() {
    let words = "follow --bootstrap-server b:1 --topic t --num-records 3 --consumers 2 --backlog 7 --read-first 5 \
                 --work-ms 6 --from-beginning 0,4 --command-property fetch.max.bytes=16384 --fates ";
    let mut escaped = String::new();
    for byte in bytes(1, 2, 9, 0, 70) {
        let _ = write!(escaped, "\\{byte:03o}");
    }
    let start = Instant::now();
    let text = format!(
        "case \"$words\" in \"{words}\"*) ;; *) echo \"$words\" >&2; exit 3;; esac; \
         test \"$when\" -gt 0 || exit 4; printf '{escaped}' > \"$fates\"; {JSON}"
    );
    let (read, cpu) = run(&text, start).unwrap();
    assert_eq!(read, [vec![], vec![followed(2, 9, 0, 70)]]);
    assert_eq!(cpu.total(), Duration::from_millis(2));
}

#[test]
fn a_driver_that_fails_to_follow_is_an_error_with_its_last_stderr_lines() {
    for (text, expected) in [
        ("echo no broker >&2; exit 1", "has ended (exit status: 1); last stderr lines: no broker"),
        (JSON, "has written no fates: "),
        ("printf abc > \"$fates\"", "has written 3 bytes of readings of 32 bytes"),
        (": > \"$fates\"; echo rubbish > \"$json\"", "has written unreadable figures: "),
    ] {
        let error = run(text, Instant::now()).unwrap_err().to_string();
        assert!(error.starts_with("the driver of franz-go "), "{error}");
        assert!(error.contains(expected), "{error}");
    }
}
