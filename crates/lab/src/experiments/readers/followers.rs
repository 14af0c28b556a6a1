//! Another client's consumers, which read a load that Curtail sends.
//!
//! Curtail sends for every client, so that only the consumers differ. The driver reports each record that a consumer has
//! read, and [`Reader`] derives the figures as for Curtail.

use std::time::Duration;

use super::{Expected, Read, Reader};
use crate::{
    cpu::CpuTime,
    experiments::{Turn, load::Load},
    peers::{
        Driver,
        driver::{
            Ready, Sending,
            follow::{Follow, Followed, Wanted},
        },
    },
    perf::Result,
};

/// Consumers that wait for the start of a load.
pub(in crate::experiments) struct Followers {
    ready: Ready,
    consumers: usize,
}

/// Consumers that are reading a load.
pub(in crate::experiments) struct Following {
    sending: Sending,
    consumers: usize,
    expected: Expected,
}

impl Followers {
    /// Starts the consumers, with the properties of the turn's arm, for a load with a finite rate.
    ///
    /// # Errors
    /// A driver that does not become ready.
    pub(in crate::experiments) fn start(
        turn: &Turn<'_>,
        driver: &Driver,
        load: &Load,
        wanted: Wanted,
    ) -> Result<Self> {
        let consumers = wanted.consumers;
        let properties = turn.arm.properties.iter();
        let ready = driver.follow(&Follow {
            bootstrap: turn.testbed.bootstrap().to_owned(),
            topic: load.topic.clone(),
            records: load.records,
            length: Duration::from_secs_f64(load.records as f64 / load.rate),
            wanted,
            properties: properties.map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        })?;
        Ok(Self { ready, consumers })
    }

    /// Lets the consumers read the load whose first record is due at the start that is expected.
    ///
    /// # Errors
    /// A driver that has ended.
    pub(in crate::experiments) fn begin(self, expected: Expected) -> Result<Following> {
        let Self { ready, consumers } = self;
        Ok(Following { sending: ready.go_at(expected.start)?, consumers, expected })
    }
}

impl Following {
    /// Waits until everything has been read or nothing more arrives. Returns what each consumer has read, and the CPU time
    /// of the driver since the start.
    ///
    /// # Errors
    /// A driver that fails.
    pub(in crate::experiments) fn join(self) -> Result<(Vec<Read>, CpuTime)> {
        let Self { sending, consumers, expected } = self;
        let (followed, cpu) = sending.followed(consumers)?;
        Ok((followed.iter().map(|records| read(&expected, records)).collect(), cpu))
    }
}

/// What one consumer has read.
fn read(expected: &Expected, records: &[Followed]) -> Read {
    let mut reader = Reader::new(expected.clone());
    for &Followed { partition, offset, number, at } in records {
        reader.take_read(partition, offset, Some(number), at);
    }
    reader.finish()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::experiments::{Order, Sample, load::EARLIER};

    fn followed(partition: i32, offset: i64, number: u64, at_ms: u64) -> Followed {
        Followed { partition, offset, number, at: at_ms * 1_000_000 }
    }

    #[test]
    fn another_clients_readings_give_the_figures_of_curtails_reader() {
        // One record per millisecond, the first one does not count, and nor does partition 1.
        let start = Instant::now();
        let expected =
            Expected { warmup: 1, apart: Some(1), backlog: 2, ..Expected::new(start, 1000.0, 6) };
        let records = [
            followed(1, 0, EARLIER, 1),
            followed(0, 0, 0, 100),
            followed(1, 1, EARLIER + 1, 7),
            followed(0, 1, 2, 12),
            followed(0, 2, 1, 14),
            followed(0, 2, 1, 14),
            followed(1, 2, 3, 500),
            followed(0, 3, 4, 24),
        ];
        let read = read(&expected, &records);
        assert_eq!(read.caught_up, Some(Duration::from_millis(7)));
        assert_eq!(read.latency.count(), 3);
        assert_eq!(read.latency.max().as_millis(), 20);
        assert_eq!(read.readings[4].map(|reading| reading.caught_up), Some(14_000_000));
        let mut sample = Sample::default();
        read.add_to(Order::Sent, &mut sample);
        assert_eq!((sample.lost, sample.duplicated, sample.reordered), (1, 1, 1));
    }
}
