//! Partitions by topic or by subtopology, with and without epochs, in the layout that records of both kinds of groups
//! have.

use std::collections::{BTreeMap, BTreeSet};

use curtail_wire::{DecodeError, Reader, Uuid, Writer};

/// Tag of the epochs (KIP-1251).
const EPOCHS: u32 = 0;

/// What partitions belong to.
pub(super) trait Owner: Ord + Sized {
    /// Fewest bytes of an owner with its partitions.
    const LEAST: usize;

    fn write(&self, w: &mut Writer);
    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError>;
}

/// The id of a topic.
impl Owner for Uuid {
    const LEAST: usize = 18;

    fn write(&self, w: &mut Writer) {
        w.uuid(*self);
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.uuid("topic id")
    }
}

/// The id of a subtopology.
impl Owner for String {
    const LEAST: usize = 3;

    fn write(&self, w: &mut Writer) {
        w.string(self);
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.string("subtopology").map(str::to_owned)
    }
}

pub(super) fn write_partitions<O: Owner>(all: &BTreeMap<O, BTreeSet<i32>>, w: &mut Writer) {
    w.array(all.len());
    for (owner, partitions) in all {
        owner.write(w);
        w.array(partitions.len());
        partitions.iter().for_each(|partition| w.i32(*partition));
        w.no_tags();
    }
}

pub(super) fn read_partitions<O: Owner>(
    r: &mut Reader<'_>,
) -> Result<BTreeMap<O, BTreeSet<i32>>, DecodeError> {
    let all = r.array_of(O::LEAST, "owners of partitions", |r| {
        let owner = O::read(r)?;
        let partitions = r.array_of(4, "partitions", |r| r.i32("partition"))?;
        r.skip_tagged("partitions")?;
        Ok((owner, partitions.into_iter().collect()))
    })?;
    Ok(all.into_iter().collect())
}

pub(super) fn write_epochs<O: Owner>(all: &BTreeMap<O, BTreeMap<i32, i32>>, w: &mut Writer) {
    w.array(all.len());
    for (owner, partitions) in all {
        owner.write(w);
        w.array(partitions.len());
        partitions.keys().for_each(|partition| w.i32(*partition));
        w.tag_count(1);
        w.tag(EPOCHS, |w| {
            w.array(partitions.len());
            partitions.values().for_each(|epoch| w.i32(*epoch));
        });
    }
}

/// Reads partitions with their epochs. Kafka before 4.3 writes none: then all have this one.
pub(super) fn read_epochs<O: Owner>(
    otherwise: i32,
    r: &mut Reader<'_>,
) -> Result<BTreeMap<O, BTreeMap<i32, i32>>, DecodeError> {
    let all = r.array_of(O::LEAST, "owners of partitions", |r| {
        let owner = O::read(r)?;
        let partitions = r.array_of(4, "partitions", |r| r.i32("partition"))?;
        let mut epochs = None;
        r.tagged("partitions", |tag, r| {
            if tag == EPOCHS {
                epochs = r.nullable_array_of(4, "epochs", |r| r.i32("epoch"))?;
            }
            Ok(())
        })?;
        let epochs = epochs.filter(|epochs| epochs.len() == partitions.len());
        let epochs = epochs.unwrap_or_else(|| vec![otherwise; partitions.len()]);
        Ok((owner, partitions.into_iter().zip(epochs).collect()))
    })?;
    Ok(all.into_iter().collect())
}
