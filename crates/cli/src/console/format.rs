//! Format strings for printed records.

use std::io::{self, Write};

use super::unescape;

/// A parsed format string.
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
    /// Parses `%t %p %o %k %K %s %S %R %T %h %%` and the escapes of [`unescape`].
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
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
            }
        }
        Ok(())
    }
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
