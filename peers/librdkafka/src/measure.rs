//! Clock, CPU time, histogram and report.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;

use crate::Failure;

/// Records in 128 steps to the power of two: values are kept to within 0.8 %.
const STEP_BITS: u32 = 7;
const STEPS: u64 = 1 << STEP_BITS;

/// A histogram of nanoseconds.
#[derive(Debug, Clone)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    sum: u64,
    max: u64,
}

impl Histogram {
    pub fn new() -> Self {
        let size = (64 - STEP_BITS as usize + 1) * STEPS as usize;
        Self { counts: vec![0; size], count: 0, sum: 0, max: 0 }
    }

    pub fn record(&mut self, nanos: u64) {
        self.counts[slot(nanos)] += 1;
        self.count += 1;
        self.sum += nanos;
        self.max = self.max.max(nanos);
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The largest value of the slot in which this share of the values is reached, in nanoseconds.
    pub fn percentile(&self, share: f64) -> u64 {
        let rank = ((self.count as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        for (slot, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return largest_in(slot).min(self.max);
            }
        }
        self.max
    }

    /// The object `{"avg":..,"p50":..,...}` in microseconds, or `null` without values.
    fn json(&self) -> String {
        if self.is_empty() {
            return "null".to_owned();
        }
        let micros = |nanos: u64| nanos as f64 / 1000.0;
        format!(
            "{{\"avg\":{:.3},\"p50\":{:.3},\"p95\":{:.3},\"p99\":{:.3},\"p999\":{:.3},\"max\":{:.3}}}",
            self.sum as f64 / self.count as f64 / 1000.0,
            micros(self.percentile(0.50)),
            micros(self.percentile(0.95)),
            micros(self.percentile(0.99)),
            micros(self.percentile(0.999)),
            micros(self.max),
        )
    }
}

fn slot(value: u64) -> usize {
    if value < 2 * STEPS {
        return value as usize;
    }
    let shift = 63 - value.leading_zeros() - STEP_BITS;
    (u64::from(shift) * STEPS + (value >> shift)) as usize
}

fn largest_in(slot: usize) -> u64 {
    let slot = slot as u64;
    if slot < 2 * STEPS {
        return slot;
    }
    let shift = slot / STEPS - 1;
    let base = slot - shift * STEPS;
    (base << shift) + ((1 << shift) - 1)
}

/// User and system time of this process.
#[derive(Debug, Clone, Copy)]
pub struct Cpu {
    user_us: i64,
    system_us: i64,
}

impl Cpu {
    pub fn now() -> Result<Self, Failure> {
        let usage = getrusage(UsageWho::RUSAGE_SELF)?;
        Ok(Self {
            user_us: usage.user_time().num_microseconds(),
            system_us: usage.system_time().num_microseconds(),
        })
    }
}

/// Sleeps until `nanos` after `origin`; returns at once if that has passed.
pub fn sleep_until(origin: Instant, nanos: u64) {
    let target = Duration::from_nanos(nanos);
    loop {
        let now = origin.elapsed();
        if now >= target {
            return;
        }
        std::thread::sleep(target - now);
    }
}

/// `count` payloads of `size` random bytes.
pub fn payloads(count: usize, size: usize) -> Vec<Vec<u8>> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        // splitmix64
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) as u8
    };
    (0..count).map(|_| (0..size).map(|_| next()).collect()).collect()
}

/// The measured part of a run.
#[derive(Debug)]
pub struct Report {
    pub client: &'static str,
    pub version: String,
    pub tool: &'static str,
    pub records: u64,
    pub errors: u64,
    pub record_size: f64,
    pub bytes: u64,
    pub elapsed: Duration,
    pub cpu: (Cpu, Cpu),
    pub latency: Histogram,
    pub send_latency: Histogram,
}

impl Report {
    fn seconds(&self) -> f64 {
        self.elapsed.as_secs_f64()
    }

    fn rate(&self) -> f64 {
        self.records as f64 / self.seconds()
    }

    fn megabytes_a_second(&self) -> f64 {
        self.bytes as f64 / 1024.0 / 1024.0 / self.seconds()
    }

    fn cpu_us(&self) -> (i64, i64) {
        let (start, end) = self.cpu;
        (end.user_us - start.user_us, end.system_us - start.system_us)
    }

    fn cpu_per_record(&self) -> f64 {
        let (user, system) = self.cpu_us();
        (user + system) as f64 / self.records.max(1) as f64
    }

    /// Prints the summary and writes the JSON if requested.
    pub fn publish(&self, json: Option<&str>) -> Result<(), Failure> {
        println!("{}", self.summary());
        if let Some(path) = json {
            std::fs::write(path, self.json() + "\n").map_err(|e| format!("write {path}: {e}"))?;
        }
        Ok(())
    }

    fn json(&self) -> String {
        let (user, system) = self.cpu_us();
        let mut text = String::new();
        let _ = write!(
            text,
            "{{\"tool\":\"{}\",\"client\":\"{}\",\"version\":\"{}\",\"records\":{},\
             \"errors\":{},\"record_size\":{},\"seconds\":{:.6},\"throughput_rps\":{:.3},\
             \"throughput_mbps\":{:.4},\"cpu_us_per_record\":{:.4},\"cpu_user_us\":{user},\
             \"cpu_system_us\":{system},\"latency_us\":{},\"send_latency_us\":{}}}",
            self.tool,
            self.client,
            self.version,
            self.records,
            self.errors,
            self.record_size,
            self.seconds(),
            self.rate(),
            self.megabytes_a_second(),
            self.cpu_per_record(),
            self.latency.json(),
            self.send_latency.json(),
        );
        text
    }

    fn summary(&self) -> String {
        let mut text = format!(
            "{} {}: {} records, {} errors, {:.1} records/sec ({:.2} MB/sec), {:.3} us CPU per record",
            self.client,
            self.tool,
            self.records,
            self.errors,
            self.rate(),
            self.megabytes_a_second(),
            self.cpu_per_record(),
        );
        if !self.latency.is_empty() {
            let ms = |share| self.latency.percentile(share) as f64 / 1e6;
            let _ = write!(
                text,
                ", latency ms p50 {:.3} p99 {:.3} p99.9 {:.3}",
                ms(0.5),
                ms(0.99),
                ms(0.999)
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_slot() {
        for value in (0..100_000).chain([1 << 40, (1 << 40) + 12_345, u64::MAX]) {
            let largest = largest_in(slot(value));
            assert!(largest >= value && largest - value <= value / 128, "{value} {largest}");
        }
    }

    #[test]
    fn percentiles_of_a_line() {
        let mut histogram = Histogram::new();
        (1..=200).for_each(|value| histogram.record(value));
        assert_eq!(histogram.percentile(0.5), 100);
        assert_eq!(histogram.percentile(0.99), 198);
        assert_eq!(histogram.percentile(0.999), 200);
    }
}
