//! Settings of the doctor's clients, by Kafka's names.

use curtail::{AdminConfig, ConfigError, ConsumerConfig, ProducerConfig, config::ConfigProviders};

/// Settings of a producer, a consumer and an admin client of one cluster.
#[derive(Clone, Debug, Default)]
pub struct Clients {
    /// Settings of the producer.
    pub producer: ProducerConfig,
    /// Settings of the consumer.
    pub consumer: ConsumerConfig,
    /// Settings of the admin client: the address and the security of the others.
    pub admin: AdminConfig,
}

impl Clients {
    /// Sets each property on the clients that know it. The last value of a name wins.
    ///
    /// # Errors
    /// An unknown setting, a value that cannot be used, settings that contradict each other.
    pub fn from_properties(all: Vec<(String, String)>) -> Result<Self, ConfigError> {
        Self::unvalidated(all)?.validated()
    }

    /// As [`Self::from_properties`], for settings to which the caller adds some that are no properties. The admin client
    /// has none yet.
    ///
    /// # Errors
    /// An unknown setting, or a value that cannot be used.
    pub fn unvalidated(mut all: Vec<(String, String)>) -> Result<Self, ConfigError> {
        let mut clients = Self::default();
        // The variables of other values may need them.
        all.sort_by_key(|(name, _)| !ConfigProviders::configures(name));
        set_both(&mut clients.producer, &mut clients.consumer, &all)?;
        Ok(clients)
    }

    /// Checks the settings, and copies those of the admin client.
    ///
    /// # Errors
    /// Settings that contradict each other.
    pub fn validated(mut self) -> Result<Self, ConfigError> {
        self.producer.validate()?;
        self.consumer.validate()?;
        self.admin = AdminConfig::default().common(self.producer.get_common());
        Ok(self)
    }
}

/// Sets each property on the clients that know it, as tools with a producer and a consumer do.
///
/// # Errors
/// A setting that neither knows, or a value that cannot be used.
pub fn set_both(
    producer: &mut ProducerConfig,
    consumer: &mut ConsumerConfig,
    properties: &[(String, String)],
) -> Result<(), ConfigError> {
    for (name, value) in properties {
        let produced = producer.set(name, value);
        let consumed = consumer.set(name, value);
        match (produced, consumed) {
            (Ok(()), Ok(())) => {}
            // A setting of the other client is accepted, but not a wrong value of it.
            (Ok(()), Err(error)) | (Err(error), Ok(())) if is_foreign(&error) => {}
            (Err(error), Err(other)) if is_foreign(&error) => return Err(other),
            (Err(error), _) | (_, Err(error)) => return Err(error),
        }
    }
    Ok(())
}

fn is_foreign(error: &ConfigError) -> bool {
    matches!(error, ConfigError::OfOtherClients { .. })
}
