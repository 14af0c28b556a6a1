use super::{Generator, Payloads, java::Random};

fn payloads(json: &str) -> Result<Payloads, String> {
    let generator: Generator = serde_json::from_str(json).map_err(|error| error.to_string())?;
    Payloads::new(&generator).map_err(|error| error.to_string())
}

/// Expected values from Java 17: `new Random(42)` with nextInt() twice, nextInt(100), nextGaussian(); `new
/// Random(-5)` with nextBytes() of six.
#[test]
fn random_numbers_are_those_of_java() {
    let mut bytes = [0; 8];
    Random::new(42).fill(&mut bytes);
    let number = |at: usize| i32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    assert_eq!([number(0), number(4)], [-1_170_105_035, 234_785_527]);
    assert_eq!(Random::new(42).below_hundred(), 30);
    let mut six = [0; 6];
    Random::new(-5).fill(&mut six);
    assert_eq!(six.map(|byte| byte as i8), [102, -24, -16, 68, 67, -12]);
    assert!((Random::new(42).gaussian() - 1.141_905_315_473_054_7).abs() < 1e-12);
}

#[test]
fn payloads_are_those_of_the_generator() {
    for (json, position, bytes) in [
        (r#"{"type":"constant","size":3}"#, 7, Some(vec![0, 0, 0])),
        (r#"{"type":"constant","size":5,"value":"AQI="}"#, 7, Some(vec![1, 2, 1, 2, 1])),
        (r#"{"type":"sequential","size":2}"#, 0x0102_0304, Some(vec![4, 3])),
        (
            r#"{"type":"sequential","size":10,"offset":1}"#,
            8,
            Some(vec![9, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        ),
        (r#"{"type":"null"}"#, 7, None),
        (r#"{"type":"timestampConstant","size":9}"#, 7, Some(vec![44, 1, 0, 0, 0, 0, 0, 0, 0])),
        (
            r#"{"type":"randomComponent","components":[{"percent":100,"component":{"type":"null"}}]}"#,
            7,
            None,
        ),
    ] {
        assert_eq!(payloads(json).unwrap().get(position, 300), bytes, "{json}");
    }
}

#[test]
fn random_payloads_are_the_same_each_time() {
    let json = r#"{"type":"uniformRandom","size":32,"seed":123,"padding":10}"#;
    let (mut one, mut other) = (payloads(json).unwrap(), payloads(json).unwrap());
    let (first, second) = (one.get(0, 1).unwrap(), one.get(1, 1).unwrap());
    assert_eq!(other.get(0, 2).unwrap(), first);
    assert_ne!(first[..22], second[..22]);
    assert_eq!(first[22..], second[22..], "padding");
}

#[test]
fn a_gaussian_size_holds_for_several_records() {
    let json = r#"{"type":"gaussianTimestampRandom","messageSizeAverage":512,"messageSizeDeviation":100,
        "messagesUntilSizeChange":10}"#;
    let mut payloads = payloads(json).unwrap();
    let sizes: Vec<usize> = (0..100).map(|at| payloads.get(at, 0).unwrap().len()).collect();
    assert!(sizes.chunks(10).all(|ten| ten.iter().all(|size| *size == ten[0])), "{sizes:?}");
    assert!(sizes.chunks(10).any(|ten| ten[0] != sizes[0]), "{sizes:?}");
    assert!(sizes.iter().all(|size| (8..1200).contains(size)), "{sizes:?}");
}

#[test]
fn the_error_of_an_invalid_generator_names_the_cause() {
    for (json, word) in [
        (r#"{"type":"gzip","size":3}"#, "`gzip`"),
        (r#"{"type":"constant","size":3,"color":1}"#, "`color`"),
        (r#"{"type":"constant","size":3,"value":"?"}"#, "Base64"),
        (r#"{"type":"uniformRandom","size":3,"padding":4}"#, "padding"),
        (r#"{"type":"timestampRandom","size":7}"#, "at least 8"),
        (
            r#"{"type":"randomComponent","components":[{"percent":99,"component":{"type":"null"}}]}"#,
            "not 99",
        ),
        (r#"{"type":"gaussianTimestampConstant","messageSizeAverage":-1}"#, "-1"),
    ] {
        let error = payloads(json).map(drop).unwrap_err();
        assert!(error.contains(word), "{json}: {error}");
    }
}
