//! Settings common to all clients.

use std::{collections::BTreeSet, time::Duration};

use super::{
    AdminConfig, ConfigProviders, ConsumerConfig, ProducerConfig, RecoveryStrategy, Secret,
    SecurityConfig, contradiction,
    forms::{
        BOOLEAN, DNS_LOOKUP, IDLE_MILLIS, INT_MILLIS, KEEPALIVE_IDLE, KEEPALIVE_INTERVAL,
        LONG_MILLIS, LONGEST_LOGIN, PROXY, RECOVERY, SERVERS, SHORT_NAME, SHORT_SECRET,
        SOCKET_BUFFER, TEXT,
    },
    host_and_port, properties, redact,
    table::{Property, Settings, property, settings},
};
use crate::error::ConfigError;

/// `client.dns.lookup` (KIP-235).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DnsLookup {
    /// Names are dialled as they are written: all addresses of a name are tried.
    #[default]
    UseAllDnsIps,
    /// The canonical names of the addresses of `bootstrap.servers` replace them, also in TLS (decision 0118). Brokers that
    /// the cluster names are dialled by that name.
    ResolveCanonicalBootstrapServersOnly,
}

/// Settings made explicitly: the default of another setting, or whether a combination is refused, may depend on that.
///
/// As in Java, `acks=1` disables idempotence unless it was enabled explicitly, and a long `linger.ms` extends
/// `delivery.timeout.ms` unless that was set. [`ProducerConfig::set`], files and setters record it alike.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Given {
    names: BTreeSet<&'static str>,
    /// `compression.<codec>.level`, by the codec's id. Each codec has a separate level.
    pub(super) compression_levels: [Option<i32>; 5],
}

impl Given {
    /// Whether the setting of this name was made explicitly.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    pub(super) fn insert(&mut self, name: &'static str) {
        self.names.insert(name);
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.names.remove(name);
    }
}

settings! {
    /// Settings common to all clients, which [`ProducerConfig::common`] and the like take over from another client.
    CommonConfig, COMMON: {
        /// `bootstrap.servers`: `host:port`, at least one.
        none bootstrap_servers: Vec<String> = Vec::new() => "bootstrap.servers", SERVERS;
        /// `client.dns.lookup`: which addresses of a name are tried.
        plain dns_lookup, get_dns_lookup: DnsLookup = DnsLookup::default() => "client.dns.lookup", DNS_LOOKUP;
        /// `client.id`: the name that brokers see in requests.
        text client_id, get_client_id: String = "curtail".into() => "client.id", TEXT;
        /// `client.rack`: the client's rack, for `partitioner.rack.aware` of a producer, for a consumer's reads from a
        /// nearby replica (KIP-392), and for its share of a group's partitions (KIP-881); empty for none.
        none client_rack: String = String::new() => "client.rack", TEXT;
        /// `connections.max.idle.ms`: how long a connection without a request stays open; -1 (`None`) for no limit.
        plain connections_max_idle, get_connections_max_idle: Option<Duration> = Some(Duration::from_secs(540))
            => "connections.max.idle.ms", IDLE_MILLIS;
        /// `curtail.io.thread`: whether the client's tasks run on a thread that all such clients of the process share, and
        /// not on the runtime on which the client is made. Then an application that blocks its runtime delays no heartbeat,
        /// deadline, retry or queued send, and a client may be made and used outside a tokio runtime.
        ///
        /// Some code of the application may run on that thread, and must not block it: an OAuth callback; a
        /// partitioner, for records that [`crate::Producer::try_send`] queued before their topic was known; and, if
        /// the client was made outside a tokio runtime, interceptors. Other interceptors run on the runtime on which
        /// the client was made, and acknowledgements wait for them (decision 0101).
        plain io_thread, get_io_thread: bool = false => "curtail.io.thread", BOOLEAN;
        /// `curtail.phase.stamps`: whether batches and responses receive phase timestamps for the metrics; switch it off only
        /// to measure its cost (decision 0029). Has no effect on an [`crate::Admin`].
        #[cfg(feature = "arms")]
        plain phase_stamps: bool = true => "curtail.phase.stamps", BOOLEAN;
        /// `curtail.socks5.password`: the password for the proxy, of up to 255 bytes.
        none socks5_password: Option<Secret> = None => "curtail.socks5.password", SHORT_SECRET;
        /// `curtail.socks5.proxy`: the `host:port` of a SOCKS5 proxy through which the client connects to brokers and
        /// bootstrap servers, whose names the proxy resolves; unset or empty for none. The client connects to a token
        /// endpoint directly.
        name socks5_proxy, get_socks5_proxy: Option<String> = None => "curtail.socks5.proxy", PROXY;
        /// `curtail.socks5.username`: the user name for the proxy, of up to 255 bytes; unset or empty for no login.
        none socks5_username: Option<String> = None => "curtail.socks5.username", SHORT_NAME;
        /// `curtail.tcp.keepalive.idle.seconds`: idle time before a connection's first TCP keepalive probe, in whole seconds;
        /// zero for no probes. Java leaves it to the operating system (on Linux 7200).
        plain tcp_keepalive_idle, get_tcp_keepalive_idle: Duration = Duration::from_secs(10)
            => "curtail.tcp.keepalive.idle.seconds", KEEPALIVE_IDLE;
        /// `curtail.tcp.keepalive.interval.seconds`: time between TCP keepalive probes, in whole seconds.
        plain tcp_keepalive_interval, get_tcp_keepalive_interval: Duration = Duration::from_secs(5)
            => "curtail.tcp.keepalive.interval.seconds", KEEPALIVE_INTERVAL;
        /// `curtail.tcp.user.timeout.ms`: how long the peer's kernel may leave written data or a probe unacknowledged before
        /// the connection is closed (`TCP_USER_TIMEOUT`, Linux only); zero leaves it to the operating system. A producer's
        /// connections wait for at least `request.timeout.ms` (decision 0051).
        plain tcp_user_timeout, get_tcp_user_timeout: Duration = Duration::from_secs(2)
            => "curtail.tcp.user.timeout.ms", INT_MILLIS;
        /// `default.api.timeout.ms`: limit of calls without a separate timeout.
        none default_api_timeout: Duration = Duration::from_secs(60) => "default.api.timeout.ms", INT_MILLIS;
        /// `enable.metrics.push`: whether the client pushes its metrics to brokers that ask for them (KIP-714). An
        /// [`crate::Admin`] has no metrics: there it is whether [`crate::Admin::client_instance_id`] works.
        plain enable_metrics_push, get_enable_metrics_push: bool = true => "enable.metrics.push", BOOLEAN;
        /// `metadata.max.age.ms`: the age at which metadata is refreshed without other cause.
        plain metadata_max_age, get_metadata_max_age: Duration = Duration::from_secs(300)
            => "metadata.max.age.ms", LONG_MILLIS;
        /// `metadata.recovery.rebootstrap.trigger.ms`: the time without metadata after which only `bootstrap.servers` are
        /// asked (KIP-1102).
        plain metadata_rebootstrap_trigger, get_metadata_rebootstrap_trigger: Duration = Duration::from_secs(300)
            => "metadata.recovery.rebootstrap.trigger.ms", LONG_MILLIS;
        /// `metadata.recovery.strategy`: whether the client returns to `bootstrap.servers` when no known broker responds
        /// (KIP-899).
        plain metadata_recovery, get_metadata_recovery: RecoveryStrategy = RecoveryStrategy::Rebootstrap
            => "metadata.recovery.strategy", RECOVERY;
        /// `receive.buffer.bytes`: the sockets' receive buffers; -1 (`None`) leaves them to the operating system.
        value receive_buffer, get_receive_buffer: Option<usize> = None => "receive.buffer.bytes", SOCKET_BUFFER;
        /// `reconnect.backoff.max.ms`: the longest backoff before another connection attempt to an unreachable broker.
        value reconnect_backoff_max, get_reconnect_backoff_max: Duration = Duration::from_secs(1)
            => "reconnect.backoff.max.ms", LONG_MILLIS;
        /// `reconnect.backoff.ms`: the first backoff before another connection attempt to an unreachable broker.
        value reconnect_backoff, get_reconnect_backoff: Duration = Duration::from_millis(50)
            => "reconnect.backoff.ms", LONG_MILLIS;
        /// `request.timeout.ms`: the time limit for a response, after which the connection is closed.
        plain request_timeout, get_request_timeout: Duration = Duration::from_secs(30)
            => "request.timeout.ms", INT_MILLIS;
        /// `retry.backoff.max.ms`: the longest backoff between retries.
        value retry_backoff_max, get_retry_backoff_max: Duration = Duration::from_secs(1)
            => "retry.backoff.max.ms", LONG_MILLIS;
        /// `retry.backoff.ms`: the first backoff between retries.
        value retry_backoff, get_retry_backoff: Duration = Duration::from_millis(100)
            => "retry.backoff.ms", LONG_MILLIS;
        /// `send.buffer.bytes`: the sockets' send buffers; -1 (`None`) leaves them to the operating system.
        value send_buffer, get_send_buffer: Option<usize> = None => "send.buffer.bytes", SOCKET_BUFFER;
        /// `socket.connection.setup.timeout.ms`: time limit for a connection, TLS and login included.
        plain connection_setup_timeout, get_connection_setup_timeout: Duration = Duration::from_secs(10)
            => "socket.connection.setup.timeout.ms", LONG_MILLIS;
    }
    without property {
        /// `config.providers`: the sources of the texts for variables in values.
        providers: ConfigProviders = ConfigProviders::default();
        /// `security.protocol`, `ssl.*`, `sasl.*`.
        security: SecurityConfig = SecurityConfig::default();
        /// Settings made explicitly.
        given: Given = Given::default();
    }
    methods ProducerConfig [common], ConsumerConfig [common], AdminConfig [common]
}

impl CommonConfig {
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        if self.bootstrap_servers.is_empty() {
            return Err(ConfigError::Missing("bootstrap.servers"));
        }
        self.security.validate()?;
        self.validate_proxy()?;
        match self.bootstrap_servers.iter().find(|s| host_and_port(s).is_none()) {
            None => Ok(()),
            Some(server) => Err(ConfigError::Invalid {
                name: "bootstrap.servers",
                value: redact::value("bootstrap.servers", server),
                reason: "expected host:port, with a port of 1 to 65535".into(),
            }),
        }
    }
}

impl CommonConfig {
    fn set_security(&mut self, security: SecurityConfig) {
        let unset = Self::default();
        self.security = security;
        for property in super::security::table() {
            let is_made = (property.get)(self) != (property.get)(&unset);
            if is_made || property.name == "security.protocol" {
                self.given.insert(property.name);
            } else {
                self.given.remove(property.name);
            }
        }
    }

    fn validate_proxy(&self) -> Result<(), ConfigError> {
        let is_long = |text: &str| text.len() > LONGEST_LOGIN;
        let login = (&self.socks5_username, &self.socks5_password);
        let Some(proxy) = &self.socks5_proxy else {
            return match login {
                (None, None) => Ok(()),
                _ => contradiction(
                    "curtail.socks5.username and curtail.socks5.password need curtail.socks5.proxy"
                        .into(),
                ),
            };
        };
        if host_and_port(proxy).is_none() {
            return Err(ConfigError::Invalid {
                name: "curtail.socks5.proxy",
                value: redact::value("curtail.socks5.proxy", proxy),
                reason: format!("expected {}", PROXY.expected),
            });
        }
        if self.dns_lookup == DnsLookup::ResolveCanonicalBootstrapServersOnly {
            return contradiction(
                "client.dns.lookup=resolve_canonical_bootstrap_servers_only needs names that this machine resolves, but \
                 curtail.socks5.proxy resolves them; unset one of the two"
                    .into(),
            );
        }
        match login {
            (None, None) => Ok(()),
            (Some(user), Some(password)) if !is_long(user) && !is_long(password.reveal()) => Ok(()),
            (Some(_), Some(_)) => contradiction(
                "curtail.socks5.username and curtail.socks5.password have at most 255 bytes each"
                    .into(),
            ),
            _ => contradiction(
                "curtail.socks5.username and curtail.socks5.password are set together, or neither"
                    .into(),
            ),
        }
    }
}

/// Methods that set several settings, or take or return another type than the field's.
macro_rules! common_methods {
    ($type:ident) => {
        impl $type {
            /// Creates the default settings for a cluster: `host:port`, one or more separated by commas.
            /// [`Self::validate`] reports a malformed address.
            #[must_use]
            pub fn new(bootstrap_servers: impl AsRef<str>) -> Self {
                let servers = bootstrap_servers.as_ref().split(',').map(str::trim);
                let mut config = Self::default();
                config.common.bootstrap_servers =
                    servers.filter(|s| !s.is_empty()).map(str::to_owned).collect();
                config.give("bootstrap.servers");
                config
            }

            /// Returns `bootstrap.servers`.
            #[must_use]
            pub fn get_bootstrap_servers(&self) -> &[String] {
                &self.common.bootstrap_servers
            }

            /// Takes over the settings common to all clients that were made explicitly for another client, such as its
            /// cluster and its security.
            ///
            /// ```
            /// use curtail::{AdminConfig, ProducerConfig};
            ///
            /// let producer = ProducerConfig::new("localhost:9092").client_id("billing");
            /// let admin = AdminConfig::default().common(producer.get_common());
            /// assert_eq!(admin.get_client_id(), "billing");
            /// ```
            #[must_use]
            pub fn common(mut self, common: &CommonConfig) -> Self {
                properties::take_over(&mut self, common);
                self
            }

            /// Returns the settings common to all clients.
            #[must_use]
            pub fn get_common(&self) -> &CommonConfig {
                &self.common
            }

            /// Sets `retry.backoff.ms` and `retry.backoff.max.ms`: the first and the longest backoff between retries.
            #[must_use]
            pub fn retry_backoff(mut self, first: Duration, longest: Duration) -> Self {
                self.common.retry_backoff = first;
                self.common.retry_backoff_max = longest;
                self.give("retry.backoff.ms");
                self.give("retry.backoff.max.ms");
                self
            }

            /// Sets `reconnect.backoff.ms` and `reconnect.backoff.max.ms`: the first and the longest backoff before
            /// another connection attempt to an unreachable broker.
            #[must_use]
            pub fn reconnect_backoff(mut self, first: Duration, longest: Duration) -> Self {
                self.common.reconnect_backoff = first;
                self.common.reconnect_backoff_max = longest;
                self.give("reconnect.backoff.ms");
                self.give("reconnect.backoff.max.ms");
                self
            }

            /// Sets `send.buffer.bytes` and `receive.buffer.bytes`; `None` leaves them to the operating system.
            #[must_use]
            pub fn socket_buffers(mut self, send: Option<usize>, receive: Option<usize>) -> Self {
                self.common.send_buffer = send;
                self.common.receive_buffer = receive;
                self.give("send.buffer.bytes");
                self.give("receive.buffer.bytes");
                self
            }

            /// Sets `curtail.socks5.username` and `curtail.socks5.password`: the login at `curtail.socks5.proxy`.
            #[must_use]
            pub fn socks5_login(
                mut self,
                username: impl Into<String>,
                password: impl Into<Secret>,
            ) -> Self {
                self.common.socks5_username = Some(username.into());
                self.common.socks5_password = Some(password.into());
                self.give("curtail.socks5.username");
                self.give("curtail.socks5.password");
                self
            }

            /// Sets `security.protocol`, `ssl.*` and `sasl.*`. Configurations with clones of one [`SecurityConfig`]
            /// read its files once.
            ///
            /// Made explicitly are `security.protocol` and the settings that differ from their defaults.
            #[must_use]
            pub fn security(mut self, security: SecurityConfig) -> Self {
                self.common.set_security(security);
                self.settle();
                self
            }

            /// Returns `security.protocol`, `ssl.*` and `sasl.*`.
            #[must_use]
            pub fn get_security(&self) -> &SecurityConfig {
                &self.common.security
            }
        }
    };
}

common_methods!(ProducerConfig);
common_methods!(ConsumerConfig);
common_methods!(AdminConfig);

macro_rules! rack {
    ($type:ident) => {
        impl $type {
            /// Sets `client.rack`: of a producer for `partitioner.rack.aware`, of a consumer for reads from a nearby replica
            /// and for the partitions that it gets in a group.
            #[must_use]
            pub fn client_rack(mut self, rack: impl Into<String>) -> Self {
                self.common.client_rack = rack.into();
                self.give("client.rack");
                self
            }

            /// Returns `client.rack`.
            #[must_use]
            pub fn get_client_rack(&self) -> &str {
                &self.common.client_rack
            }
        }
    };
}

rack!(ProducerConfig);
rack!(ConsumerConfig);

macro_rules! api_timeout {
    ($type:ident) => {
        impl $type {
            /// Sets `default.api.timeout.ms`: the limit of calls without a separate timeout.
            #[must_use]
            pub fn default_api_timeout(mut self, timeout: Duration) -> Self {
                self.common.default_api_timeout = timeout;
                self.give("default.api.timeout.ms");
                self
            }

            /// Returns `default.api.timeout.ms`.
            #[must_use]
            pub fn get_default_api_timeout(&self) -> Duration {
                self.common.default_api_timeout
            }
        }
    };
}

api_timeout!(ConsumerConfig);
api_timeout!(AdminConfig);
