//! Checks PromQL expressions against the series of a text: names, labels, values and units.
//!
//! The parser knows the part of PromQL that the dashboard uses, with one binary operator per pair of parentheses.

use std::collections::{BTreeMap, BTreeSet};

/// Labels that Prometheus adds to each series that it scrapes.
const SCRAPED: [&str; 2] = ["instance", "job"];

type Outcome<T> = Result<T, String>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    /// A quantile of a summary: not the sum or the mean of several clients' quantiles (decision 0082).
    Quantile,
}

/// The series of one name, with the values of each label.
#[derive(Clone, Debug)]
pub(super) struct Metric {
    pub(super) family: String,
    pub(super) kind: Kind,
    pub(super) labels: BTreeMap<String, BTreeSet<String>>,
}

#[derive(Debug)]
pub(super) struct Catalog {
    /// By name: a summary also has those with `_sum` and `_count`.
    pub(super) metrics: BTreeMap<String, Metric>,
    /// Variables of the dashboard, for matchers such as `job=~"$job"`.
    pub(super) variables: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    Bytes,
    /// Records, requests, flags.
    Count,
    /// Of two values with the same unit.
    Ratio,
}

/// The result of an expression.
#[derive(Clone, Debug)]
pub(super) struct Vector {
    pub(super) labels: BTreeSet<String>,
    pub(super) unit: Unit,
    pub(super) per_second: bool,
    pub(super) kind: Kind,
}

enum Operand {
    Number,
    Vector(Vector),
}

/// Families that a checked text names.
pub(super) type Families = BTreeSet<String>;

impl Catalog {
    /// Checks a query of a panel.
    pub(super) fn expression(&self, text: &str, families: &mut Families) -> Outcome<Vector> {
        let mut parser = Parser { catalog: self, rest: text, families };
        let operand = parser.expression().and_then(|operand| parser.end(operand));
        match operand.map_err(|error| format!("{error}: {text}"))? {
            Operand::Number => Err(format!("a number: {text}")),
            Operand::Vector(vector) if vector.kind == Kind::Counter => {
                Err(format!("a counter without rate: {text}"))
            }
            Operand::Vector(vector) => Ok(vector),
        }
    }

    /// Checks a variable's query, `label_values(selector, label)`.
    pub(super) fn label_values(&self, text: &str) -> Outcome<()> {
        let mut unused = Families::new();
        let mut parser = Parser { catalog: self, rest: text, families: &mut unused };
        let mut check = || {
            parser.expect("label_values")?;
            parser.expect("(")?;
            let vector = parser.selector("")?;
            parser.expect(",")?;
            let label = parser.word();
            has(&vector.labels, label)?;
            parser.expect(")")?;
            parser.end(())
        };
        check().map_err(|error| format!("{error}: {text}"))
    }
}

fn has(labels: &BTreeSet<String>, label: &str) -> Outcome<()> {
    if labels.contains(label) { Ok(()) } else { Err(format!("no label {label}")) }
}

struct Parser<'a> {
    catalog: &'a Catalog,
    rest: &'a str,
    families: &'a mut Families,
}

impl<'a> Parser<'a> {
    fn skip(&mut self, token: &str) -> bool {
        self.rest = self.rest.trim_start();
        let found = self.rest.strip_prefix(token);
        self.rest = found.unwrap_or(self.rest);
        found.is_some()
    }

    fn expect(&mut self, token: &str) -> Outcome<()> {
        if self.skip(token) { Ok(()) } else { Err(format!("{token} expected at {:?}", self.rest)) }
    }

    fn end<T>(&self, value: T) -> Outcome<T> {
        if self.rest.is_empty() { Ok(value) } else { Err(format!("unexpected {:?}", self.rest)) }
    }

    /// Reads a name or a number; empty if there is none.
    fn word(&mut self) -> &'a str {
        self.rest = self.rest.trim_start();
        let is_other = |c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '.';
        let end = self.rest.find(is_other).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    fn expression(&mut self) -> Outcome<Operand> {
        let left = self.operand()?;
        let Some(operator) = ["/", "-", ">"].into_iter().find(|token| self.skip(token)) else {
            return Ok(left);
        };
        combined(left, operator, self.operand()?)
    }

    fn operand(&mut self) -> Outcome<Operand> {
        if self.skip("(") {
            let inner = self.expression()?;
            self.expect(")")?;
            return Ok(inner);
        }
        let word = self.word();
        let vector = match word {
            number if number.parse::<f64>().is_ok() => return Ok(Operand::Number),
            "rate" => self.rate()?,
            "sum" | "max" => self.aggregation(word)?,
            "topk" => {
                self.expect("(")?;
                if self.word().parse::<u32>().is_err() {
                    return Err("topk without a number".to_owned());
                }
                self.expect(",")?;
                let vector = self.vector()?;
                self.expect(")")?;
                vector
            }
            name => self.selector(name)?,
        };
        Ok(Operand::Vector(vector))
    }

    fn vector(&mut self) -> Outcome<Vector> {
        match self.expression()? {
            Operand::Vector(vector) => Ok(vector),
            Operand::Number => Err("a number".to_owned()),
        }
    }

    fn rate(&mut self) -> Outcome<Vector> {
        self.expect("(")?;
        let name = self.word();
        let counter = self.selector(name)?;
        if counter.kind != Kind::Counter {
            return Err(format!("rate of {name}, which is no counter"));
        }
        self.expect("[$__rate_interval]")?;
        self.expect(")")?;
        Ok(Vector { kind: Kind::Gauge, per_second: true, ..counter })
    }

    fn aggregation(&mut self, word: &str) -> Outcome<Vector> {
        self.expect("by")?;
        self.expect("(")?;
        let mut by = BTreeSet::new();
        loop {
            by.insert(self.word().to_owned());
            if !self.skip(",") {
                break;
            }
        }
        self.expect(")")?;
        self.expect("(")?;
        let vector = self.vector()?;
        self.expect(")")?;
        by.iter().try_for_each(|label| has(&vector.labels, label))?;
        if vector.kind == Kind::Quantile && word == "sum" {
            return Err("sum of quantiles".to_owned());
        }
        Ok(Vector { labels: by, ..vector })
    }

    /// Reads the matchers of the metric `name`; without a name, those of all metrics that `__name__` matches.
    fn selector(&mut self, name: &str) -> Outcome<Vector> {
        self.expect("{")?;
        let mut matchers = Vec::new();
        while !self.skip("}") {
            let label = self.word();
            let is_pattern = self.skip("=~");
            if !is_pattern {
                self.expect("=")?;
            }
            self.expect("\"")?;
            let (value, rest) = self.rest.split_once('"').ok_or("no end of a value")?;
            self.rest = rest;
            matchers.push((label, is_pattern, value));
            if !self.skip(",") {
                self.expect("}")?;
                break;
            }
        }
        let names: Vec<&str> = match matchers.iter().position(|(label, ..)| *label == "__name__") {
            Some(at) if name.is_empty() => matchers.remove(at).2.split('|').collect(),
            _ => vec![name],
        };
        let vectors = names.iter().map(|name| self.selected(name, &matchers));
        let mut vectors = vectors.collect::<Outcome<Vec<_>>>()?.into_iter();
        let mut all = vectors.next().ok_or("no metric")?;
        vectors.for_each(|other| all.labels.retain(|label| other.labels.contains(label)));
        Ok(all)
    }

    fn selected(&mut self, name: &str, matchers: &[(&str, bool, &str)]) -> Outcome<Vector> {
        let metric = self.catalog.metrics.get(name).ok_or_else(|| format!("no metric {name:?}"))?;
        self.families.insert(metric.family.clone());
        for (label, is_pattern, value) in matchers {
            let values = metric.labels.get(*label);
            if values.is_none() && !SCRAPED.contains(label) {
                return Err(format!("no label {label} of {name}"));
            }
            if let Some(variable) = value.strip_prefix('$') {
                // A variable with several values is a pattern.
                if !is_pattern || !self.catalog.variables.contains(variable) {
                    return Err(format!("no variable {variable}, or not in a pattern"));
                }
                continue;
            }
            let wanted: Vec<&str> =
                if *is_pattern { value.split('|').collect() } else { vec![value] };
            for value in wanted.iter().copied() {
                let in_text =
                    if *label == "quantile" { as_in_text(value, &wanted)? } else { value };
                if !values.is_some_and(|values| values.contains(in_text)) {
                    return Err(format!("no {label} {value:?} of {name}"));
                }
            }
        }
        let one_quantile = matchers.iter().any(|(label, ..)| *label == "quantile");
        if metric.kind == Kind::Quantile && !one_quantile {
            return Err(format!("{name} without a quantile"));
        }
        let of_text = metric.labels.keys().map(String::as_str);
        let labels = of_text.chain(SCRAPED).map(ToOwned::to_owned).collect();
        Ok(Vector { labels, unit: unit(name), per_second: false, kind: metric.kind })
    }
}

/// Returns a quantile as it is in the text. Prometheus 3 stores 1 as 1.0, and Prometheus 2 as it is in the text, so a
/// query must match both.
fn as_in_text<'a>(quantile: &'a str, wanted: &[&str]) -> Outcome<&'a str> {
    let in_text = quantile.strip_suffix(".0").unwrap_or(quantile);
    let is_whole = !in_text.contains('.');
    let stored = format!("{in_text}.0");
    if is_whole && !(wanted.contains(&in_text) && wanted.contains(&&*stored)) {
        return Err(format!("quantile {quantile}: match {in_text}|{stored}"));
    }
    Ok(in_text)
}

fn unit(name: &str) -> Unit {
    let stem = name.strip_suffix("_sum").or_else(|| name.strip_suffix("_total")).unwrap_or(name);
    match stem.rsplit('_').next() {
        Some("seconds") => Unit::Seconds,
        Some("bytes") => Unit::Bytes,
        _ => Unit::Count,
    }
}

fn combined(left: Operand, operator: &str, right: Operand) -> Outcome<Operand> {
    let vector = match (left, operator, right) {
        (Operand::Vector(left), "/", Operand::Vector(right)) => {
            if left.labels != right.labels {
                return Err(format!("{:?} differ from {:?}", left.labels, right.labels));
            }
            if left.kind != Kind::Gauge || right.kind != Kind::Gauge {
                return Err("a ratio of counters or quantiles".to_owned());
            }
            let same = (left.unit, left.per_second) == (right.unit, right.per_second);
            let unit = match right.unit {
                _ if same => Unit::Ratio,
                Unit::Count if left.per_second == right.per_second => left.unit,
                _ => return Err(format!("{:?} / {:?}", left.unit, right.unit)),
            };
            Vector { unit, per_second: false, ..left }
        }
        (Operand::Number, "-", Operand::Vector(ratio)) if ratio.unit == Unit::Ratio => ratio,
        (Operand::Vector(compared), ">", Operand::Number) => compared,
        (_, operator, _) => return Err(format!("these operands of {operator}")),
    };
    Ok(Operand::Vector(vector))
}
