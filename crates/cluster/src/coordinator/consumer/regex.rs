//! Subscriptions to a regular expression, which the coordinator resolves.
//!
//! Kafka takes the syntax of RE2/J, and a topic's whole name must match. The crate `regex` has the same syntax in all
//! that matters for names, and like RE2 needs time linear in the text.

use std::collections::{BTreeMap, BTreeSet};

use curtail_wire::ErrorCode;
use regex::Regex;

use super::{Refused, change::Resolved};
use crate::image::Image;

/// Compiles an expression so that it matches whole names.
///
/// # Errors
/// INVALID_REGULAR_EXPRESSION.
pub(super) fn compile(expression: &str) -> Result<Regex, Refused> {
    let whole = || Regex::new(&format!(r"\A(?:{expression})\z"));
    // By itself first: what closes a group that it has not opened is no expression.
    Regex::new(expression).and_then(|_| whole()).map_err(|error| {
        let reason = match error {
            regex::Error::CompiledTooBig(_) => "it is too large",
            _ => "its syntax is not valid",
        };
        let code = ErrorCode::INVALID_REGULAR_EXPRESSION;
        Refused::new(code, format!("the regular expression {expression:?} is refused: {reason}"))
    })
}

/// The topics that each of the expressions stands for. One that is not valid stands for none.
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
