//! docs/grafana/curtail.json against a text that has all families.

use std::path::Path;

use serde_json::Value;

use super::{
    promql::{Catalog, Families, Kind, Metric, Unit, Vector},
    *,
};

fn read() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/grafana/curtail.json");
    let text = std::fs::read_to_string(path).expect("the dashboard");
    serde_json::from_str(&text).expect("JSON")
}

/// The text of a producer and a consumer.
fn text() -> String {
    let (sending, receiving) = full();
    PrometheusText::default().producer(&sending).consumer(&receiving).to_string()
}

/// The series of the text, and the variables of the dashboard.
fn catalog(dashboard: &Value) -> Catalog {
    let text = text();
    let kinds: BTreeMap<&str, &str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    let mut metrics: BTreeMap<String, Metric> = BTreeMap::new();
    for ((name, labels), value) in samples(&text) {
        assert!(value > 0.0, "{name} is not filled");
        let of_summary = name.strip_suffix("_sum").or_else(|| name.strip_suffix("_count"));
        let family = of_summary.unwrap_or(&name).to_owned();
        let kind = match (kinds[family.as_str()], of_summary) {
            ("summary", None) => Kind::Quantile,
            ("summary", Some(_)) | ("counter", _) => Kind::Counter,
            _ => Kind::Gauge,
        };
        let new = || Metric { family, kind, labels: BTreeMap::new() };
        let metric = metrics.entry(name).or_insert_with(new);
        for (label, value) in labels {
            metric.labels.entry(label).or_default().insert(value);
        }
    }
    let variables = list(&dashboard["templating"]["list"]).iter().map(|variable| &variable["name"]);
    Catalog { metrics, variables: variables.map(|name| string(name).to_owned()).collect() }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("no list: {value}"))
}

fn string(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no string: {value}"))
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// The panels that have queries.
fn panels(dashboard: &Value) -> impl Iterator<Item = &Value> {
    list(&dashboard["panels"]).iter().filter(|panel| panel["type"] != "row")
}

/// Labels in a legend such as `broker {{broker}}`.
fn labels(legend: &str) -> BTreeSet<String> {
    let parts = legend.split("{{").skip(1);
    parts.filter_map(|part| Some(part.split_once("}}")?.0.to_owned())).collect()
}

/// Grafana's names of the units that fit.
fn units(of: &Vector) -> &'static [&'static str] {
    match (of.unit, of.per_second) {
        (Unit::Seconds, false) => &["s"],
        (Unit::Bytes, false) => &["bytes"],
        (Unit::Bytes, true) => &["Bps"],
        (Unit::Count, true) => &["ops", "recps", "reqps"],
        (Unit::Count, false) => &["short", "bool_yes_no"],
        // Seconds of waiting per second: a number of sends.
        (Unit::Seconds, true) => &["short"],
        (Unit::Ratio, _) => &["percentunit"],
    }
}

#[test]
fn dashboard_queries_series_of_the_text_and_shows_each_family() {
    let dashboard = read();
    let catalog = catalog(&dashboard);
    let mut shown = Families::new();
    for panel in panels(&dashboard) {
        let title = string(&panel["title"]);
        let unit = string(&panel["fieldConfig"]["defaults"]["unit"]);
        for target in list(&panel["targets"]) {
            let expression = string(&target["expr"]);
            let result = catalog.expression(expression, &mut shown);
            let vector = result.unwrap_or_else(|error| panic!("{title}: {error}"));
            assert!(units(&vector).contains(&unit), "{title} in {unit}: {expression}");
            // Otherwise lines of a panel have the same name.
            let legend = string(&target["legendFormat"]);
            assert_eq!(labels(legend), vector.labels, "{title}: {legend}");
        }
    }
    let families: Families = catalog.metrics.values().map(|metric| metric.family.clone()).collect();
    assert_eq!(shown, families, "a family is on no panel");
}

#[test]
fn dashboard_variables_list_labels_of_the_text() {
    let dashboard = read();
    let catalog = catalog(&dashboard);
    let mut queried = Vec::new();
    for variable in list(&dashboard["templating"]["list"]) {
        if variable["type"] == "datasource" {
            assert_eq!(variable["name"], "datasource");
            assert_eq!(variable["query"], "prometheus");
            continue;
        }
        let query = string(&variable["query"]["query"]);
        assert_eq!(string(&variable["definition"]), query);
        catalog.label_values(query).unwrap_or_else(|error| panic!("{error}"));
        let label = query.rsplit([' ', ')']).nth(1).expect("a label");
        assert_eq!(variable["name"], label);
        queried.push(label);
    }
    assert_eq!(queried, ["job", "client_id", "broker"]);
}

#[test]
fn dashboard_panels_have_units_descriptions_and_places() {
    let dashboard = read();
    let source = serde_json::json!({"type": "prometheus", "uid": "${datasource}"});
    let mut ids = BTreeSet::new();
    let mut taken = BTreeSet::new();
    for panel in list(&dashboard["panels"]) {
        let title = string(&panel["title"]);
        assert!(ids.insert(number(&panel["id"])), "{title}: id twice");
        let [x, y, width, height] = ["x", "y", "w", "h"].map(|key| number(&panel["gridPos"][key]));
        assert!(width > 0 && height > 0 && x + width <= 24, "{title} is outside of the grid");
        for cell in (x..x + width).flat_map(|x| (y..y + height).map(move |y| (x, y))) {
            assert!(taken.insert(cell), "{title} overlaps at {cell:?}");
        }
    }
    for panel in panels(&dashboard) {
        let title = string(&panel["title"]);
        assert_eq!(panel["type"], "timeseries", "{title}");
        assert_eq!(panel["datasource"], source, "{title}");
        assert!(!string(&panel["fieldConfig"]["defaults"]["unit"]).is_empty(), "{title}: no unit");
        let description = string(&panel["description"]);
        let explains = description.ends_with('.') && description.contains("A rise ");
        assert!(explains, "{title}: does not say what a rise means: {description}");
        let mut references = BTreeSet::new();
        for target in list(&panel["targets"]) {
            assert_eq!(target["datasource"], source, "{title}");
            assert!(references.insert(string(&target["refId"])), "{title}: refId twice");
        }
        assert!(!references.is_empty(), "{title}: no query");
    }
}

#[test]
fn wrong_expressions_of_a_dashboard_are_refused() {
    let catalog = catalog(&read());
    let check = |text: &str| catalog.expression(text, &mut Families::new());
    let phases = |more: &str| format!("max by (broker) (curtail_producer_phase_seconds{{{more}}})");
    check(&phases(r#"broker=~"$broker", phase="queue", quantile="0.99""#)).expect("a right one");
    for (text, error) in [
        ("curtail_producer_record_total{}", "no metric \"curtail_producer_record_total\""),
        ("curtail_producer_queue_bytes_sum{}", "no metric \"curtail_producer_queue_bytes_sum\""),
        (r#"curtail_producer_queue_bytes{topic="t"}"#, "no label topic"),
        ("sum by (partition) (curtail_producer_queue_bytes{})", "no label partition"),
        (r#"curtail_producer_queue_bytes{broker=~"$node"}"#, "no variable node"),
        (&*phases(r#"phase="fetch", quantile="0.99""#), "no phase \"fetch\""),
        (&*phases(r#"phase=~"queue|fetch", quantile="0.99""#), "no phase \"fetch\""),
        (&*phases(r#"phase="queue", quantile="0.95""#), "no quantile \"0.95\""),
        (&*phases(r#"phase="queue""#), "without a quantile"),
        (&*phases(r#"phase="queue", quantile="1""#), "match 1|1.0"),
        (&*phases(r#"phase="queue", quantile="1.0""#), "match 1|1.0"),
        (r#"sum by (broker) (curtail_producer_phase_seconds{quantile="0.5"})"#, "sum of quantiles"),
        (r#"avg by (broker) (curtail_producer_phase_seconds{quantile="0.5"})"#, "{ expected"),
        ("curtail_producer_records_total{}", "a counter without rate"),
        ("rate(curtail_producer_queue_bytes{}[$__rate_interval])", "no counter"),
        ("rate(curtail_producer_records_total{}[5m])", "[$__rate_interval] expected"),
        ("curtail_producer_queue_bytes{} / curtail_producer_buffer_bytes{}", "differ"),
        ("curtail_producer_queue_bytes{} }", "unexpected"),
    ] {
        let refused = check(text).expect_err(text);
        assert!(refused.contains(error), "{text}: {refused}");
    }
}
