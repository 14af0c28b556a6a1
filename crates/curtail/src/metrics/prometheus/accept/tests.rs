use super::*;
use crate::metrics::prometheus::{
    protobuf::decoded::families,
    tests::{full, samples},
};

/// Prometheus 3 with `scrape_native_histograms: true`.
const NATIVE: &str = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,\
                      application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
                      application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,\
                      text/plain;version=0.0.4;q=0.2,*/*;q=0.1";

/// Prometheus 3 without settings.
const DEFAULT: &str = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                       application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,\
                       text/plain;version=0.0.4;q=0.3,*/*;q=0.2";

#[test]
fn protobuf_is_chosen_only_if_the_header_prefers_it() {
    let proto = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";
    for (accept, expected) in [
        (NATIVE, true),
        (DEFAULT, false),
        ("", false),
        ("*/*", false),
        ("text/html, application/xhtml+xml, */*;q=0.8", false),
        (proto, true),
        (&*proto.replace("application", "Application").replace("delimited", "\"delimited\""), true),
        (&*format!("{proto}; q=0.5, text/plain"), false),
        (&*format!("text/plain; q=0.5, {proto}"), true),
        (&*format!("{proto}, text/plain"), true),
        (&*format!("text/plain, {proto}"), false),
        (&*format!("application/openmetrics-text, {proto}; q=0.1"), true),
        (&*format!("{proto}; q=0"), false),
        (&*format!("{proto}; q=high"), false),
        (&*format!("{proto}; q=NaN"), false),
        ("application/vnd.google.protobuf", false),
        (&*proto.replace("delimited", "text"), false),
        (&*proto.replace("MetricFamily", "Metric"), false),
    ] {
        assert_eq!(prefers_protobuf(accept), expected, "{accept}");
    }
}

#[test]
fn response_has_the_content_type_of_its_format() {
    let (sending, receiving) = full();
    let respond = |accept| {
        let mut scrape = PrometheusScrape::new(accept);
        scrape.producer(&sending).consumer(&receiving).response()
    };
    let (content_type, body) = respond(None);
    assert_eq!(content_type, "text/plain; version=0.0.4; charset=utf-8");
    assert!(!samples(std::str::from_utf8(&body).expect("text")).is_empty());
    assert_eq!(respond(Some(DEFAULT)), (content_type, body));
    let (content_type, body) = respond(Some(NATIVE));
    assert_eq!(content_type, PrometheusProtobuf::CONTENT_TYPE);
    assert!(prefers_protobuf(content_type), "what is served is what is asked for");
    assert!(!families(&body).is_empty());
}
