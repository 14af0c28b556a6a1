//! CPU utilisation of this machine.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use crate::cpu::CpuTime;

/// CPU time used up to a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Busy {
    at: Instant,
    own: CpuTime,
    /// Busy and total time of all CPUs in the kernel's ticks, if available.
    all: Option<(u64, u64)>,
}

impl Busy {
    pub(super) fn now() -> Self {
        let all = fs::read_to_string("/proc/stat").ok().as_deref().and_then(parse);
        Self { at: Instant::now(), own: CpuTime::now(), all }
    }

    /// CPU utilisation since then, from 0 to 1: of the whole machine, or of this process alone if nothing
    /// else is known.
    pub(super) fn until_now(self) -> f64 {
        let now = Self::now();
        if let (Some((before, earlier)), Some((work, all))) = (self.all, now.all)
            && all > earlier
        {
            return work.saturating_sub(before) as f64 / (all - earlier) as f64;
        }
        let processors = thread::available_parallelism().map_or(1, usize::from) as f64;
        let elapsed = (now.at - self.at).max(Duration::from_nanos(1)).as_secs_f64();
        (now.own - self.own).total().as_secs_f64() / elapsed / processors
    }
}

/// Busy and total time from the first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq,
/// steal.
fn parse(text: &str) -> Option<(u64, u64)> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line.split_whitespace().take(8).map_while(|n| n.parse().ok()).collect();
    let all: u64 = ticks.iter().sum();
    let idle = ticks.get(3)? + ticks.get(4)?;
    Some((all - idle, all))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn idle_time_and_waiting_for_disks_is_no_work() {
        let text = "cpu  10 20 30 400 50 6 7 8 9 10\ncpu0 1 2 3 4\n";
        assert_eq!(parse(text), Some((81, 531)));
        assert_eq!(parse("cpu 1 2"), None);
        assert_eq!(parse(""), None);
    }
}
