//! Quotas of users, clients and addresses (KIP-546).

use std::collections::{BTreeMap, BTreeSet};

use curtail_wire::{ErrorCode, cold::messages};
use messages::{
    AlterClientQuotasRequest, AlterClientQuotasResponse, DescribeClientQuotasRequest,
    DescribeClientQuotasResponse, alter_client_quotas_request,
    describe_client_quotas_request::ComponentData,
};

use super::{Admin, Call, Each, Mode, broker_error, text};
use crate::Result;

/// Entity of a quota: names by `user`, `client-id` or `ip`; `None` is the default entity.
pub type QuotaEntity = BTreeMap<String, Option<String>>;

/// Values by quota name, such as `producer_byte_rate`, in Kafka's units.
pub type Quotas = BTreeMap<String, f64>;

/// Filter on the name of an entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuotaMatch {
    /// This name.
    Name(String),
    /// The default entity.
    Default,
    /// All names with a quota.
    Any,
}

/// Filter for quotas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuotaFilter {
    components: Vec<(String, QuotaMatch)>,
    strict: bool,
}

impl QuotaFilter {
    /// Matches all quotas.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// Matches quotas whose entities have these types, and possibly others.
    pub fn containing(components: impl IntoIterator<Item = (String, QuotaMatch)>) -> Self {
        Self { components: components.into_iter().collect(), strict: false }
    }

    /// Matches quotas whose entities have exactly these types.
    pub fn only(components: impl IntoIterator<Item = (String, QuotaMatch)>) -> Self {
        Self { components: components.into_iter().collect(), strict: true }
    }
}

/// A change of one quota.
#[derive(Clone, Debug, PartialEq)]
pub enum QuotaChange {
    /// Sets a value.
    Set(String, f64),
    /// Removes the value.
    Remove(String),
}

impl Admin {
    /// Returns quotas.
    ///
    /// # Errors
    /// If no broker responds within `default.api.timeout.ms`, or the request is refused.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub fn describe_client_quotas<'a>(
        &'a self,
        filter: &'a QuotaFilter,
    ) -> Call<'a, BTreeMap<QuotaEntity, Quotas>> {
        let what = "describing quotas (default.api.timeout.ms)";
        self.retried(what, move |_| self.describe_quotas_once(filter))
    }

    async fn describe_quotas_once(
        &self,
        filter: &QuotaFilter,
    ) -> Result<BTreeMap<QuotaEntity, Quotas>> {
        let components = filter.components.iter().map(|(kind, wanted)| {
            let (match_type, name) = match wanted {
                QuotaMatch::Name(name) => (0, Some(text(name))),
                QuotaMatch::Default => (1, None),
                QuotaMatch::Any => (2, None),
            };
            ComponentData::default()
                .with_entity_type(text(kind))
                .with_match_type(match_type)
                .with_match(name)
        });
        let request = DescribeClientQuotasRequest::default()
            .with_components(components.collect())
            .with_strict(filter.strict);
        let answer: DescribeClientQuotasResponse = self.ask_any(0..=1, |_| request).await?;
        let message = answer.error_message.as_deref();
        ErrorCode(answer.error_code).ok().map_err(|code| broker_error("quotas", code, message))?;
        let entries = answer.entries.unwrap_or_default().into_iter().map(|entry| {
            let name = |name: Option<curtail_wire::cold::StrBytes>| name.map(|n| n.to_string());
            let entity = entry.entity.into_iter();
            let entity = entity.map(|part| (part.entity_type.to_string(), name(part.entity_name)));
            let values = entry.values.into_iter();
            let values = values.map(|value| (value.key.to_string(), value.value));
            (entity.collect(), values.collect())
        });
        Ok(entries.collect())
    }

    /// Changes quotas, with a result for each entity. The changes of one entity apply all or none.
    ///
    /// # Errors
    /// If the controller does not respond within `default.api.timeout.ms`.
    ///
    /// # Cancel safety
    /// A dropped call may still have been carried out.
    pub fn alter_client_quotas<'a>(
        &'a self,
        changes: &'a [(QuotaEntity, Vec<QuotaChange>)],
        mode: Mode,
    ) -> Call<'a, Each<QuotaEntity, ()>> {
        let entities: Vec<QuotaEntity> = changes.iter().map(|(entity, _)| entity.clone()).collect();
        let what = "changing quotas (default.api.timeout.ms)";
        self.rounds(what, entities, move |open, _| self.alter_quotas_once(changes, mode, open))
    }

    async fn alter_quotas_once(
        &self,
        changes: &[(QuotaEntity, Vec<QuotaChange>)],
        mode: Mode,
        open: BTreeSet<QuotaEntity>,
    ) -> Result<Each<QuotaEntity, ()>> {
        use alter_client_quotas_request::{EntityData, EntryData, OpData};
        let open = changes.iter().filter(|(entity, _)| open.contains(entity));
        let entries = open.map(|(entity, changes)| {
            let entity = entity.iter().map(|(kind, name)| {
                EntityData::default()
                    .with_entity_type(text(kind))
                    .with_entity_name(name.as_deref().map(text))
            });
            let ops = changes.iter().map(|change| match change {
                QuotaChange::Set(key, value) => {
                    OpData::default().with_key(text(key)).with_value(*value)
                }
                QuotaChange::Remove(key) => OpData::default().with_key(text(key)).with_remove(true),
            });
            EntryData::default().with_entity(entity.collect()).with_ops(ops.collect())
        });
        let request = AlterClientQuotasRequest::default()
            .with_entries(entries.collect())
            .with_validate_only(mode.validates());
        let answer: AlterClientQuotasResponse = self.ask_controller(0..=1, |_| request).await?;
        let results = answer.entries.into_iter().map(|entry| {
            let parts = entry.entity.iter();
            let entity: QuotaEntity = parts
                .map(|part| {
                    let name = part.entity_name.as_ref().map(ToString::to_string);
                    (part.entity_type.to_string(), name)
                })
                .collect();
            let message = entry.error_message.as_deref();
            let error =
                |code| broker_error(&format!("quotas of {}", shown(&entity)), code, message);
            let result = ErrorCode(entry.error_code).ok().map_err(error);
            (entity, result)
        });
        Ok(results.collect())
    }
}

fn shown(entity: &QuotaEntity) -> String {
    let part = |(kind, name): (&String, &Option<String>)| match name {
        Some(name) => format!("{kind} '{name}'"),
        None => format!("every {kind}"),
    };
    entity.iter().map(part).collect::<Vec<_>>().join(", ")
}
