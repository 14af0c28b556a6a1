//! Builds the columns, on the runtime's threads.

use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BinaryArray, BinaryViewArray, DictionaryArray, Int32Array, Int64Array,
    LargeBinaryArray, ListArray, StringArray, StructArray, TimestampMillisecondArray,
    builder::{BinaryBuilder, BinaryViewBuilder, LargeBinaryBuilder, StringBuilder},
};
use arrow_buffer::{Buffer, OffsetBuffer};
use arrow_schema::{ArrowError, DataType, Field, Fields};
use bytes::Bytes;
use curtail::ConsumerRecord;

/// Largest value that a view contains.
const INLINE: usize = 12;
/// A batch is copied if it has more bytes than this times those of its views.
const RETAINED: usize = 4;

/// How keys and values are laid out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    View,
    Binary,
    LargeBinary,
}

/// Names of the columns, in their order in a record.
const NAMES: [&str; 7] = ["topic", "partition", "offset", "timestamp", "key", "value", "headers"];

/// The columns to build.
#[derive(Clone)]
pub(crate) struct Wanted {
    /// Of [`NAMES`].
    pub(crate) names: Vec<&'static str>,
    pub(crate) layout: Layout,
}

impl Wanted {
    /// All columns without names. Fails with a text for the program.
    pub(crate) fn new(names: Option<Vec<String>>, layout: &str) -> Result<Self, String> {
        let known = |name: String| {
            let found = NAMES.into_iter().find(|known| *known == name);
            found.ok_or_else(|| format!("no column '{name}': must be one of {}", NAMES.join(", ")))
        };
        let names = match names {
            Some(names) => names.into_iter().map(known).collect::<Result<Vec<_>, _>>()?,
            None => NAMES.to_vec(),
        };
        let layout = match layout {
            "view" => Layout::View,
            "binary" => Layout::Binary,
            _ => return Err(format!("layout '{layout}': must be one of view, binary")),
        };
        Ok(Self { names, layout })
    }
}

/// Columns of the same length.
#[derive(Clone)]
pub(crate) struct Columns(pub(super) StructArray);

impl Columns {
    pub(crate) fn fields(&self) -> &Fields {
        self.0.fields()
    }

    pub(crate) fn into_batch(self) -> arrow_array::RecordBatch {
        self.0.into()
    }

    pub(crate) fn build(
        records: &[ConsumerRecord],
        batches: &[Bytes],
        wanted: &Wanted,
    ) -> Result<Self, ArrowError> {
        if wanted.names.is_empty() {
            return Ok(Self(StructArray::new_empty_fields(records.len(), None)));
        }
        let mut fields = Vec::with_capacity(wanted.names.len());
        let mut arrays = Vec::with_capacity(wanted.names.len());
        for &name in &wanted.names {
            let array = column(name, records, batches, wanted.layout)?;
            fields.push(field(name, &array));
            arrays.push(array);
        }
        StructArray::try_new(Fields::from(fields), arrays, None).map(Self)
    }

    /// Returns the columns with keys and values in another layout.
    pub(super) fn with_layout(
        &self,
        records: &[ConsumerRecord],
        batches: &[Bytes],
        layout: Layout,
    ) -> Result<Self, ArrowError> {
        let mut fields: Vec<_> = self.0.fields().iter().cloned().collect();
        let mut arrays = self.0.columns().to_vec();
        for (at, array) in fields.iter_mut().zip(&mut arrays) {
            if let "key" | "value" = at.name().as_str() {
                let name = at.name().clone();
                *array = column(&name, records, batches, layout)?;
                *at = Arc::new(field(&name, array));
            }
        }
        if arrays.is_empty() {
            return Ok(self.clone());
        }
        StructArray::try_new(Fields::from(fields), arrays, None).map(Self)
    }
}

fn field(name: &str, array: &ArrayRef) -> Field {
    Field::new(name, array.data_type().clone(), matches!(name, "key" | "value"))
}

fn column(
    name: &str,
    records: &[ConsumerRecord],
    batches: &[Bytes],
    layout: Layout,
) -> Result<ArrayRef, ArrowError> {
    Ok(match name {
        "topic" => Arc::new(topics(records)?),
        "partition" => {
            Arc::new(records.iter().map(ConsumerRecord::partition).collect::<Int32Array>())
        }
        "offset" => Arc::new(records.iter().map(ConsumerRecord::offset).collect::<Int64Array>()),
        "timestamp" => {
            let all = TimestampMillisecondArray::from_iter_values(
                records.iter().map(ConsumerRecord::timestamp),
            );
            Arc::new(all.with_timezone("UTC"))
        }
        "key" => contents(records, ConsumerRecord::key_bytes, batches, layout)?,
        "value" => contents(records, ConsumerRecord::value_bytes, batches, layout)?,
        "headers" => Arc::new(headers(records)?),
        _ => return Err(ArrowError::SchemaError(format!("no column '{name}'"))),
    })
}

/// Topics repeat, so each is stored once.
fn topics(
    records: &[ConsumerRecord],
) -> Result<DictionaryArray<arrow_array::types::Int32Type>, ArrowError> {
    let mut names: Vec<&str> = Vec::new();
    let mut keys = Vec::with_capacity(records.len());
    let mut last = 0;
    for record in records {
        let topic = record.topic();
        if names.get(last).is_none_or(|name| *name != topic) {
            last = names.iter().position(|name| *name == topic).unwrap_or_else(|| {
                names.push(topic);
                names.len() - 1
            });
        }
        keys.push(last as i32);
    }
    DictionaryArray::try_new(Int32Array::from(keys), Arc::new(StringArray::from(names)))
}

fn contents(
    records: &[ConsumerRecord],
    content: fn(&ConsumerRecord) -> Option<&Bytes>,
    batches: &[Bytes],
    layout: Layout,
) -> Result<ArrayRef, ArrowError> {
    let all = records.iter().map(content);
    Ok(match layout {
        Layout::View => Arc::new(views(all, batches)?),
        Layout::Binary => Arc::new(binary(all)?),
        Layout::LargeBinary => Arc::new(large_binary(all)),
    })
}

fn binary<'a>(
    all: impl Iterator<Item = Option<&'a Bytes>> + Clone,
) -> Result<BinaryArray, ArrowError> {
    let total: usize = all.clone().flatten().map(Bytes::len).sum();
    if i32::try_from(total).is_err() {
        return Err(ArrowError::OffsetOverflowError(total));
    }
    let mut builder = BinaryBuilder::with_capacity(all.clone().count(), total);
    all.for_each(|bytes| builder.append_option(bytes));
    Ok(builder.finish())
}

fn large_binary<'a>(all: impl Iterator<Item = Option<&'a Bytes>> + Clone) -> LargeBinaryArray {
    let total: usize = all.clone().flatten().map(Bytes::len).sum();
    let mut builder = LargeBinaryBuilder::with_capacity(all.clone().count(), total);
    all.for_each(|bytes| builder.append_option(bytes));
    builder.finish()
}

/// The batches that contain values, by address.
struct Sources<'a> {
    all: Vec<Source<'a>>,
    /// The one of the last value.
    last: usize,
}

struct Source<'a> {
    bytes: &'a Bytes,
    /// Bytes of its values that are larger than a view.
    viewed: usize,
    block: Option<u32>,
}

impl<'a> Sources<'a> {
    fn new(batches: &'a [Bytes]) -> Self {
        let source = |bytes| Source { bytes, viewed: 0, block: None };
        let mut all: Vec<_> = batches.iter().map(source).collect();
        all.sort_by_key(|source| source.bytes.as_ptr() as usize);
        Self { all, last: 0 }
    }

    /// The batch that the value is a slice of, and the value's place in it.
    fn find(&mut self, value: &Bytes) -> Option<(&mut Source<'a>, usize)> {
        let at = value.as_ptr() as usize;
        let place = |source: &Source<'_>| {
            let place = at.checked_sub(source.bytes.as_ptr() as usize)?;
            (place + value.len() <= source.bytes.len()).then_some(place)
        };
        if self.all.get(self.last).and_then(place).is_none() {
            let after = self.all.partition_point(|source| source.bytes.as_ptr() as usize <= at);
            self.last = after.checked_sub(1)?;
        }
        let source = self.all.get_mut(self.last)?;
        let place = place(source)?;
        Some((source, place))
    }
}

fn views<'a>(
    all: impl Iterator<Item = Option<&'a Bytes>> + Clone,
    batches: &[Bytes],
) -> Result<BinaryViewArray, ArrowError> {
    let mut sources = Sources::new(batches);
    let large = |bytes: &&Bytes| bytes.len() > INLINE;
    for value in all.clone().flatten().filter(large) {
        if let Some((source, _)) = sources.find(value) {
            source.viewed += value.len();
        }
    }
    let mut builder = BinaryViewBuilder::with_capacity(all.clone().count());
    for source in &mut sources.all {
        let size = source.bytes.len();
        if source.viewed > 0 && size <= source.viewed * RETAINED && size < u32::MAX as usize {
            source.block = Some(builder.append_block(Buffer::from(source.bytes.clone())));
        }
    }
    for value in all {
        let Some(value) = value else {
            builder.append_null();
            continue;
        };
        let found = if large(&value) { sources.find(value) } else { None };
        match found {
            // Both are smaller than the block, and so than 4 GiB.
            Some((Source { block: Some(block), .. }, place)) => {
                builder.try_append_view(*block, place as u32, value.len() as u32)?;
            }
            _ => builder.try_append_value(value)?,
        }
    }
    Ok(builder.finish())
}

fn headers(records: &[ConsumerRecord]) -> Result<ListArray, ArrowError> {
    let (mut names, mut values) = (StringBuilder::new(), BinaryBuilder::new());
    let (mut lengths, mut bytes) = (Vec::with_capacity(records.len()), 0);
    for record in records {
        let mut length = 0;
        for (name, value) in record.headers() {
            bytes += name.len() + value.map_or(0, <[u8]>::len);
            if i32::try_from(bytes).is_err() {
                return Err(ArrowError::OffsetOverflowError(bytes));
            }
            names.append_value(name);
            values.append_option(value);
            length += 1;
        }
        lengths.push(length);
    }
    let fields = Fields::from(vec![
        Field::new("name", DataType::Utf8, false),
        Field::new("value", DataType::Binary, true),
    ]);
    let all: Vec<ArrayRef> = vec![Arc::new(names.finish()), Arc::new(values.finish())];
    let all = StructArray::try_new(fields, all, None)?;
    let item = Arc::new(Field::new("item", all.data_type().clone(), false));
    ListArray::try_new(item, OffsetBuffer::from_lengths(lengths), Arc::new(all), None)
}
