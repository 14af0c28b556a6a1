//! Whether who asks may have what it asks for. Without an authorizer everybody may.

use curtail_wire::ErrorCode;

use super::Call;
use crate::acl::{Access, Operation, Resource, ResourceType};

impl Call<'_> {
    /// Whether who asks may do this.
    pub(super) fn may(&self, operation: Operation, resource: Resource<'_>) -> bool {
        self.with_access(|access| access.may(operation, &resource))
    }

    /// As [`Call::may`], for some resource of a type.
    pub(super) fn may_with_any(&self, operation: Operation, of: ResourceType) -> bool {
        self.with_access(|access| access.may_with_any(operation, of))
    }

    /// The refusal that belongs to the resource, unless who asks may do this.
    pub(super) fn require(
        &self,
        operation: Operation,
        resource: Resource<'_>,
    ) -> Result<(), ErrorCode> {
        if self.may(operation, resource) { Ok(()) } else { Err(resource.refusal()) }
    }

    /// What of these operations who asks may do, as bits by their numbers.
    pub(super) fn operations(&self, all: i32, resource: Resource<'_>) -> i32 {
        let bits = (0..31).filter(|bit| all & (1 << bit) != 0);
        let allowed = bits.filter(|bit| {
            Operation::of_code(*bit).is_some_and(|operation| self.may(operation, resource))
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
