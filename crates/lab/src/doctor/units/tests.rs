use std::time::Duration;

use super::{Throughput, Time, duration, throughput};

#[test]
fn times_have_units() {
    for (text, micros) in [
        ("50ms", 50_000),
        ("1.5s", 1_500_000),
        ("800us", 800),
        (" 2 m ", 120_000_000),
        ("1h", 3_600_000_000),
    ] {
        let duration = duration(text).map(|time| time.duration);
        assert_eq!(duration, Ok(Duration::from_micros(micros)), "{text}");
    }
    for text in ["50 parsecs", "50", "ms", "0ms", "-1s", "1e400s", "1.2.3s", ""] {
        let error = duration(text).unwrap_err();
        assert!(error.contains(text) && error.contains("50ms"), "{error}");
    }
}

#[test]
fn throughputs_are_bytes_a_second() {
    for (text, bytes) in
        [("90MB/s", 94_371_840.0), ("1 KiB/s", 1024.0), ("0.5GB/s", 536_870_912.0), ("7B/s", 7.0)]
    {
        let rate = throughput(text).map(|rate| rate.bytes_per_second);
        assert_eq!(rate, Ok(bytes), "{text}");
    }
    for text in ["50 parsecs", "90MB", "90/s", "0MB/s", "90mb/s", "MB/s"] {
        let error = throughput(text).unwrap_err();
        assert!(error.contains(text) && error.contains("90MB/s"), "{error}");
    }
}

#[test]
fn times_and_throughputs_keep_the_unit_that_was_written() {
    let time = |text| duration(text).unwrap();
    assert_eq!(time("1.5s").to_string(), "1.5 s");
    assert_eq!(time("0.3 ms").to_string(), "0.3 ms");
    assert_eq!(
        (time("1.5s").unit().number(1.204), time("1.5s").unit().name()),
        ("1.20".into(), "s")
    );
    assert_eq!(
        [0.0123, 0.0023, 0.000_123].map(|s| time("1s").unit().number(s)),
        ["0.0123", "0.00230", "0.000123"]
    );
    // A measured latency in hours would have no digits.
    assert_eq!(
        (time("1h").to_string(), time("1h").unit().number(0.012)),
        ("1 h".into(), "12.00".into())
    );
    let rate = |text| throughput(text).unwrap();
    assert_eq!(rate("0.5MB/s").to_string(), "0.5 MB/s");
    assert_eq!(rate("0.5MB/s").unit().number(499.0 * 1024.0), "0.487");
    assert_eq!(rate("90 KiB/s").unit().name(), "KiB/s");
}

#[test]
fn numbers_without_a_text_are_milliseconds_and_bytes_a_second() {
    let time = |micros| Time::from(Duration::from_micros(micros)).to_string();
    assert_eq!([time(50_000), time(29_000), time(500)], ["50 ms", "29 ms", "0.5 ms"]);
    assert_eq!(Time::from(Duration::from_secs(2)).unit().number(1.5), "1500.00");
    let rate = Throughput::bytes(5e6);
    assert_eq!(
        (rate.to_string(), rate.unit().number(4_998_123.4)),
        ("5000000 B/s".into(), "4998123".into())
    );
}
