//! `curtail produce`: sends parts of standard input, or of a file, as records.

mod stall;
#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, BufRead, BufReader, IsTerminal as _},
    path::PathBuf,
};

use clap::{Args, builder::NonEmptyStringValueParser};
use curtail::{Delivery, Error, Header, Producer, ProducerConfig, Record};
use tokio::runtime::{Builder, Runtime};

use self::stall::{Watch, Watched};
use super::{note, unescape};
use crate::{
    failure::Failure,
    names::{self, Missing},
    settings::{ClientArguments, Property, property},
};

/// Arguments of `curtail produce`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    client: ClientArguments,
    /// Topic to write to.
    #[arg(value_name = "TOPIC", conflicts_with = "flagged", required_unless_present = "flagged")]
    bare: Option<String>,
    /// Topic to write to.
    #[arg(short = 't', long = "topic", value_name = "TOPIC")]
    flagged: Option<String>,
    /// Partition to write to [default: by key; keyless records are spread evenly].
    #[arg(short, long)]
    partition: Option<i32>,
    /// The key of every record.
    #[arg(short, long, conflicts_with = "key_delimiter")]
    key: Option<String>,
    /// Separator of key and value (an equals sign as -K '='). A line without it is an error.
    #[arg(short = 'K', long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    key_delimiter: Option<String>,
    /// Send a line without the separator of --key-delimiter as a value without a key.
    #[arg(long, requires = "key_delimiter")]
    optional_key: bool,
    /// Separator of records.
    #[arg(short = 'D', long, value_name = "TEXT", default_value = "\\n")]
    delimiter: String,
    /// A header of every record. May be given several times.
    #[arg(short = 'H', long = "header", value_name = "NAME=VALUE", value_parser = property)]
    headers: Vec<Property>,
    /// Compression: none, gzip, snappy, lz4 or zstd.
    #[arg(short = 'z', long, value_name = "CODEC")]
    compression: Option<String>,
    /// End after this number of records.
    #[arg(short, long, value_name = "N")]
    count: Option<u64>,
    /// Send an empty value (or key) as null.
    #[arg(short = 'Z', long)]
    null: bool,
    /// Read this file instead of standard input.
    #[arg(short = 'l', long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Print errors only.
    #[arg(short, long)]
    quiet: bool,
}

impl Arguments {
    fn topic(&self) -> &str {
        // clap requires one of them.
        self.bare.as_deref().or(self.flagged.as_deref()).unwrap_or_default()
    }

    /// Opens the input.
    fn input(&self) -> Result<Box<dyn BufRead>, Failure> {
        if let Some(path) = &self.file {
            let file = File::open(path).map_err(|error| self.unreadable(&error))?;
            return Ok(Box::new(BufReader::new(file)));
        }
        if io::stdin().is_terminal() {
            note(self.quiet, "each line becomes a record; Ctrl-D ends");
        }
        Ok(Box::new(io::stdin().lock()))
    }

    fn unreadable(&self, error: &io::Error) -> Failure {
        match &self.file {
            Some(path) => Failure::new(format!("cannot read {}: {error}", path.display())),
            None => Failure::new(format!("cannot read standard input: {error}")),
        }
    }
}

/// Unacknowledged records before the oldest one is awaited.
const OUTSTANDING: usize = 100_000;

/// Sends until the input ends.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let input = arguments.input()?;
    let mut config: ProducerConfig = arguments.client.config(&[], &[])?;
    if let Some(codec) = &arguments.compression {
        config.set("compression.type", codec)?;
    }
    let runtime =
        Builder::new_multi_thread().worker_threads(1).enable_all().build().map_err(Failure::new)?;
    let _inside = runtime.enter();
    let producer = Producer::new(config.clone())?;
    runtime.block_on(producer.connect())?;
    let admin = names::admin(&arguments.client.all()?)?;
    // If it cannot be looked up, the producer reports the reason.
    let missing = runtime.block_on(names::missing_topic(&admin, arguments.topic())).ok().flatten();
    let watched = Watched::new(admin, arguments.topic(), &config);
    let watch = Watch::start(&runtime, &producer, watched);
    let sent = send_all(arguments, input, &runtime, &producer, &watch, missing);
    let closed = runtime.block_on(producer.close());
    sent?;
    Ok(closed?)
}

/// Sends a record. The first one to a topic that was `missing` creates it if the brokers allow that, as with Kafka's tools.
fn send(
    arguments: &Arguments,
    runtime: &Runtime,
    producer: &Producer,
    record: Record<'_>,
    missing: &mut Option<Missing>,
) -> Result<Delivery, Failure> {
    let sent = runtime.block_on(producer.send(record));
    match (sent, missing.take()) {
        (Ok(delivery), Some(missing)) => {
            note(arguments.quiet, missing.created());
            Ok(delivery)
        }
        (Err(Error::UnknownTopic(_)), Some(missing)) => Err(missing.not_created()),
        (sent, _) => Ok(sent?),
    }
}

fn send_all(
    arguments: &Arguments,
    mut input: impl BufRead,
    runtime: &Runtime,
    producer: &Producer,
    watch: &Watch,
    mut missing: Option<Missing>,
) -> Result<(), Failure> {
    let splitter = Splitter::new(arguments);
    let headers: Vec<_> = arguments
        .headers
        .iter()
        .map(|p| Header { key: &p.name, value: Some(p.value.as_bytes()) })
        .collect();
    let mut outstanding = VecDeque::new();
    let mut piece = Vec::new();
    let mut count = 0;
    while arguments.count.is_none_or(|limit| count < limit)
        && splitter.next(&mut input, &mut piece).map_err(|error| arguments.unreadable(&error))?
    {
        let (key, value) = match splitter.key_and_value(&piece) {
            Some(pair) => pair,
            None => return Err(no_key(arguments, count + 1)),
        };
        let mut record = Record::to(arguments.topic()).headers(&headers);
        if let Some(partition) = arguments.partition {
            record = record.partition(partition);
        }
        if let Some(key) = key.or(arguments.key.as_deref().map(str::as_bytes)) {
            record = record.key(key);
        }
        if let Some(value) = value {
            record = record.value(value);
        }
        outstanding.push_back(send(arguments, runtime, producer, record, &mut missing)?);
        watch.sent();
        count += 1;
        settle(&mut outstanding)?;
        if outstanding.len() > OUTSTANDING
            && let Some(oldest) = outstanding.pop_front()
        {
            runtime.block_on(oldest)?;
        }
    }
    runtime.block_on(producer.flush())?;
    for delivery in outstanding {
        runtime.block_on(delivery)?;
    }
    Ok(())
}

/// The failure for a record without the separator of its key. The record may be a secret and is not shown.
fn no_key(arguments: &Arguments, number: u64) -> Failure {
    let thing = if arguments.delimiter == "\\n" { "line" } else { "record" };
    let separator = arguments.key_delimiter.as_deref().unwrap_or_default();
    Failure::new(format!(
        "{thing} {number} has no key separator '{separator}', and was not sent; --optional-key sends such records \
         without a key"
    ))
}

/// Removes acknowledged records from the front; the first failure ends the command.
fn settle(outstanding: &mut VecDeque<Delivery>) -> Result<(), Failure> {
    while let Some(outcome) = outstanding.front().and_then(Delivery::outcome) {
        outstanding.pop_front();
        outcome?;
    }
    Ok(())
}

type KeyAndValue<'p> = (Option<&'p [u8]>, Option<&'p [u8]>);

/// Splits the input into records, and each record into key and value.
struct Splitter {
    delimiter: Vec<u8>,
    key_delimiter: Option<Vec<u8>>,
    optional_key: bool,
    null: bool,
}

impl Splitter {
    fn new(arguments: &Arguments) -> Self {
        let bytes = |text: &str| unescape(text).into_bytes();
        Self {
            delimiter: bytes(&arguments.delimiter),
            key_delimiter: arguments.key_delimiter.as_deref().map(bytes),
            optional_key: arguments.optional_key,
            null: arguments.null,
        }
    }

    /// The next piece of the input; false at its end. A last piece without a delimiter counts if it is not empty.
    fn next(&self, input: &mut impl io::BufRead, piece: &mut Vec<u8>) -> io::Result<bool> {
        piece.clear();
        let Some(last) = self.delimiter.last() else {
            return Ok(input.read_to_end(piece)? > 0);
        };
        while input.read_until(*last, piece)? > 0 {
            if piece.ends_with(&self.delimiter) {
                piece.truncate(piece.len() - self.delimiter.len());
                return Ok(true);
            }
        }
        Ok(!piece.is_empty())
    }

    /// Key and value; `None` without the delimiter of a key that is not optional.
    fn key_and_value<'p>(&self, piece: &'p [u8]) -> Option<KeyAndValue<'p>> {
        let present = |bytes: &'p [u8]| Some(bytes).filter(|b| !(self.null && b.is_empty()));
        let Some(delimiter) = self.key_delimiter.as_deref().filter(|d| !d.is_empty()) else {
            return Some((None, present(piece)));
        };
        match piece.windows(delimiter.len()).position(|window| window == delimiter) {
            Some(at) => Some((present(&piece[..at]), present(&piece[at + delimiter.len()..]))),
            None => self.optional_key.then(|| (None, present(piece))),
        }
    }
}
