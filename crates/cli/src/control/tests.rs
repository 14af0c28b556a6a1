//! `docs/control-api.yaml`, the routes and the types say the same.

use std::{collections::BTreeSet, fmt::Debug, net::SocketAddr};

use curtail_cluster::{ActiveFault, Fault, Injection};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use super::{
    address,
    routes::{BrokerState, Brokers, Expired, FaultList, Lifted, NewCoordinator, NewLeader, ROUTES},
};

fn description() -> Value {
    serde_saphyr::from_str(include_str!("../../../../docs/control-api.yaml")).unwrap()
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().into_iter().flat_map(Map::keys).map(String::as_str).collect()
}

#[test]
fn the_description_has_the_routes() {
    let description = description();
    let mut described = BTreeSet::new();
    for (path, operations) in description["paths"].as_object().unwrap() {
        for method in keys(operations).into_iter().filter(|key| *key != "parameters") {
            described.insert((method.to_uppercase(), path.clone()));
        }
        let in_braces = path.matches('{').count();
        let parameters = operations["parameters"].as_array().map_or(0, Vec::len);
        assert_eq!(parameters, in_braces, "{path}");
    }
    let routes: BTreeSet<_> =
        ROUTES.iter().map(|(method, path, _)| (method.to_string(), (*path).to_owned())).collect();
    assert_eq!(described, routes);
}

/// Reads and writes the examples of a schema, which together have every property.
fn check<T: DeserializeOwned + Serialize + Debug>(schemas: &Value, name: &str) {
    let schema = &schemas[name];
    let examples = schema["examples"].as_array().unwrap();
    let shown: BTreeSet<_> = examples.iter().flat_map(keys).collect();
    let properties = keys(&schema["properties"]);
    assert_eq!(shown, properties, "{name}: the examples have all properties");
    for example in examples {
        check_example::<T>(schema, name, example);
    }
}

fn check_example<T: DeserializeOwned + Serialize + Debug>(
    schema: &Value,
    name: &str,
    example: &Value,
) {
    let read: T = serde_json::from_value(example.clone()).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(&serde_json::to_value(&read).unwrap(), example, "{name}");
    // A missing required field is reported; an optional one may be absent.
    for property in keys(example) {
        let mut less = example.clone();
        less.as_object_mut().unwrap().remove(property);
        // Of an error, a partition needs its topic; that is no matter of the type.
        let read = serde_json::from_value::<T>(less);
        let required = schema["required"].as_array();
        let is_required = required.is_some_and(|r| r.iter().any(|r| r == property));
        assert_eq!(read.is_err(), is_required, "{name}: {property}");
    }
    if schema["additionalProperties"] == Value::Bool(false) {
        let mut more = example.clone();
        more.as_object_mut().unwrap().insert("more".into(), Value::Null);
        assert!(serde_json::from_value::<T>(more).is_err(), "{name}");
    }
}

#[test]
fn the_schemas_are_those_of_the_types() {
    let description = description();
    let schemas = &description["components"]["schemas"];
    check::<Lifted>(schemas, "Lifted");
    check::<Expired>(schemas, "Expired");
    check::<NewLeader>(schemas, "NewLeader");
    check::<NewCoordinator>(schemas, "NewCoordinator");
    check::<BrokerState>(schemas, "Broker");
    check::<Brokers>(schemas, "Brokers");
    check::<FaultList>(schemas, "FaultList");
    check::<ActiveFault>(schemas, "ActiveFault");
    check::<Injection>(schemas, "Injection");
    check::<curtail_cluster::Requests>(schemas, "Requests");
    let unknown = serde_json::from_str::<Fault>(r#"{"kind":"?"}"#).unwrap_err().to_string();
    let (_, kinds) = unknown.split_once("expected one of ").unwrap();
    let kinds: BTreeSet<_> = kinds.split('`').skip(1).step_by(2).collect();
    let of_schema =
        schemas["Fault"]["oneOf"].as_array().unwrap().iter().map(|kind| {
            kind["$ref"].as_str().unwrap().strip_prefix("#/components/schemas/").unwrap()
        });
    assert_eq!(of_schema.collect::<BTreeSet<_>>(), kinds);
    for kind in kinds {
        check::<Fault>(schemas, kind);
        assert_eq!(schemas[kind]["properties"]["kind"]["const"], kind);
    }
}

/// Every `$ref` of the description leads somewhere.
#[test]
fn references_of_the_description_have_targets() {
    fn walk(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
                fields.values().for_each(|value| walk(value, found));
            }
            Value::Array(values) => values.iter().for_each(|value| walk(value, found)),
            _ => {}
        }
    }
    let (description, mut references) = (description(), Vec::new());
    walk(&description, &mut references);
    assert!(references.len() > 20);
    for reference in references {
        let target = reference.strip_prefix('#').unwrap();
        assert!(description.pointer(target).is_some(), "{reference}");
    }
}

#[test]
fn an_address_is_a_port_or_an_address_with_one() {
    let local = |port| Ok(SocketAddr::from(([127, 0, 0, 1], port)));
    for (text, expected) in [
        ("8642", local(8642)),
        ("127.0.0.1:8642", local(8642)),
        ("localhost:8642", local(8642)),
        ("http://127.0.0.1:8642/", local(8642)),
        ("[::1]:8642", Ok("[::1]:8642".parse().unwrap())),
    ] {
        assert_eq!(address(text), expected, "{text}");
    }
    for text in ["", "x", "127.0.0.1", "70000", "kafka:8642"] {
        assert!(address(text).is_err(), "{text}");
    }
}
