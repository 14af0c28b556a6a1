//! `allowlist.pattern`: the part of Java's regular expressions that lists of names need.
//!
//! Literals, `.`, classes (`[A-Z_]`, `[^a]`), `\w`, `\d` and escaped punctuation, groups, `|`, and the quantifiers `*`,
//! `+` and `?`. Every other construct is an error: a pattern that allowed more than it says would reveal variables. A
//! pattern matches whole names, and no name takes exponential time.

use std::{collections::BTreeSet, iter::Peekable, str::Chars};

/// A pattern for whole names.
#[derive(Debug)]
pub(super) struct Allowlist(Node);

#[derive(Debug)]
enum Node {
    One(Set),
    Sequence(Vec<Node>),
    Either(Vec<Node>),
    /// At least once or not, once or more often.
    Repeat {
        node: Box<Node>,
        is_optional: bool,
        is_repeated: bool,
    },
}

/// Ranges of characters.
#[derive(Debug, Default)]
struct Set {
    ranges: Vec<(char, char)>,
    is_negated: bool,
}

impl Set {
    fn of(c: char) -> Self {
        Self { ranges: vec![(c, c)], is_negated: false }
    }

    fn has(&self, c: char) -> bool {
        self.ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != self.is_negated
    }
}

const WORD: [(char, char); 4] = [('a', 'z'), ('A', 'Z'), ('0', '9'), ('_', '_')];
const DIGIT: [(char, char); 1] = [('0', '9')];
/// Java's `.` excludes them.
const LINE_ENDS: [(char, char); 4] =
    [('\n', '\n'), ('\r', '\r'), ('\u{85}', '\u{85}'), ('\u{2028}', '\u{2029}')];

impl Allowlist {
    /// # Errors
    /// Names the construct that is not supported.
    pub(super) fn parse(pattern: &str) -> Result<Self, String> {
        let mut parser = Parser { chars: pattern.chars().peekable(), depth: 0 };
        let node = parser.either()?;
        match parser.chars.next() {
            None => Ok(Self(node)),
            Some(c) => Err(unsupported(&format!("'{c}' here"))),
        }
    }

    /// Whether the pattern matches the whole name.
    pub(super) fn matches(&self, name: &str) -> bool {
        let name: Vec<char> = name.chars().collect();
        self.0.ends(&name, &BTreeSet::from([0])).contains(&name.len())
    }
}

impl Node {
    /// Where matches end that begin at one of these places.
    fn ends(&self, name: &[char], starts: &BTreeSet<usize>) -> BTreeSet<usize> {
        match self {
            Self::One(set) => {
                let here = starts.iter().filter(|at| name.get(**at).is_some_and(|c| set.has(*c)));
                here.map(|at| at + 1).collect()
            }
            Self::Sequence(nodes) => {
                nodes.iter().fold(starts.clone(), |starts, node| node.ends(name, &starts))
            }
            Self::Either(nodes) => nodes.iter().flat_map(|node| node.ends(name, starts)).collect(),
            Self::Repeat { node, is_optional, is_repeated } => {
                let mut all = if *is_optional { starts.clone() } else { BTreeSet::new() };
                let mut last = node.ends(name, starts);
                while *is_repeated && !last.is_subset(&all) {
                    all.append(&mut last.clone());
                    last = node.ends(name, &last);
                }
                all.append(&mut last);
                all
            }
        }
    }
}

struct Parser<'a> {
    chars: Peekable<Chars<'a>>,
    depth: usize,
}

/// Deeper groups would need an unbounded stack.
const DEEPEST: usize = 20;

impl Parser<'_> {
    fn either(&mut self) -> Result<Node, String> {
        let mut all = vec![self.sequence()?];
        while self.chars.next_if_eq(&'|').is_some() {
            all.push(self.sequence()?);
        }
        Ok(Node::Either(all))
    }

    fn sequence(&mut self) -> Result<Node, String> {
        let mut all = Vec::new();
        while let Some(c) = self.chars.next_if(|c| !matches!(c, '|' | ')')) {
            let node = self.one(c)?;
            all.push(self.quantified(node)?);
        }
        Ok(Node::Sequence(all))
    }

    fn quantified(&mut self, node: Node) -> Result<Node, String> {
        let Some(c) = self.chars.next_if(|c| matches!(c, '*' | '+' | '?')) else { return Ok(node) };
        if let Some(next) = self.chars.next_if(|c| matches!(c, '*' | '+' | '?')) {
            return Err(unsupported(&format!("'{c}{next}'")));
        }
        let (is_optional, is_repeated) = (c != '+', c != '?');
        Ok(Node::Repeat { node: Box::new(node), is_optional, is_repeated })
    }

    fn one(&mut self, c: char) -> Result<Node, String> {
        match c {
            '.' => Ok(Node::One(Set { ranges: LINE_ENDS.into(), is_negated: true })),
            '\\' => self.escaped().map(Node::One),
            '[' => self.class().map(Node::One),
            '(' => self.group(),
            '{' | '}' | '^' | '$' | '*' | '+' | '?' | ']' => Err(unsupported(&format!("'{c}'"))),
            c => Ok(Node::One(Set::of(c))),
        }
    }

    fn group(&mut self) -> Result<Node, String> {
        if self.chars.next_if_eq(&'?').is_some() && self.chars.next_if_eq(&':').is_none() {
            return Err(unsupported("'(?' other than '(?:'"));
        }
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(unsupported("groups nested this deep"));
        }
        let inner = self.either()?;
        self.depth -= 1;
        match self.chars.next() {
            Some(')') => Ok(inner),
            _ => Err("a group is not closed".into()),
        }
    }

    fn escaped(&mut self) -> Result<Set, String> {
        match self.chars.next() {
            Some('w') => Ok(Set { ranges: WORD.into(), is_negated: false }),
            Some('W') => Ok(Set { ranges: WORD.into(), is_negated: true }),
            Some('d') => Ok(Set { ranges: DIGIT.into(), is_negated: false }),
            Some('D') => Ok(Set { ranges: DIGIT.into(), is_negated: true }),
            Some(c) if c.is_ascii_punctuation() => Ok(Set::of(c)),
            Some(c) => Err(unsupported(&format!("'\\{c}'"))),
            None => Err("it ends with a backslash".into()),
        }
    }

    fn class(&mut self) -> Result<Set, String> {
        let is_negated = self.chars.next_if_eq(&'^').is_some();
        let mut set = Set { ranges: Vec::new(), is_negated };
        loop {
            match self.chars.next().ok_or("a class is not closed")? {
                ']' if set.ranges.is_empty() => return Err(unsupported("an empty class")),
                ']' => return Ok(set),
                '[' | '&' => return Err(unsupported("a class of classes")),
                '\\' => {
                    let escaped = self.escaped()?;
                    if escaped.is_negated {
                        return Err(unsupported("a negated class in a class"));
                    }
                    if self.chars.peek() == Some(&'-') {
                        return Err(unsupported("'-' after a backslash in a class"));
                    }
                    set.ranges.extend(escaped.ranges);
                }
                low => {
                    let is_range = self.chars.peek() == Some(&'-');
                    let mut ahead = self.chars.clone();
                    ahead.next();
                    match ahead.next() {
                        Some('\\') if is_range => {
                            return Err(unsupported("a backslash after '-' in a class"));
                        }
                        Some(high) if is_range && !matches!(high, ']' | '[') => {
                            if high < low {
                                return Err(format!("the range {low}-{high} is empty"));
                            }
                            self.chars = ahead;
                            set.ranges.push((low, high));
                        }
                        _ => set.ranges.push((low, low)),
                    }
                }
            }
        }
    }
}

fn unsupported(construct: &str) -> String {
    format!(
        "{construct} is not supported in this pattern; use literals, '.', [classes], (groups), '|', '*', '+' and '?'"
    )
}
