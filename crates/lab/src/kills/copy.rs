//! An exactly-once copy by processes that are killed, while brokers are killed as well.

mod worker;

use std::{
    collections::BTreeMap,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use curtail::{Consumer, TopicPartition};

pub use self::worker::{Worker, work};
use super::{
    Event, PARTITIONS, Reading, Soak, TopicReport, count, create_topic,
    faults::Killer,
    produce::{Feed, Keys},
    readback, readings,
};
use crate::{
    experiments::{Found, Testbed},
    perf::{Error, Result, application_runtime, client_runtime},
};

const INPUT: &str = "kills-input";
const OUTPUT: &str = "kills-output";
const GROUP: &str = "kills-copy";
/// Members of the group, each a process.
const WORKERS: u32 = 2;
/// How long the copy may take to catch up once nothing is killed any longer.
const CATCH_UP: Duration = Duration::from_secs(180);

/// Kills during the copy.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Kills {
    pub(super) brokers: u32,
    pub(super) workers: u32,
    pub(super) failures: u32,
}

pub(super) fn run(
    soak: &Soak,
    killer: &mut Killer<'_>,
    told: &mut dyn FnMut(Event<'_>),
) -> Result<(TopicReport, Kills)> {
    let testbed = killer.testbed;
    for topic in [INPUT, OUTPUT] {
        create_topic(testbed, topic)?;
    }
    let runtime = application_runtime()?;
    let feed = Feed::start(&runtime, testbed, INPUT, Keys::Some, soak.rate)?;
    let mut workers = Workers::start(soak, testbed)?;
    let mut kills = Kills::default();
    for done in 1..=soak.copy_kills {
        killer.pass_time();
        let number = workers.kill_one(killer)?;
        kills.workers += 1;
        told(Event::Worker { number, done, of: soak.copy_kills });
        killer.pass_time();
        let id = killer.kill_broker(&[INPUT, OUTPUT], |_| workers.revive())?;
        kills.brokers += 1;
        told(Event::Broker { id, done, of: soak.copy_kills });
    }
    let ledger = feed.stop(&runtime)?;
    workers.await_copied(testbed)?;
    kills.failures = workers.failures;
    drop(workers);
    told(Event::Reading { topic: OUTPUT });
    let input = readback::read(testbed, INPUT, ledger.acknowledged())?;
    let check = |by, output: &Found| compare(by, &input, output);
    let wanted = usize::try_from(count(&input)).unwrap_or(usize::MAX);
    let readings = readings(testbed, OUTPUT, check, wanted)?;
    let topic = TopicReport {
        topic: OUTPUT.into(),
        sent: count(&input),
        acknowledged: readings.first().map_or(0, |reading| reading.records),
        failed: ledger.failed(),
        first_error: None,
        slowest_ms: None,
        readings,
    };
    Ok((topic, kills))
}

/// Compares the output with the input, partition by partition: the same records, once, in the same order.
fn compare(by: &'static str, input: &Found, output: &Found) -> Reading {
    let mut reading = Reading { by, records: count(output), lost: 0, duplicated: 0, reordered: 0 };
    for partition in 0..PARTITIONS {
        let numbers = |found: &Found| -> Vec<u64> {
            let records = found.get(&partition).map(Vec::as_slice).unwrap_or_default();
            records.iter().map(|&(_, number)| number).collect()
        };
        let mut times: BTreeMap<u64, u64> = BTreeMap::new();
        let mut first_copies = Vec::new();
        for number in numbers(output) {
            let seen = times.entry(number).or_default();
            *seen += 1;
            if *seen == 1 {
                first_copies.push(number);
            } else {
                reading.duplicated += 1;
            }
        }
        let input = numbers(input);
        reading.lost += input.iter().filter(|number| !times.contains_key(number)).count() as u64;
        let expected: Vec<u64> = input.into_iter().filter(|n| times.contains_key(n)).collect();
        let out_of_place = expected.iter().zip(&first_copies).filter(|(a, b)| a != b).count();
        // A copied record that is not in the input counts as well.
        let foreign = first_copies.len().abs_diff(expected.len());
        reading.reordered += (out_of_place + foreign) as u64;
    }
    reading
}

/// The copying processes. Dropping kills them.
struct Workers<'s> {
    command: &'s [String],
    bootstrap: String,
    running: Vec<Option<Child>>,
    failures: u32,
}

impl<'s> Workers<'s> {
    fn start(soak: &'s Soak, testbed: &Testbed) -> Result<Self> {
        let running = (0..WORKERS).map(|_| None).collect();
        let bootstrap = testbed.bootstrap();
        let mut workers = Self { command: &soak.worker, bootstrap, running, failures: 0 };
        workers.revive()?;
        Ok(workers)
    }

    /// Starts whatever does not run. A process that ended without being killed counts as a failure.
    fn revive(&mut self) -> Result<()> {
        for number in 0..self.running.len() {
            if let Some(child) = &mut self.running[number] {
                let ended = child.try_wait().map_err(Error::Threads)?;
                if ended.is_none() {
                    continue;
                }
                self.failures += 1;
            }
            self.running[number] = Some(self.spawn(number)?);
        }
        Ok(())
    }

    fn spawn(&self, number: usize) -> Result<Child> {
        let Some((program, arguments)) = self.command.split_first() else {
            return Err(Error::Options("the command of a copying process is empty".into()));
        };
        let mut command = Command::new(program);
        command.args(arguments).args([&self.bootstrap, &number.to_string()]);
        // A worker ends when its standard input does: none outlives this process.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::inherit());
        command.spawn().map_err(Error::Threads)
    }

    /// Kills one copying process with kill -9. It stays dead until [`Workers::revive`].
    fn kill_one(&mut self, killer: &mut Killer<'_>) -> Result<u32> {
        self.revive()?;
        let number = killer.choose(self.running.len());
        if let Some(mut child) = self.running[number].take() {
            child.kill().map_err(Error::Threads)?;
            child.wait().map_err(Error::Threads)?;
        }
        Ok(u32::try_from(number).unwrap_or_default())
    }

    /// Waits until the group has committed the whole input.
    fn await_copied(&mut self, testbed: &Testbed) -> Result<()> {
        let runtime = client_runtime()?;
        let _context = runtime.enter();
        let consumer = Consumer::new(testbed.consumer().group_id(GROUP))?;
        let partitions: Vec<TopicPartition> =
            (0..PARTITIONS).map(|partition| TopicPartition::new(INPUT, partition)).collect();
        let ends = runtime.block_on(consumer.end_offsets(&partitions))?;
        let started = Instant::now();
        loop {
            self.revive()?;
            let committed = runtime.block_on(consumer.committed(&partitions))?;
            let is_done = |(partition, end): (&TopicPartition, &i64)| {
                *end == 0
                    || committed
                        .get(partition)
                        .and_then(Option::as_ref)
                        .is_some_and(|committed| committed.offset >= *end)
            };
            if ends.iter().all(is_done) {
                break;
            }
            if started.elapsed() > CATCH_UP {
                let text = format!("the copy did not catch up within {} s", CATCH_UP.as_secs());
                return Err(Error::Unexpected(text));
            }
            thread::sleep(Duration::from_millis(200));
        }
        runtime.block_on(consumer.close());
        Ok(())
    }
}

impl Drop for Workers<'_> {
    fn drop(&mut self) {
        for child in self.running.iter_mut().flatten() {
            // Killing a process that has already ended fails, which is fine here.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(numbers: &[u64]) -> Found {
        let records = numbers.iter().zip(0..).map(|(&number, offset)| (offset, number)).collect();
        Found::from([(0, records)])
    }

    fn compared(input: &[u64], output: &[u64]) -> (u64, u64, u64) {
        let reading = compare("consumer", &found(input), &found(output));
        (reading.lost, reading.duplicated, reading.reordered)
    }

    #[test]
    fn an_exact_copy_has_no_findings() {
        assert_eq!(compared(&[3, 1, 2], &[3, 1, 2]), (0, 0, 0));
    }

    #[test]
    fn missing_repeated_swapped_and_foreign_records_are_found() {
        assert_eq!(compared(&[1, 2, 3], &[1, 3]), (1, 0, 0));
        assert_eq!(compared(&[1, 2], &[1, 2, 1]), (0, 1, 0));
        assert_eq!(compared(&[1, 2], &[2, 1]), (0, 0, 2));
        assert_eq!(compared(&[1], &[1, 9]), (0, 0, 1));
    }
}
