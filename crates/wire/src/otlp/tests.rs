use proptest::prelude::*;
use prost::Message as _;

use super::{
    decoded::{self, Data, Value, pairs},
    *,
};

fn metrics_data(
    shared: &[(&str, &str)],
    numbers: &[Number],
    time_ns: u64,
    limit: usize,
) -> (Vec<u8>, usize) {
    let mut data = MetricsData::new(shared, time_ns, limit);
    numbers.iter().for_each(|number| data.push(number));
    assert_eq!(data.is_full(), data.count < numbers.len());
    data.finish()
}

fn number() -> impl Strategy<Value = Number> {
    let kind = prop_oneof![Just(Kind::Gauge), Just(Kind::Delta), Just(Kind::Cumulative)];
    let attribute = ("[a-z_]{1,12}", "\\PC{0,150}");
    let attributes = prop::collection::vec(attribute, 0..4);
    let value = any::<f64>().prop_filter("NaN equals nothing", |value| !value.is_nan());
    ("\\PC{0,150}", attributes, value, kind, any::<u64>()).prop_map(
        |(name, attributes, value, kind, start_ns)| Number {
            name,
            attributes,
            value,
            kind,
            start_ns,
        },
    )
}

/// The numbers that a decoded payload has.
fn numbers(data: &decoded::MetricsData, time_ns: u64) -> Vec<Number> {
    let one = |metric: &decoded::Metric| {
        let [point] = metric.points() else { panic!("{metric:?}") };
        assert_eq!(point.time_unix_nano, time_ns);
        let kind = match &metric.data {
            Some(Data::Sum(sum)) => {
                assert!(sum.is_monotonic);
                [Kind::Delta, Kind::Cumulative][sum.aggregation_temporality as usize - 1]
            }
            _ => Kind::Gauge,
        };
        let Some(Value::AsDouble(value)) = point.value else { panic!("{point:?}") };
        Number {
            name: metric.name.clone(),
            attributes: pairs(&point.attributes),
            value,
            kind,
            start_ns: point.start_time_unix_nano,
        }
    };
    data.metrics().map(one).collect()
}

proptest! {
    /// Another decoder reads all numbers up to the limit, and the payload never exceeds it.
    #[test]
    fn payload_has_the_first_numbers_that_fit(
        all in prop::collection::vec(number(), 0..40),
        shared in prop::collection::vec(("[a-z_]{1,12}", "\\PC{0,40}"), 0..3),
        time_ns: u64,
        limit in prop_oneof![0_usize..12_000, Just(usize::MAX)],
    ) {
        let attributes: Vec<_> = shared.iter().map(|(key, value)| (&**key, &**value)).collect();
        let (payload, count) = metrics_data(&attributes, &all, time_ns, limit);
        prop_assert!(payload.len() <= limit);
        let data = decoded::MetricsData::decode(&*payload).unwrap();
        let mut expected = all[..count].to_vec();
        for number in expected.iter_mut().filter(|number| number.kind == Kind::Gauge) {
            number.start_ns = 0;
        }
        prop_assert_eq!(numbers(&data, time_ns), expected);
        prop_assert!(limit < usize::MAX || count == all.len());
        prop_assert_eq!(payload.is_empty(), count == 0);
        if count > 0 {
            let resource = data.resource_metrics[0].resource.as_ref().unwrap();
            prop_assert_eq!(pairs(&resource.attributes), shared);
        }
    }
}

#[test]
fn limit_is_used_up_to_one_number() {
    let number = Number {
        name: "n".repeat(100),
        attributes: vec![],
        value: 1.0,
        kind: Kind::Gauge,
        start_ns: 0,
    };
    let all = vec![number; 1000];
    let (whole, _) = metrics_data(&[], &all, 1, usize::MAX);
    let (half, count) = metrics_data(&[], &all, 1, whole.len() / 2);
    assert!(whole.len() / 2 - half.len() < 200, "{} of {}", half.len(), whole.len());
    assert!((495..=500).contains(&count), "{count}");
}
