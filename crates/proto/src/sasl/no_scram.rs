//! Replaces `scram` in builds without the feature: no exchange begins, so the other types have no values.

use zeroize::Zeroizing;

use super::{Hash, SaslError, Secret, Step};

/// Private, because code after the return of a value that visibly cannot exist is a warning at its callers.
#[derive(Debug, PartialEq, Eq)]
enum Never {}

/// No exchange has one.
#[derive(Debug, PartialEq, Eq)]
pub struct Derivation(Never);

/// No derivation has one.
#[derive(Debug)]
pub struct SaltedPassword(Never);

impl Clone for Derivation {
    fn clone(&self) -> Self {
        match self.0 {}
    }
}

impl Clone for SaltedPassword {
    fn clone(&self) -> Self {
        match self.0 {}
    }
}

impl Derivation {
    /// Never called.
    #[must_use]
    pub fn run(&self) -> SaltedPassword {
        match self.0 {}
    }
}

/// No exchange.
#[derive(Debug)]
pub(super) enum Scram {}

impl Scram {
    pub(super) fn begin(
        _: Hash,
        _: &str,
        _: &Secret,
        _: bool,
        _: &str,
    ) -> Result<(Self, Zeroizing<Vec<u8>>), SaslError> {
        Err(SaslError::Unusable("this build has no SCRAM"))
    }

    pub(super) fn answered(&mut self, _: &[u8]) -> Result<Step, SaslError> {
        match *self {}
    }

    pub(super) fn derived(&mut self, _: &SaltedPassword) -> Result<Step, SaslError> {
        match *self {}
    }
}
