//! Settings of an `Admin`.

use std::time::Duration;

use super::{
    CommonConfig, INT_MAX_MILLIS, contradiction,
    table::{Kind, Property, Settings},
};
use crate::error::ConfigError;

/// Settings of an [`crate::Admin`].
#[derive(Clone, Debug)]
pub struct AdminConfig {
    /// Settings common to all clients.
    pub(crate) common: CommonConfig,
}

impl Default for AdminConfig {
    fn default() -> Self {
        // Shorter than that of the other clients, as in Java, whose Admin does not push metrics by default either.
        let connections_max_idle = Some(Duration::from_secs(300));
        let common = CommonConfig {
            connections_max_idle,
            enable_metrics_push: false,
            ..CommonConfig::default()
        };
        Self { common }
    }
}

impl Settings for AdminConfig {
    const KIND: Kind = Kind::Admin;
    const TABLES: &'static [&'static [Property<Self>]] = &[];
    const WITHOUT: &'static [&'static str] = &["client.rack", "curtail.phase.stamps"];

    fn common(&self) -> &CommonConfig {
        &self.common
    }

    fn common_mut(&mut self) -> &mut CommonConfig {
        &mut self.common
    }

    fn settle(&mut self) {
        if !self.common.given.contains("default.api.timeout.ms") {
            let default = CommonConfig::default().default_api_timeout;
            let least = self.common.request_timeout.min(INT_MAX_MILLIS);
            self.common.default_api_timeout = default.max(least);
        }
    }
}

impl AdminConfig {
    /// Checks combinations of settings, like the Java client.
    ///
    /// # Errors
    /// Names the settings that contradict each other, and the remedy.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.common.validate()?;
        self.check_ranges()?;
        if self.common.default_api_timeout < self.common.request_timeout {
            return contradiction(format!(
                "default.api.timeout.ms={} is below request.timeout.ms={}; raise it or lower request.timeout.ms",
                self.common.default_api_timeout.as_millis(),
                self.common.request_timeout.as_millis()
            ));
        }
        Ok(())
    }
}
