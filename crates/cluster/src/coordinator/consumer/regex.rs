//! Subscriptions to a regular expression, which the coordinator resolves.
//!
//! Kafka uses the syntax of RE2/J, and an expression must match a topic's whole name. The crate
//! `regex` has the same syntax in everything relevant to names, and like RE2 its time is linear in
//! the text.

use std::collections::{BTreeMap, BTreeSet};

use curtail_wire::ErrorCode;
use regex::Regex;

use super::{Refused, change::Resolved};
use crate::image::Image;

/// Compiles an expression so that it matches whole names.
///
/// # Errors
/// INVALID_REGULAR_EXPRESSION.
pub(crate) fn compile(expression: &str) -> Result<Regex, Refused> {
    let whole = || Regex::new(&format!(r"\A(?:{expression})\z"));
    // The expression must compile on its own: an unmatched `)` would close the added group.
    Regex::new(expression).and_then(|_| whole()).map_err(|error| {
        let reason = match error {
            regex::Error::CompiledTooBig(_) => "it is too large",
            _ => "its syntax is not valid",
        };
        let code = ErrorCode::INVALID_REGULAR_EXPRESSION;
        Refused::new(code, format!("the regular expression {expression:?} is refused: {reason}"))
    })
}

/// Returns the topics that match each expression. An invalid expression matches none.
pub(crate) fn resolve(
    expressions: &BTreeSet<String>,
    image: &Image,
    now_ms: i64,
) -> BTreeMap<String, Resolved> {
    let version = i64::try_from(image.version).unwrap_or(i64::MAX);
    let resolve = |expression: &String| {
        let matches = compile(expression).ok();
        let names = image
            .topics
            .keys()
            .filter(|name| matches.as_ref().is_some_and(|expression| expression.is_match(name)));
        let topics = names.map(ToString::to_string).collect();
        (expression.clone(), Resolved { topics, version, timestamp: now_ms })
    };
    expressions.iter().map(resolve).collect()
}
