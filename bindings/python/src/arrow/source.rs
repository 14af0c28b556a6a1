//! Columns of other libraries as rows to send.
//!
//! # Invariants
//! - Arrays are read and released by threads of the program: a release may attach to the interpreter.

use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BinaryArray, BinaryViewArray, FixedSizeBinaryArray,
    LargeBinaryArray, LargeListArray, LargeStringArray, ListArray, StringArray, StringViewArray,
    StructArray,
    cast::AsArray,
    types::{
        Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType,
        TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type,
        UInt16Type, UInt32Type, UInt64Type,
    },
};
use arrow_schema::{DataType, Fields, TimeUnit};
use parking_lot::Mutex;
use pyo3::{exceptions::PyTypeError, prelude::*};

use super::capsule::{self, Input};
use crate::{error, runtime::Owned};

/// Names of columns that an error lists at most.
const LISTED: usize = 20;

/// Rows of an object's columns, which `send_arrow` sends in turn. A forked child does not release them: a thread of the
/// parent may have been in the stream.
#[pyclass(frozen, module = "curtail_kafka._native")]
pub(crate) struct ArrowRows(pub(crate) Owned<Mutex<Source>>);

#[pymethods]
impl ArrowRows {
    /// Takes the object's stream or array, and selects columns by their names. Reads no rows.
    #[new]
    #[pyo3(signature = (data, value, key=None, partition=None, timestamp=None, headers=None))]
    fn new(
        data: &Bound<'_, PyAny>,
        value: &str,
        key: Option<&str>,
        partition: Option<&str>,
        timestamp: Option<&str>,
        headers: Option<&str>,
    ) -> PyResult<Self> {
        let py = data.py();
        let input = capsule::import(data)?;
        let DataType::Struct(fields) = input.data_type() else {
            let text = format!(
                "data must have columns, as a table or a record batch, not be an array of {}",
                input.data_type()
            );
            return Err(PyTypeError::new_err(text));
        };
        let index = |role: &str, name: &str| {
            column(fields, role, name).map_err(|text| error::config(py, &text))
        };
        let optional = |role, name: Option<&str>| name.map(|name| index(role, name)).transpose();
        let picks = Picks {
            value: index("value", value)?,
            key: optional("key", key)?,
            partition: optional("partition", partition)?,
            timestamp: optional("timestamp", timestamp)?,
            headers: optional("headers", headers)?,
        };
        picks.check(fields).map_err(PyTypeError::new_err)?;
        Ok(Self(Owned::new(Mutex::new(Source { input, picks, chunk: None, read: 0 }))))
    }
}

/// The index of a column. Fails with a text for the program.
fn column(fields: &Fields, role: &str, name: &str) -> Result<usize, String> {
    let mut found = fields.iter().enumerate().filter(|(_, field)| field.name() == name);
    match (found.next(), found.next()) {
        (Some((index, _)), None) => Ok(index),
        (Some(_), Some(_)) => Err(format!("{role}: data has several columns '{name}'")),
        (None, _) => {
            let mut names: Vec<&str> =
                fields.iter().take(LISTED).map(|field| field.name().as_str()).collect();
            if fields.len() > LISTED {
                names.push("...");
            }
            let names = if names.is_empty() { "no columns".into() } else { names.join(", ") };
            Err(format!("{role}: no column '{name}': data has {names}"))
        }
    }
}

/// Indexes of the selected columns.
struct Picks {
    value: usize,
    key: Option<usize>,
    partition: Option<usize>,
    timestamp: Option<usize>,
    headers: Option<usize>,
}

impl Picks {
    /// Checks the types of the columns. Fails with a text for the program.
    fn check(&self, fields: &Fields) -> Result<(), String> {
        let check = |role: &str, index: usize, is_usable: fn(&DataType) -> bool, kinds: &str| {
            let field = &fields[index];
            if is_usable(field.data_type()) {
                return Ok(());
            }
            let (name, kind) = (field.name(), field.data_type());
            Err(format!("{role}: column '{name}' must be {kinds}, not {kind}"))
        };
        const CONTENT: &str = "of strings or binary values";
        check("value", self.value, is_content, CONTENT)?;
        if let Some(key) = self.key {
            check("key", key, is_content, CONTENT)?;
        }
        if let Some(partition) = self.partition {
            check("partition", partition, DataType::is_integer, "of integers")?;
        }
        if let Some(timestamp) = self.timestamp {
            check("timestamp", timestamp, is_time, "of timestamps, or int64 for milliseconds")?;
        }
        if let Some(headers) = self.headers {
            let kinds = "of lists of structs with a name (string) and a value (string or binary)";
            check("headers", headers, is_headers, kinds)?;
        }
        Ok(())
    }
}

fn is_text(kind: &DataType) -> bool {
    matches!(kind, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

fn is_content(kind: &DataType) -> bool {
    is_text(kind)
        || matches!(
            kind,
            DataType::Binary
                | DataType::LargeBinary
                | DataType::BinaryView
                | DataType::FixedSizeBinary(_)
                | DataType::Null
        )
}

fn is_time(kind: &DataType) -> bool {
    matches!(kind, DataType::Int64 | DataType::Timestamp(..))
}

fn is_headers(kind: &DataType) -> bool {
    let (DataType::List(item) | DataType::LargeList(item)) = kind else { return false };
    let DataType::Struct(fields) = item.data_type() else { return false };
    let is = |name: &str, is_usable: fn(&DataType) -> bool| {
        fields.find(name).is_some_and(|(_, field)| is_usable(field.data_type()))
    };
    is("name", is_text) && is("value", is_content)
}

/// Chunks of rows, one of them at a time.
pub(crate) struct Source {
    input: Input,
    picks: Picks,
    chunk: Option<Chunk>,
    /// Rows of the chunks read.
    read: u64,
}

impl Source {
    /// Returns a chunk with rows that were not sent. `None` after the last one. May take as long as the other library
    /// needs. Fails with a text for the program.
    pub(crate) fn chunk(&mut self) -> Result<Option<&mut Chunk>, String> {
        while self.chunk.as_ref().is_none_or(|chunk| chunk.next == chunk.rows) {
            // Released before the next one is read.
            self.chunk = None;
            let Some(array) = self.input.next() else { return Ok(None) };
            let array = array.map_err(|error| error.to_string())?;
            let chunk = Chunk::new(&array, &self.picks, self.read);
            let chunk = chunk.ok_or("data has rows that are null, or other columns than before")?;
            self.read += chunk.rows as u64;
            self.chunk = Some(chunk);
        }
        Ok(self.chunk.as_mut())
    }
}

/// Rows of one array.
pub(crate) struct Chunk {
    pub(crate) columns: Columns,
    pub(crate) rows: usize,
    /// Index of the next row to send.
    pub(crate) next: usize,
    /// Number of the rows before the chunk.
    pub(crate) first: u64,
}

impl Chunk {
    fn new(array: &ArrayRef, picks: &Picks, first: u64) -> Option<Self> {
        let rows = array.as_struct_opt().filter(|rows| rows.null_count() == 0)?;
        let at = |index: usize| rows.columns().get(index);
        let columns = Columns {
            value: at(picks.value).and_then(Content::new)?,
            key: maybe(picks.key, |index| at(index).and_then(Content::new))?,
            partition: maybe(picks.partition, |index| at(index).and_then(integers))?,
            timestamp: maybe(picks.timestamp, |index| at(index).and_then(times))?,
            headers: maybe(picks.headers, |index| at(index).and_then(Headers::new))?,
        };
        Some(Self { columns, rows: rows.len(), next: 0, first })
    }
}

/// The column with an index, if there is one. Fails if it cannot be used.
fn maybe<T>(index: Option<usize>, column: impl Fn(usize) -> Option<T>) -> Option<Option<T>> {
    match index {
        Some(index) => column(index).map(Some),
        None => Some(None),
    }
}

/// The selected columns of a chunk.
pub(crate) struct Columns {
    value: Content,
    key: Option<Content>,
    partition: Option<Integers>,
    timestamp: Option<Times>,
    headers: Option<Headers>,
}

type Pair<'a> = (&'a str, Option<&'a [u8]>);

impl Columns {
    pub(crate) fn value(&self, row: usize) -> Option<&[u8]> {
        self.value.get(row)
    }

    pub(crate) fn key(&self, row: usize) -> Option<&[u8]> {
        self.key.as_ref().and_then(|key| key.get(row))
    }

    /// Fails with a text for the program.
    pub(crate) fn partition(&self, row: usize) -> Result<Option<i32>, String> {
        let Some(number) = self.partition.as_ref().and_then(|partition| partition(row)) else {
            return Ok(None);
        };
        let wrong = |_| format!("partition {number} is outside the range of int32");
        i32::try_from(number).map(Some).map_err(wrong)
    }

    /// Milliseconds since 1970-01-01 UTC.
    pub(crate) fn timestamp(&self, row: usize) -> Option<i64> {
        self.timestamp.as_ref().and_then(|timestamp| timestamp(row))
    }

    /// Puts the row's headers into the list. Fails with a text for the program.
    pub(crate) fn headers<'a>(
        &'a self,
        row: usize,
        list: &mut Vec<Pair<'a>>,
    ) -> Result<(), String> {
        list.clear();
        match &self.headers {
            Some(headers) => headers.get(row, list),
            None => Ok(()),
        }
    }
}

/// Strings or binary values.
enum Content {
    Utf8(StringArray),
    LargeUtf8(LargeStringArray),
    Utf8View(StringViewArray),
    Binary(BinaryArray),
    LargeBinary(LargeBinaryArray),
    BinaryView(BinaryViewArray),
    Fixed(FixedSizeBinaryArray),
    Null,
}

impl Content {
    fn new(array: &ArrayRef) -> Option<Self> {
        Some(match array.data_type() {
            DataType::Utf8 => Self::Utf8(array.as_string_opt::<i32>()?.clone()),
            DataType::LargeUtf8 => Self::LargeUtf8(array.as_string_opt::<i64>()?.clone()),
            DataType::Utf8View => Self::Utf8View(array.as_string_view_opt()?.clone()),
            DataType::Binary => Self::Binary(array.as_binary_opt::<i32>()?.clone()),
            DataType::LargeBinary => Self::LargeBinary(array.as_binary_opt::<i64>()?.clone()),
            DataType::BinaryView => Self::BinaryView(array.as_binary_view_opt()?.clone()),
            DataType::FixedSizeBinary(_) => Self::Fixed(array.as_fixed_size_binary_opt()?.clone()),
            DataType::Null => Self::Null,
            _ => return None,
        })
    }

    fn get(&self, row: usize) -> Option<&[u8]> {
        match self {
            Self::Utf8(all) => all.is_valid(row).then(|| all.value(row).as_bytes()),
            Self::LargeUtf8(all) => all.is_valid(row).then(|| all.value(row).as_bytes()),
            Self::Utf8View(all) => all.is_valid(row).then(|| all.value(row).as_bytes()),
            Self::Binary(all) => all.is_valid(row).then(|| all.value(row)),
            Self::LargeBinary(all) => all.is_valid(row).then(|| all.value(row)),
            Self::BinaryView(all) => all.is_valid(row).then(|| all.value(row)),
            Self::Fixed(all) => all.is_valid(row).then(|| all.value(row)),
            Self::Null => None,
        }
    }
}

/// The integer of a row.
type Integers = Box<dyn Fn(usize) -> Option<i128> + Send>;

fn integers(array: &ArrayRef) -> Option<Integers> {
    fn of<T: ArrowPrimitiveType<Native: Into<i128>>>(array: &ArrayRef) -> Option<Integers> {
        let all = array.as_primitive_opt::<T>()?.clone();
        Some(Box::new(move |row| all.is_valid(row).then(|| all.value(row).into())))
    }
    match array.data_type() {
        DataType::Int8 => of::<Int8Type>(array),
        DataType::Int16 => of::<Int16Type>(array),
        DataType::Int32 => of::<Int32Type>(array),
        DataType::Int64 => of::<Int64Type>(array),
        DataType::UInt8 => of::<UInt8Type>(array),
        DataType::UInt16 => of::<UInt16Type>(array),
        DataType::UInt32 => of::<UInt32Type>(array),
        DataType::UInt64 => of::<UInt64Type>(array),
        _ => None,
    }
}

/// The milliseconds of a row.
type Times = Box<dyn Fn(usize) -> Option<i64> + Send>;

fn times(array: &ArrayRef) -> Option<Times> {
    fn of<T: ArrowPrimitiveType<Native = i64>>(
        array: &ArrayRef,
        ms: fn(i64) -> i64,
    ) -> Option<Times> {
        let all = array.as_primitive_opt::<T>()?.clone();
        Some(Box::new(move |row| all.is_valid(row).then(|| ms(all.value(row)))))
    }
    match array.data_type() {
        DataType::Int64 => of::<Int64Type>(array, |ms| ms),
        DataType::Timestamp(TimeUnit::Second, _) => {
            of::<TimestampSecondType>(array, |seconds| seconds.saturating_mul(1000))
        }
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            of::<TimestampMillisecondType>(array, |ms| ms)
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            of::<TimestampMicrosecondType>(array, |us| us.div_euclid(1000))
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            of::<TimestampNanosecondType>(array, |ns| ns.div_euclid(1_000_000))
        }
        _ => None,
    }
}

enum Lists {
    Small(ListArray),
    Large(LargeListArray),
}

/// Lists of names and values.
struct Headers {
    lists: Lists,
    items: StructArray,
    names: Content,
    values: Content,
}

impl Headers {
    fn new(array: &ArrayRef) -> Option<Self> {
        let lists = match array.data_type() {
            DataType::List(_) => Lists::Small(array.as_list_opt()?.clone()),
            DataType::LargeList(_) => Lists::Large(array.as_list_opt()?.clone()),
            _ => return None,
        };
        let items = match &lists {
            Lists::Small(all) => all.values(),
            Lists::Large(all) => all.values(),
        };
        let items = items.as_struct_opt()?.clone();
        let names = items.column_by_name("name").and_then(Content::new)?;
        let values = items.column_by_name("value").and_then(Content::new)?;
        Some(Self { lists, items, names, values })
    }

    fn get<'a>(&'a self, row: usize, list: &mut Vec<Pair<'a>>) -> Result<(), String> {
        let (is_null, from, to) = match &self.lists {
            Lists::Small(all) => {
                let at = all.value_offsets();
                (all.is_null(row), at[row] as usize, at[row + 1] as usize)
            }
            Lists::Large(all) => {
                let at = all.value_offsets();
                (all.is_null(row), at[row] as usize, at[row + 1] as usize)
            }
        };
        if is_null {
            return Ok(());
        }
        for item in from..to {
            let name = self.names.get(item).filter(|_| self.items.is_valid(item));
            let name = name.ok_or("a header has no name")?;
            let name = std::str::from_utf8(name).map_err(|error| error.to_string())?;
            list.push((name, self.values.get(item)));
        }
        Ok(())
    }
}
