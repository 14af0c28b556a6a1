//! Broker settings that can change at run time in Apache Kafka and have no effect here.
//!
//! They are about threads, memory and Kerberos, which the embedded cluster does not have. Tools that tune brokers set them at
//! run time, so they are accepted, kept and described. In a file of server properties they are only checked.

use super::ConfigError;
use crate::topic_config::Kind;

/// A setting without effect.
pub(crate) struct Inert {
    pub(crate) name: &'static str,
    /// Apache Kafka's default.
    pub(crate) default: &'static str,
    pub(crate) kind: Kind,
    expected: &'static str,
    is_valid: fn(&str) -> bool,
}

impl Inert {
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        INERT.iter().find(|setting| setting.name == name)
    }

    /// Checks a value.
    pub(crate) fn check(&self, value: &str) -> Result<(), ConfigError> {
        let (name, expected) = (self.name, self.expected);
        let refused = || ConfigError::Value { name, value: value.into(), expected };
        (self.is_valid)(value.trim()).then_some(()).ok_or_else(refused)
    }
}

const fn setting(
    name: &'static str,
    default: &'static str,
    (kind, expected, is_valid): Values,
) -> Inert {
    Inert { name, default, kind, expected, is_valid }
}

/// The type of the values, a description, and whether a text is one.
type Values = (Kind, &'static str, fn(&str) -> bool);

const TEXT: Values = (Kind::String, "a text", |_| true);
const TEXTS: Values = (Kind::List, "a text", |_| true);
const COUNT: Values =
    (Kind::Int, "a number, 1 or more", |text| text.parse().is_ok_and(|n: i32| n >= 1));
const MAYBE_NONE: Values =
    (Kind::Int, "a number, 0 or more", |text| text.parse().is_ok_and(|n: i32| n >= 0));
const LONG: Values = (Kind::Long, "a number", |text| text.parse::<i64>().is_ok());
const FRACTION: Values = (Kind::Double, "a number with a decimal point", |text| {
    text.parse().is_ok_and(|n: f64| !n.is_nan())
});

/// By name, with the defaults of Apache Kafka 4.3.
///
/// Kafka also refuses a number of threads below half or above twice the one in force, since it resizes a pool. Here nothing
/// is resized.
pub(crate) static INERT: &[Inert] = &[
    setting("background.threads", "10", COUNT),
    setting("log.cleaner.dedupe.buffer.size", "134217728", LONG),
    setting("log.cleaner.io.buffer.load.factor", "0.9", FRACTION),
    setting("log.cleaner.io.buffer.size", "524288", MAYBE_NONE),
    setting("log.cleaner.io.max.bytes.per.second", "1.7976931348623157E308", FRACTION),
    setting("log.cleaner.threads", "1", MAYBE_NONE),
    setting("metric.reporters", "org.apache.kafka.common.metrics.JmxReporter", TEXTS),
    setting("num.io.threads", "8", COUNT),
    setting("num.network.threads", "3", COUNT),
    setting("num.recovery.threads.per.data.dir", "2", COUNT),
    setting("num.replica.fetchers", "1", COUNT),
    setting("sasl.kerberos.kinit.cmd", "/usr/bin/kinit", TEXT),
    setting("sasl.kerberos.min.time.before.relogin", "60000", LONG),
    setting("sasl.kerberos.ticket.renew.jitter", "0.05", FRACTION),
    setting("sasl.kerberos.ticket.renew.window.factor", "0.8", FRACTION),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_in_order_and_accept_their_defaults() {
        assert!(INERT.is_sorted_by_key(|setting| setting.name));
        for setting in INERT {
            assert_eq!(setting.check(setting.default), Ok(()));
        }
    }

    #[test]
    fn values_out_of_range_are_not_accepted() {
        for (name, value) in [
            ("num.io.threads", "0"),
            ("num.io.threads", "many"),
            ("log.cleaner.threads", "-1"),
            ("log.cleaner.io.buffer.load.factor", "NaN"),
            ("sasl.kerberos.min.time.before.relogin", "1.5"),
        ] {
            assert!(Inert::named(name).unwrap().check(value).is_err(), "{name}={value}");
        }
    }
}
