use std::time::Duration;

use super::{duration, throughput};

#[test]
fn times_have_units() {
    for (text, micros) in [
        ("50ms", 50_000),
        ("1.5s", 1_500_000),
        ("800us", 800),
        (" 2 m ", 120_000_000),
        ("1h", 3_600_000_000),
    ] {
        assert_eq!(duration(text), Ok(Duration::from_micros(micros)), "{text}");
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
        assert_eq!(throughput(text), Ok(bytes), "{text}");
    }
    for text in ["50 parsecs", "90MB", "90/s", "0MB/s", "90mb/s", "MB/s"] {
        let error = throughput(text).unwrap_err();
        assert!(error.contains(text) && error.contains("90MB/s"), "{error}");
    }
}
