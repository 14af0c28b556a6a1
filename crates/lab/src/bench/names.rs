//! Names with ranges in them: `foo[1-3]` is foo1, foo2 and foo3, and `foo[1-3]:[0-1]` is two partitions of each.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::refuse;
use crate::perf::Result;

/// Most names; more are taken for a mistake.
const MOST: usize = 100_000;

/// Expands a text with ranges to all its names, in order.
///
/// # Errors
/// A range that ends before it begins, or too many names.
pub(super) fn expand(text: &str) -> Result<Vec<String>> {
    let mut done = Vec::new();
    let mut open = vec![text.to_owned()];
    while let Some(name) = open.pop() {
        let Some(range) = Range::find(&name) else {
            done.push(name);
            continue;
        };
        let Range { before, first, last, after } = range;
        if last < first {
            return refuse(format!("'{text}': the range [{first}-{last}] ends before it begins"));
        }
        if last - first >= MOST as u64 || open.len() + done.len() > MOST {
            return refuse(format!("'{text}' stands for more than {MOST} names"));
        }
        open.extend((first..=last).rev().map(|number| format!("{before}{number}{after}")));
    }
    Ok(done)
}

/// The first range of a text, and the text around it.
struct Range<'a> {
    before: &'a str,
    first: u64,
    last: u64,
    after: &'a str,
}

impl<'a> Range<'a> {
    /// Brackets with any other content are part of the name.
    fn find(text: &'a str) -> Option<Self> {
        text.match_indices('[').find_map(|(at, _)| {
            let (inside, after) = text[at + 1..].split_once(']')?;
            let (first, last) = inside.split_once('-')?;
            let number = |digits: &str| digits.parse::<u64>().ok();
            Some(Self { before: &text[..at], first: number(first)?, last: number(last)?, after })
        })
    }
}

/// Topics and their partitions; an empty list for all partitions of a topic.
pub(super) type Partitions = BTreeMap<String, Vec<i32>>;

/// Partitions that a consumer reads: each text is a topic, or a topic and a partition after a colon, both
/// with ranges.
///
/// # Errors
/// As [`expand`], and a partition that is not a number.
pub(super) fn partitions(texts: &[String]) -> Result<Partitions> {
    let mut all = Partitions::new();
    for text in texts {
        for name in expand(text)? {
            let (topic, partition) = match name.split_once(':') {
                Some((topic, number)) => match number.parse::<i32>() {
                    Ok(number) if number >= 0 => (topic, Some(number)),
                    _ => return refuse(format!("'{text}': '{number}' is no partition")),
                },
                None => (name.as_str(), None),
            };
            if topic.is_empty() {
                return refuse(format!("'{text}' names no topic"));
            }
            all.entry(topic.to_owned()).or_default().extend(partition);
        }
    }
    for numbers in all.values_mut() {
        numbers.sort_unstable();
        numbers.dedup();
    }
    Ok(all)
}
