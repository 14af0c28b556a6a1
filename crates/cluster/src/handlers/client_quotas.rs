//! DescribeClientQuotas, key 48, and AlterClientQuotas, key 49, each versions 0 and 1.
//!
//! Entities are users, client ids, and both together; limits are `producer_byte_rate` and
//! `consumer_byte_rate`. Others are refused with INVALID_REQUEST instead of being stored without
//! effect. The response follows the controller's decision; brokers learn the limits after their
//! metadata's delay.

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    cold::{
        StrBytes,
        messages::{
            AlterClientQuotasRequest, AlterClientQuotasResponse, DescribeClientQuotasRequest,
            DescribeClientQuotasResponse, alter_client_quotas_request,
            alter_client_quotas_response,
            describe_client_quotas_request::ComponentData,
            describe_client_quotas_response::{EntityData, EntryData, ValueData},
        },
    },
};

use super::{Answer, Call, text};
use crate::{
    acl::{Operation, Resource},
    quota::{Entity, Limit, Name},
};

const USER: &str = "user";
const CLIENT_ID: &str = "client-id";

type Refusal = (ErrorCode, String);

fn invalid(reason: impl Into<String>) -> Refusal {
    (ErrorCode::INVALID_REQUEST, reason.into())
}

fn refusal(code: ErrorCode) -> Refusal {
    (code, code.message().to_owned())
}

pub(super) fn describe(
    call: &Call<'_>,
    body: Bytes,
    out: &mut Vec<Bytes>,
) -> Result<Answer, String> {
    let request: DescribeClientQuotasRequest = call.decode(body)?;
    let allowed = call.require(Operation::DescribeConfigs, Resource::Cluster).map_err(refusal);
    let response = match allowed.and_then(|()| Wanted::new(&request.components, request.strict)) {
        Ok(wanted) => {
            let image = call.broker.image();
            let found = image.quotas.iter().filter(|(entity, _)| wanted.fits(entity));
            let entries = found.map(|(entity, limits)| {
                let values = limits.iter().map(|(limit, value)| {
                    ValueData::default().with_key(text(limit.name())).with_value(*value)
                });
                EntryData::default().with_entity(parts(entity)).with_values(values.collect())
            });
            DescribeClientQuotasResponse::default()
                .with_error_message(None)
                .with_entries(Some(entries.collect()))
        }
        Err((code, reason)) => DescribeClientQuotasResponse::default()
            .with_error_code(code.0)
            .with_error_message(Some(text(&reason)))
            .with_entries(None),
    };
    call.answer(&response, out)
}

/// A filter of DescribeClientQuotas for one part of an entity.
enum Match {
    /// The part exists.
    Specified,
    Exactly(Name),
}

impl Match {
    fn new(component: &ComponentData) -> Result<Self, Refusal> {
        match (component.match_type, &component._match) {
            (0, Some(name)) => Ok(Self::Exactly(Name::Exactly(name.to_string()))),
            (1, None) => Ok(Self::Exactly(Name::Default)),
            (2, None) => Ok(Self::Specified),
            _ => Err(invalid("The match type and the match do not go together.")),
        }
    }

    fn fits(&self, part: Option<&Name>) -> bool {
        match self {
            Self::Specified => part.is_some(),
            Self::Exactly(name) => part == Some(name),
        }
    }
}

struct Wanted {
    user: Option<Match>,
    client_id: Option<Match>,
    /// Whether entities with other parts are excluded.
    strict: bool,
}

impl Wanted {
    fn new(components: &[ComponentData], strict: bool) -> Result<Self, Refusal> {
        let mut wanted = Self { user: None, client_id: None, strict };
        for component in components {
            let of = match component.entity_type.as_str() {
                USER => &mut wanted.user,
                CLIENT_ID => &mut wanted.client_id,
                other => return Err(unsupported(other)),
            };
            if of.replace(Match::new(component)?).is_some() {
                return Err(invalid("An entity type is named twice."));
            }
        }
        Ok(wanted)
    }

    fn fits(&self, entity: &Entity) -> bool {
        let fits = |wanted: &Option<Match>, part: &Option<Name>| match wanted {
            Some(wanted) => wanted.fits(part.as_ref()),
            None => !self.strict || part.is_none(),
        };
        fits(&self.user, &entity.user) && fits(&self.client_id, &entity.client_id)
    }
}

fn unsupported(entity_type: &str) -> Refusal {
    let reason =
        format!("Quotas for {entity_type:?} are not supported, only for user and client-id.");
    (ErrorCode::UNSUPPORTED_VERSION, reason)
}

fn parts(entity: &Entity) -> Vec<EntityData> {
    let parts = [(USER, &entity.user), (CLIENT_ID, &entity.client_id)];
    let parts = parts.into_iter().filter_map(|(of, name)| {
        let name = match name.as_ref()? {
            Name::Default => None,
            Name::Exactly(name) => Some(text(name)),
        };
        Some(EntityData::default().with_entity_type(text(of)).with_entity_name(name))
    });
    parts.collect()
}

pub(super) fn alter(call: &Call<'_>, body: Bytes, out: &mut Vec<Bytes>) -> Result<Answer, String> {
    let request: AlterClientQuotasRequest = call.decode(body)?;
    let allowed = call.require(Operation::AlterConfigs, Resource::Cluster).map_err(refusal);
    let entries = request.entries.iter().map(|entry| {
        let altered = allowed.clone().and_then(|()| {
            let entity = entity(&entry.entity)?;
            let changes = changes(&entry.ops)?;
            if !request.validate_only {
                call.broker.controller.alter_quotas(&entity, &changes)?;
            }
            Ok(())
        });
        let parts = entry.entity.iter().map(|part| {
            alter_client_quotas_response::EntityData::default()
                .with_entity_type(part.entity_type.clone())
                .with_entity_name(part.entity_name.clone())
        });
        let answer =
            alter_client_quotas_response::EntryData::default().with_entity(parts.collect());
        match altered {
            Ok(()) => answer.with_error_message(None),
            Err((code, reason)) => {
                answer.with_error_code(code.0).with_error_message(Some(text(&reason)))
            }
        }
    });
    call.answer(&AlterClientQuotasResponse::default().with_entries(entries.collect()), out)
}

fn entity(parts: &[alter_client_quotas_request::EntityData]) -> Result<Entity, Refusal> {
    let mut entity = Entity { user: None, client_id: None };
    for part in parts {
        let of = match part.entity_type.as_str() {
            USER => &mut entity.user,
            CLIENT_ID => &mut entity.client_id,
            other => return Err(unsupported(other)),
        };
        let name = match part.entity_name.as_ref().map(StrBytes::as_str) {
            None => Name::Default,
            Some("") => return Err(invalid("An entity's name is empty.")),
            Some(name) => Name::Exactly(name.to_owned()),
        };
        if of.replace(name).is_some() {
            return Err(invalid("An entity type is named twice."));
        }
    }
    if parts.is_empty() {
        return Err(invalid("The entity is empty."));
    }
    Ok(entity)
}

/// Returns the new values; `None` for removed limits.
fn changes(
    ops: &[alter_client_quotas_request::OpData],
) -> Result<Vec<(Limit, Option<f64>)>, Refusal> {
    let change = |op: &alter_client_quotas_request::OpData| {
        let unknown = || {
            let known = "producer_byte_rate and consumer_byte_rate";
            invalid(format!("{:?} is not supported, only {known}.", op.key.as_str()))
        };
        let limit = Limit::by_name(&op.key).ok_or_else(unknown)?;
        if op.remove {
            return Ok((limit, None));
        }
        // Kafka stores bytes per second as whole numbers.
        let value = Some(op.value).filter(|value| *value >= 1.0 && value.fract() == 0.0);
        let value = value.filter(|value| *value <= i64::MAX as f64);
        let value = value.ok_or_else(|| invalid("A byte rate is a whole number, at least 1."))?;
        Ok((limit, Some(value)))
    };
    ops.iter().map(change).collect()
}
