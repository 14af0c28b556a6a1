//! The targets, one module for each family.

mod accumulator;
mod client;
mod codecs;
mod fetch_session;
mod fetcher;
mod frames;
mod groups;
mod link;
mod membership;
mod metadata;
mod position;
mod proxied;
mod records;
mod requests;
mod responses;
mod sasl;
mod stored;
mod transaction;

use crate::Target;

/// Every target.
pub const ALL: &[Target] = &[
    frames::TARGET,
    responses::TARGET,
    records::TARGET,
    codecs::TARGET,
    sasl::TARGET,
    groups::TARGET,
    accumulator::TARGET,
    link::TARGET,
    membership::TARGET,
    transaction::TARGET,
    fetch_session::TARGET,
    fetcher::TARGET,
    position::TARGET,
    metadata::TARGET,
    requests::TARGET,
    stored::TARGET,
    proxied::TARGET,
    client::TARGET,
];
