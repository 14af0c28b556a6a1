//! ACLs and quotas as the controller keeps them.

use std::sync::Arc;

use curtail_wire::ErrorCode;

use super::{Refusal, journal::Change, state::State};
use crate::{
    acl::{Acl, Filter},
    quota::{Entity, Limit},
};

impl State {
    /// Adds rules; those that are there already change nothing.
    pub(super) fn create_acls(&mut self, acls: Vec<Acl>) {
        for acl in acls {
            if self.image.acls.insert(acl.clone()).is_none() {
                self.changed(Change::Acl(acl));
            }
        }
    }

    /// Takes rules away and returns them.
    pub(super) fn delete_acls(&mut self, filter: &Filter) -> Vec<Acl> {
        let gone: Vec<Acl> =
            self.image.acls.iter().filter(|acl| filter.fits(acl)).cloned().collect();
        for acl in &gone {
            self.image.acls.remove(acl);
            self.changed(Change::DeleteAcl(acl.clone()));
        }
        gone
    }

    /// Sets a limit or takes it away.
    pub(super) fn alter_quota(&mut self, entity: &Entity, limit: Limit, value: Option<f64>) {
        let mut limits = self.image.quotas.get(entity).cloned().unwrap_or_default();
        let before = match value {
            Some(value) => limits.insert(limit, value),
            None => limits.remove(&limit),
        };
        if before == value {
            return;
        }
        if limits.is_empty() {
            self.image.quotas.remove(entity);
        } else {
            self.image.quotas.insert(entity.clone(), limits);
        }
        self.changed(Change::Quota { entity: entity.clone(), limit, value });
    }

    /// As the changes that would rebuild it.
    pub(super) fn access_snapshot(&self) -> Vec<Change> {
        let acls = self.image.acls.iter().cloned().map(Change::Acl);
        let quotas = self.image.quotas.iter().flat_map(|(entity, limits)| {
            limits.iter().map(|(limit, value)| Change::Quota {
                entity: entity.clone(),
                limit: *limit,
                value: Some(*value),
            })
        });
        acls.chain(quotas).collect()
    }
}
