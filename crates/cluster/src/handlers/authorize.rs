//! Authorization of requests. Without an authorizer every client has the permissions that the API
//! can ask for ([`super::served`]).

#[cfg(test)]
mod tests;

use std::sync::atomic::Ordering;

use curtail_wire::ErrorCode;

use super::Call;
use crate::acl::{Access, Operation, Resource, ResourceType};

impl Call<'_> {
    /// Returns whether the client may do this.
    pub(super) fn may(&self, operation: Operation, resource: Resource<'_>) -> bool {
        self.is_to_be_asked(operation, resource.resource_type())
            && self.with_access(|access| access.may(operation, &resource))
    }

    /// Like [`Call::may`], for any resource of a type.
    pub(super) fn may_with_any(&self, operation: Operation, of: ResourceType) -> bool {
        self.is_to_be_asked(operation, of)
            && self.with_access(|access| access.may_with_any(operation, of))
    }

    /// Records that the authorizer is asked. Returns false if the permission is not declared for
    /// the API.
    fn is_to_be_asked(&self, operation: Operation, of: ResourceType) -> bool {
        self.asked.store(true, Ordering::Relaxed);
        let known = self.served.is_some_and(|served| served.rights.has(operation, of));
        if !known {
            tracing::error!(api = %self.header.api, ?operation, ?of, "a right that the API is not known to need is refused");
        }
        known
    }

    /// Returns the resource's error code, unless the client may do this.
    pub(super) fn require(
        &self,
        operation: Operation,
        resource: Resource<'_>,
    ) -> Result<(), ErrorCode> {
        if self.may(operation, resource) { Ok(()) } else { Err(resource.refusal()) }
    }

    /// Returns which of these operations the client may perform, as bits by their codes. This is
    /// content of the response and does not count as authorization.
    pub(super) fn operations(&self, all: i32, resource: Resource<'_>) -> i32 {
        let bits = (0..31).filter(|bit| all & (1 << bit) != 0);
        let allowed = bits.filter(|bit| {
            let operation = Operation::of_code(*bit);
            operation.is_some_and(|o| self.with_access(|access| access.may(o, &resource)))
        });
        allowed.fold(0, |bits, bit| bits | 1 << bit)
    }

    fn with_access<T>(&self, ask: impl FnOnce(&Access<'_>) -> T) -> T {
        let image = self.broker.image();
        let host = self.peer.to_canonical().to_string();
        ask(&Access {
            rules: &image.acls,
            security: &self.broker.config.security,
            principal: self.principal,
            host: &host,
        })
    }
}
