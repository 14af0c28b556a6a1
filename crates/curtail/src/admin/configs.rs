//! Settings of topics, brokers and groups.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use curtail_wire::{
    ErrorCode,
    cold::{StrBytes, messages},
};
use messages::{
    DescribeConfigsRequest, DescribeConfigsResponse, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse, ListConfigResourcesRequest, ListConfigResourcesResponse,
    describe_configs_request::DescribeConfigsResource,
    describe_configs_response::DescribeConfigsResourceResult,
    incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig},
};

use super::{
    Admin, BrokerDescription, Call, Each, Mode, broker_error, rounds::unknown_broker, text,
    topic_error,
};
use crate::{Error, Result};

/// A resource with settings.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ConfigResource {
    /// A topic.
    Topic(String),
    /// A broker, by its id.
    Broker(i32),
    /// All brokers: values for brokers that do not override them.
    AllBrokers,
    /// The levels of a broker's loggers, by the broker's id (KIP-412).
    BrokerLogger(i32),
    /// A group (KIP-848).
    Group(String),
    /// A subscription of client metrics (KIP-714), by its name.
    ClientMetrics(String),
}

impl ConfigResource {
    fn wire(&self) -> (i8, StrBytes) {
        let (kind, name) = match self {
            Self::Topic(name) => (2, text(name)),
            Self::Broker(id) => (4, text(&id.to_string())),
            Self::AllBrokers => (4, StrBytes::default()),
            Self::BrokerLogger(id) => (8, text(&id.to_string())),
            Self::ClientMetrics(name) => (16, text(name)),
            Self::Group(name) => (32, text(name)),
        };
        (kind, name)
    }

    fn from_wire(kind: i8, name: &str) -> Option<Self> {
        Some(match kind {
            2 => Self::Topic(name.to_owned()),
            4 if name.is_empty() => Self::AllBrokers,
            4 => Self::Broker(name.parse().ok()?),
            8 => Self::BrokerLogger(name.parse().ok()?),
            16 => Self::ClientMetrics(name.to_owned()),
            32 => Self::Group(name.to_owned()),
            _ => return None,
        })
    }

    /// The only broker that can serve the request, if there is one.
    fn broker(&self) -> Option<i32> {
        match self {
            Self::Broker(id) | Self::BrokerLogger(id) => Some(*id),
            _ => None,
        }
    }

    fn error(&self, code: ErrorCode, message: Option<&str>) -> Error {
        match self {
            Self::Topic(name) => topic_error(name, code, message),
            other => broker_error(&other.to_string(), code, message),
        }
    }
}

impl fmt::Display for ConfigResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Topic(name) => write!(f, "topic '{name}'"),
            Self::Broker(id) => write!(f, "broker {id}"),
            Self::AllBrokers => f.write_str("all brokers"),
            Self::BrokerLogger(id) => write!(f, "loggers of broker {id}"),
            Self::Group(name) => write!(f, "group '{name}'"),
            Self::ClientMetrics(name) => write!(f, "client metrics '{name}'"),
        }
    }
}

/// A kind of resources with settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ConfigResourceKind {
    /// Topics.
    Topic,
    /// Brokers.
    Broker,
    /// Loggers of brokers (KIP-412).
    BrokerLogger,
    /// Groups with overrides (KIP-848).
    Group,
    /// Subscriptions of client metrics (KIP-714).
    ClientMetrics,
}

impl ConfigResourceKind {
    fn wire(self) -> i8 {
        match self {
            Self::Topic => 2,
            Self::Broker => 4,
            Self::BrokerLogger => 8,
            Self::ClientMetrics => 16,
            Self::Group => 32,
        }
    }
}

/// Source of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigSource {
    /// Set for this topic.
    Topic,
    /// Set for this broker dynamically.
    Broker,
    /// Set for all brokers dynamically.
    AllBrokers,
    /// From the broker's configuration file.
    StaticBroker,
    /// Kafka's default.
    Default,
    /// Set for a logger of this broker.
    BrokerLogger,
    /// Set for this subscription of client metrics.
    ClientMetrics,
    /// Set for this group.
    Group,
    /// The broker does not report the source, or this client does not know it.
    Unknown,
}

impl ConfigSource {
    fn from_wire(code: i8) -> Self {
        match code {
            1 => Self::Topic,
            2 => Self::Broker,
            3 => Self::AllBrokers,
            4 => Self::StaticBroker,
            5 => Self::Default,
            6 => Self::BrokerLogger,
            7 => Self::ClientMetrics,
            8 => Self::Group,
            _ => Self::Unknown,
        }
    }

    /// Kafka's name, such as `DYNAMIC_TOPIC_CONFIG`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Topic => "DYNAMIC_TOPIC_CONFIG",
            Self::Broker => "DYNAMIC_BROKER_CONFIG",
            Self::AllBrokers => "DYNAMIC_DEFAULT_BROKER_CONFIG",
            Self::StaticBroker => "STATIC_BROKER_CONFIG",
            Self::Default => "DEFAULT_CONFIG",
            Self::BrokerLogger => "DYNAMIC_BROKER_LOGGER_CONFIG",
            Self::ClientMetrics => "DYNAMIC_CLIENT_METRICS_CONFIG",
            Self::Group => "DYNAMIC_GROUP_CONFIG",
            Self::Unknown => "UNKNOWN",
        }
    }
}

/// A setting and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigEntry {
    /// Name.
    pub name: String,
    /// Value; `None` if unset or sensitive.
    pub value: Option<String>,
    /// Source of the value.
    pub source: ConfigSource,
    /// Whether it cannot be changed while the broker runs.
    pub read_only: bool,
    /// Whether it is secret. Brokers then withhold the value.
    pub sensitive: bool,
    /// All sources that set a value, the effective one first.
    pub synonyms: Vec<ConfigSynonym>,
}

/// A source that sets a value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigSynonym {
    /// Name of the setting in that source.
    pub name: String,
    /// Value in that source.
    pub value: Option<String>,
    /// The source.
    pub source: ConfigSource,
}

/// A change of one setting. Its [`Debug`] form hides values of settings whose names sound secret.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigChange {
    /// Sets a value.
    Set(String, String),
    /// Removes the value. The next source applies again, or Kafka's default.
    Delete(String),
    /// Adds values to a list.
    Append(String, String),
    /// Removes values from a list.
    Subtract(String, String),
}

impl ConfigChange {
    /// Sets a value.
    pub fn set(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self::Set(name.into(), value.into())
    }

    /// Removes a value.
    pub fn delete(name: impl Into<String>) -> Self {
        Self::Delete(name.into())
    }

    /// Adds values, separated by commas, to a list.
    pub fn append(name: impl Into<String>, values: impl Into<String>) -> Self {
        Self::Append(name.into(), values.into())
    }

    /// Removes values, separated by commas, from a list.
    pub fn subtract(name: impl Into<String>, values: impl Into<String>) -> Self {
        Self::Subtract(name.into(), values.into())
    }

    /// The setting.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Set(name, _)
            | Self::Delete(name)
            | Self::Append(name, _)
            | Self::Subtract(name, _) => name,
        }
    }

    fn wire(&self) -> AlterableConfig {
        let (operation, value) = match self {
            Self::Set(_, value) => (0, Some(value)),
            Self::Delete(_) => (1, None),
            Self::Append(_, value) => (2, Some(value)),
            Self::Subtract(_, value) => (3, Some(value)),
        };
        AlterableConfig::default()
            .with_name(text(self.name()))
            .with_config_operation(operation)
            .with_value(value.map(|value| text(value)))
    }
}

impl fmt::Debug for ConfigChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (verb, value) = match self {
            Self::Set(_, value) => ("Set", Some(value)),
            Self::Delete(_) => ("Delete", None),
            Self::Append(_, value) => ("Append", Some(value)),
            Self::Subtract(_, value) => ("Subtract", Some(value)),
        };
        let mut debug = f.debug_tuple(verb);
        debug.field(&self.name());
        match value {
            Some(_) if sounds_secret(self.name()) => debug.field(&"[hidden]"),
            Some(value) => debug.field(value),
            None => &mut debug,
        };
        debug.finish()
    }
}

fn sounds_secret(name: &str) -> bool {
    ["password", "secret", "jaas", ".key", "credential"].iter().any(|part| name.contains(part))
}

impl Admin {
    /// Returns the resources of these kinds, or of all kinds if there are none (KIP-1142).
    ///
    /// # Errors
    /// If no broker responds within `default.api.timeout.ms`, or the broker is older than Kafka 4.1.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub fn list_config_resources<'a>(
        &'a self,
        kinds: &'a [ConfigResourceKind],
    ) -> Call<'a, Vec<ConfigResource>> {
        let what = "listing resources with settings (default.api.timeout.ms)";
        self.retried(what, move |_| self.list_resources_once(kinds))
    }

    async fn list_resources_once(
        &self,
        kinds: &[ConfigResourceKind],
    ) -> Result<Vec<ConfigResource>> {
        let types = kinds.iter().map(|kind| kind.wire()).collect();
        let request = ListConfigResourcesRequest::default().with_resource_types(types);
        let answer: ListConfigResourcesResponse = self.ask_any(1..=1, |_| request).await?;
        let error = |code| broker_error("resources with settings", code, None);
        ErrorCode(answer.error_code).ok().map_err(error)?;
        let found = answer.config_resources.iter();
        Ok(found
            .filter_map(|found| {
                ConfigResource::from_wire(found.resource_type, &found.resource_name)
            })
            .collect())
    }

    /// Returns all settings of topics, brokers and groups, with a result for each resource.
    ///
    /// ```no_run
    /// # async fn example(admin: &curtail::Admin) -> curtail::Result<()> {
    /// use curtail::admin::ConfigResource;
    ///
    /// let topic = ConfigResource::Topic("payments".into());
    /// for (_, settings) in admin.describe_configs(&[topic]).await? {
    ///     for setting in settings? {
    ///         println!("{}={:?} ({})", setting.name, setting.value, setting.source.name());
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If no broker responds within `default.api.timeout.ms`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub fn describe_configs<'a>(
        &'a self,
        resources: &'a [ConfigResource],
    ) -> Call<'a, Each<ConfigResource, Vec<ConfigEntry>>> {
        self.rounds("describing settings (default.api.timeout.ms)", resources, move |open, _| {
            self.at_resources(open, |admin, broker, part| async move {
                let resources = part.iter().map(|resource| {
                    let (kind, name) = resource.wire();
                    DescribeConfigsResource::default()
                        .with_resource_type(kind)
                        .with_resource_name(name)
                        .with_configuration_keys(None)
                });
                let request = DescribeConfigsRequest::default()
                    .with_resources(resources.collect())
                    .with_include_synonyms(true);
                let answer: DescribeConfigsResponse =
                    admin.ask(&broker, 1..=4, |_| request).await?;
                let mut results = Each::new();
                for found in answer.results {
                    let resource =
                        ConfigResource::from_wire(found.resource_type, &found.resource_name);
                    let Some(resource) = resource else { continue };
                    let result = match ErrorCode(found.error_code).ok() {
                        Ok(()) => Ok(found.configs.iter().map(entry).collect()),
                        Err(code) => Err(resource.error(code, found.error_message.as_deref())),
                    };
                    results.push((resource, result));
                }
                Ok(results)
            })
        })
    }

    /// Changes settings (KIP-339), with a result for each resource. The changes of one resource apply all or none.
    /// Other settings keep their values.
    ///
    /// ```no_run
    /// # async fn example(admin: &curtail::Admin) -> curtail::Result<()> {
    /// use curtail::admin::{ConfigChange, ConfigResource, Mode};
    ///
    /// let changes = vec![
    ///     ConfigChange::set("retention.ms", "3600000"),
    ///     ConfigChange::delete("max.message.bytes"),
    /// ];
    /// let topic = ConfigResource::Topic("payments".into());
    /// for (resource, changed) in admin.incremental_alter_configs(&[(topic, changes)], Mode::Apply).await? {
    ///     println!("{resource}: {changed:?}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If no broker responds within `default.api.timeout.ms`.
    ///
    /// # Cancel safety
    /// A dropped call may still have been carried out.
    pub fn incremental_alter_configs<'a>(
        &'a self,
        changes: &'a [(ConfigResource, Vec<ConfigChange>)],
        mode: Mode,
    ) -> Call<'a, Each<ConfigResource, ()>> {
        let mut by_resource: BTreeMap<ConfigResource, Vec<AlterableConfig>> = BTreeMap::new();
        for (resource, changes) in changes {
            let all = by_resource.entry(resource.clone()).or_default();
            all.extend(changes.iter().map(ConfigChange::wire));
        }
        let by_resource = Arc::new(by_resource);
        let resources: Vec<ConfigResource> = changes.iter().map(|(at, _)| at.clone()).collect();
        self.rounds("changing settings (default.api.timeout.ms)", resources, move |open, _| {
            let by_resource = by_resource.clone();
            self.at_resources(open, move |admin, broker, part| {
                let by_resource = by_resource.clone();
                async move {
                    let resources = part.iter().map(|resource| {
                        let (kind, name) = resource.wire();
                        AlterConfigsResource::default()
                            .with_resource_type(kind)
                            .with_resource_name(name)
                            .with_configs(by_resource[resource].clone())
                    });
                    let request = IncrementalAlterConfigsRequest::default()
                        .with_resources(resources.collect())
                        .with_validate_only(mode.validates());
                    let answer: IncrementalAlterConfigsResponse =
                        admin.ask(&broker, 0..=1, |_| request).await?;
                    let mut results = Each::new();
                    for done in answer.responses {
                        let resource =
                            ConfigResource::from_wire(done.resource_type, &done.resource_name);
                        let Some(resource) = resource else { continue };
                        let result = ErrorCode(done.error_code)
                            .ok()
                            .map_err(|code| resource.error(code, done.error_message.as_deref()));
                        results.push((resource, result));
                    }
                    Ok(results)
                }
            })
        })
    }

    /// Sends each broker its own resources, and any broker all others.
    async fn at_resources<T, F>(
        &self,
        open: BTreeSet<ConfigResource>,
        ask: impl Fn(Admin, BrokerDescription, Vec<ConfigResource>) -> F,
    ) -> Result<Each<ConfigResource, T>>
    where
        T: Send + 'static,
        F: Future<Output = Result<Each<ConfigResource, T>>> + Send + 'static,
    {
        let live = self.brokers().await?;
        let any = (self.shared.env.entropy.unit() * live.len() as f64) as usize;
        let any = live.get(any).ok_or_else(|| unknown_broker(-1, &live))?.id;
        let mut parts: BTreeMap<i32, Vec<ConfigResource>> = BTreeMap::new();
        for resource in open {
            parts.entry(resource.broker().unwrap_or(any)).or_default().push(resource);
        }
        Ok(self.fan_out_to(&live, parts, ask).await)
    }
}

fn entry(found: &DescribeConfigsResourceResult) -> ConfigEntry {
    let synonyms = found.synonyms.iter().map(|synonym| ConfigSynonym {
        name: synonym.name.to_string(),
        value: synonym.value.as_ref().map(ToString::to_string),
        source: ConfigSource::from_wire(synonym.source),
    });
    ConfigEntry {
        name: found.name.to_string(),
        value: found.value.as_ref().map(ToString::to_string),
        source: ConfigSource::from_wire(found.config_source),
        read_only: found.read_only,
        sensitive: found.is_sensitive,
        synonyms: synonyms.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::ConfigChange;

    #[test]
    fn secrets_are_not_shown() {
        let shown = format!("{:?}", ConfigChange::set("ssl.keystore.password", "hunter2"));
        assert!(!shown.contains("hunter2") && shown.contains("ssl.keystore.password"), "{shown}");
        let shown = format!("{:?}", ConfigChange::set("retention.ms", "77"));
        assert!(shown.contains("77"), "{shown}");
    }
}
