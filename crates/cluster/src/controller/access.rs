//! ACLs, quotas and SCRAM credentials in the controller.

use std::sync::Arc;

use curtail_wire::ErrorCode;

use super::{Refusal, journal::Change, state::State};
use crate::{
    acl::{Acl, Filter},
    quota::{Entity, Limit},
    sasl::{Credential, Credentials, Hash},
};

impl State {
    /// Adds ACLs; existing ones change nothing.
    pub(super) fn create_acls(&mut self, acls: Vec<Acl>) {
        for acl in acls {
            if self.image.acls.insert(acl.clone()).is_none() {
                self.changed(Change::Acl(acl));
            }
        }
    }

    /// Removes ACLs and returns them.
    pub(super) fn delete_acls(&mut self, filter: &Filter) -> Vec<Acl> {
        let gone: Vec<Acl> =
            self.image.acls.iter().filter(|acl| filter.fits(acl)).cloned().collect();
        for acl in &gone {
            self.image.acls.remove(acl);
            self.changed(Change::DeleteAcl(acl.clone()));
        }
        gone
    }

    /// Sets or removes a limit.
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

    /// Sets or removes a user's credential for a mechanism.
    pub(super) fn set_credential(
        &mut self,
        user: String,
        mechanism: Hash,
        credential: Option<Arc<Credential>>,
    ) {
        let of = (user.clone(), mechanism);
        match &credential {
            Some(credential) => self.image.credentials.insert(of, Arc::clone(credential)),
            None => self.image.credentials.remove(&of),
        };
        self.changed(Change::Credential { user, mechanism, credential });
    }

    /// Removes a credential, which must exist.
    pub(super) fn delete_credential(
        &mut self,
        user: String,
        mechanism: Hash,
    ) -> Result<(), Refusal> {
        let of = (user, mechanism);
        if !self.image.credentials.contains_key(&of) {
            let reason = "Attempt to delete a user credential that does not exist".to_owned();
            return Err((ErrorCode::RESOURCE_NOT_FOUND, reason));
        }
        self.set_credential(of.0, mechanism, None);
        Ok(())
    }

    /// Sets the credentials that this run is configured with. They replace an earlier run's
    /// credentials of the same users. They are not journaled: a user removed from the configuration
    /// cannot authenticate after the next start.
    pub(super) fn configure_credentials(&mut self, credentials: &Credentials) {
        for (of, credential) in credentials {
            self.image.credentials.insert(of.clone(), Arc::clone(credential));
        }
        self.image.version += 1;
    }

    /// Returns the changes that rebuild the ACLs, quotas and credentials.
    pub(super) fn access_snapshot(&self) -> Vec<Change> {
        let acls = self.image.acls.iter().cloned().map(Change::Acl);
        let quotas = self.image.quotas.iter().flat_map(|(entity, limits)| {
            limits.iter().map(|(limit, value)| Change::Quota {
                entity: entity.clone(),
                limit: *limit,
                value: Some(*value),
            })
        });
        let credentials = self.image.credentials.iter().map(|((user, mechanism), credential)| {
            Change::Credential {
                user: user.clone(),
                mechanism: *mechanism,
                credential: Some(Arc::clone(credential)),
            }
        });
        acls.chain(quotas).chain(credentials).collect()
    }
}
