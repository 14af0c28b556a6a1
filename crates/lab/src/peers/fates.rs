//! Format of a driver's fates: [`SIZE`] bytes per record, in the order of the records' numbers,
//! little-endian.
//!
//! | bytes | content |
//! |---|---|
//! | 8 | send time, in nanoseconds since the start |
//! | 8 | acknowledgement time, likewise; -1 if not acknowledged |
//! | 4 | partition |
//! | 8 | offset; -1 if unknown |

use crate::perf::{Error, Result};

/// Bytes of one record.
pub(crate) const SIZE: usize = 28;

/// Outcome of one record. Times are nanoseconds since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) sent: u64,
    pub(crate) acknowledged: Option<Place>,
}

/// Where and when a record was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) at: u64,
    pub(crate) partition: i32,
    pub(crate) offset: Option<i64>,
}

/// Reads the fates of this number of records.
///
/// # Errors
/// Malformed fates: a wrong length, an acknowledgement before the send, a partition below 0.
pub(crate) fn read(bytes: &[u8], records: u64) -> Result<Vec<Told>> {
    let (chunks, rest) = bytes.as_chunks::<SIZE>();
    if !rest.is_empty() || chunks.len() as u64 != records {
        let text = format!("{} bytes of fates for {records} records of {SIZE} bytes", bytes.len());
        return Err(Error::Unexpected(text));
    }
    let read = chunks.iter().enumerate().map(|(number, chunk)| {
        told(chunk)
            .ok_or_else(|| Error::Unexpected(format!("record {number} has a malformed fate")))
    });
    read.collect()
}

fn told(bytes: &[u8; SIZE]) -> Option<Told> {
    let (sent, rest) = bytes.split_first_chunk()?;
    let (acknowledged, rest) = rest.split_first_chunk()?;
    let (partition, rest) = rest.split_first_chunk()?;
    let sent = u64::try_from(i64::from_le_bytes(*sent)).ok()?;
    let acknowledged = match i64::from_le_bytes(*acknowledged) {
        -1 => None,
        at => {
            let at = u64::try_from(at).ok().filter(|at| *at >= sent)?;
            let partition = i32::from_le_bytes(*partition);
            let offset = i64::from_le_bytes(*rest.first_chunk()?);
            if partition < 0 {
                return None;
            }
            Some(Place { at, partition, offset: Some(offset).filter(|offset| *offset >= 0) })
        }
    };
    Some(Told { sent, acknowledged })
}
