//! Format strings for printed records.

use std::{
    borrow::Cow,
    io::{self, Write},
};

use serde::Serialize;

use super::unescape;

/// A parsed format string, or JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Format(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Topic,
    Partition,
    Offset,
    Key,
    KeyLength,
    Value,
    ValueLength,
    ValueLengthBinary,
    Timestamp,
    Headers,
    Json,
}

/// A record as kcat's JSON has it, except for `broker` and `tstype`. Bytes that are not UTF-8 become U+FFFD.
#[derive(Serialize)]
struct Json<'a> {
    topic: &'a str,
    partition: i32,
    offset: i64,
    /// Milliseconds.
    ts: i64,
    /// Names and values by turns.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    headers: Vec<Option<Cow<'a, str>>>,
    key: Option<Cow<'a, str>>,
    payload: Option<Cow<'a, str>>,
}

/// Fields of a record that a format can show.
pub(super) trait Shown {
    fn topic(&self) -> &str;
    fn partition(&self) -> i32;
    fn offset(&self) -> i64;
    fn timestamp(&self) -> i64;
    fn key(&self) -> Option<&[u8]>;
    fn value(&self) -> Option<&[u8]>;
    fn headers(&self) -> Vec<(&str, Option<&[u8]>)>;
}

impl Shown for curtail::ConsumerRecord {
    fn topic(&self) -> &str {
        self.topic()
    }

    fn partition(&self) -> i32 {
        self.partition()
    }

    fn offset(&self) -> i64 {
        self.offset()
    }

    fn timestamp(&self) -> i64 {
        self.timestamp()
    }

    fn key(&self) -> Option<&[u8]> {
        self.key()
    }

    fn value(&self) -> Option<&[u8]> {
        self.value()
    }

    fn headers(&self) -> Vec<(&str, Option<&[u8]>)> {
        self.headers().collect()
    }
}

impl Format {
    /// One JSON object for each record, on one line.
    pub(super) fn json() -> Self {
        Self(vec![Part::Json, Part::Text("\n".into())])
    }

    /// Parses `json`, or `%t %p %o %k %K %s %S %R %T %h %%` and the escapes of [`unescape`].
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text == "json" {
            return Ok(Self::json());
        }
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                plain.push(c);
                continue;
            }
            let part = match chars.next() {
                Some('t') => Part::Topic,
                Some('p') => Part::Partition,
                Some('o') => Part::Offset,
                Some('k') => Part::Key,
                Some('K') => Part::KeyLength,
                Some('s') => Part::Value,
                Some('S') => Part::ValueLength,
                Some('R') => Part::ValueLengthBinary,
                Some('T') => Part::Timestamp,
                Some('h') => Part::Headers,
                Some('%') => {
                    plain.push('%');
                    continue;
                }
                Some(other) => {
                    return Err(format!(
                        "unknown %{other}; expected %t %p %o %T %h %k %K %s %S %R, or %% for a percent sign"
                    ));
                }
                None => return Err("the format ends with %; write %% for a percent sign".into()),
            };
            if !plain.is_empty() {
                parts.push(Part::Text(unescape(&std::mem::take(&mut plain))));
            }
            parts.push(part);
        }
        if !plain.is_empty() {
            parts.push(Part::Text(unescape(&plain)));
        }
        Ok(Self(parts))
    }

    /// Values, each followed by a delimiter and optionally preceded by the key and its delimiter.
    pub(super) fn lines(key_delimiter: Option<&str>, delimiter: &str) -> Self {
        let mut parts = Vec::new();
        if let Some(text) = key_delimiter {
            parts.extend([Part::Key, Part::Text(unescape(text))]);
        }
        parts.extend([Part::Value, Part::Text(unescape(delimiter))]);
        Self(parts)
    }

    /// Writes a record. `null` stands for a missing key or value.
    pub(super) fn write(
        &self,
        record: &impl Shown,
        null: &str,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let bytes = |value: Option<&[u8]>| value.unwrap_or(null.as_bytes()).to_vec();
        let length = |value: Option<&[u8]>| value.map_or(-1, |v| v.len() as i64);
        for part in &self.0 {
            match part {
                Part::Text(text) => out.write_all(text.as_bytes())?,
                Part::Topic => out.write_all(record.topic().as_bytes())?,
                Part::Partition => write!(out, "{}", record.partition())?,
                Part::Offset => write!(out, "{}", record.offset())?,
                Part::Key => out.write_all(&bytes(record.key()))?,
                Part::KeyLength => write!(out, "{}", length(record.key()))?,
                Part::Value => out.write_all(&bytes(record.value()))?,
                Part::ValueLength => write!(out, "{}", length(record.value()))?,
                Part::ValueLengthBinary => {
                    out.write_all(&(length(record.value()) as i32).to_be_bytes())?;
                }
                Part::Timestamp => write!(out, "{}", record.timestamp())?,
                Part::Headers => headers(record, null, out)?,
                Part::Json => json(record, out)?,
            }
        }
        Ok(())
    }
}

fn json(record: &impl Shown, out: &mut impl Write) -> io::Result<()> {
    let headers = record.headers();
    let object = Json {
        topic: record.topic(),
        partition: record.partition(),
        offset: record.offset(),
        ts: record.timestamp(),
        headers: headers
            .iter()
            .flat_map(|(name, value)| [Some(Cow::from(*name)), value.map(String::from_utf8_lossy)])
            .collect(),
        key: record.key().map(String::from_utf8_lossy),
        payload: record.value().map(String::from_utf8_lossy),
    };
    Ok(serde_json::to_writer(out, &object)?)
}

fn headers(record: &impl Shown, null: &str, out: &mut impl Write) -> io::Result<()> {
    for (index, (name, value)) in record.headers().into_iter().enumerate() {
        if index > 0 {
            out.write_all(b",")?;
        }
        write!(out, "{name}=")?;
        out.write_all(value.unwrap_or(null.as_bytes()))?;
    }
    Ok(())
}
