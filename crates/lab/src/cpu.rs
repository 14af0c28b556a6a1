//! CPU time of this process.

use std::{
    ops::{Add, Sub},
    time::Duration,
};

#[cfg(unix)]
use nix::sys::{
    resource::{UsageWho, getrusage},
    time::{TimeVal, TimeValLike as _},
};

/// CPU time of all threads of this process, since it began or between two times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// In user mode.
    pub user: Duration,
    /// In the kernel.
    pub system: Duration,
}

impl CpuTime {
    /// CPU time used so far; zero if the system does not report it.
    #[must_use]
    pub fn now() -> Self {
        #[cfg(unix)]
        if let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) {
            let (user, system) = (duration(usage.user_time()), duration(usage.system_time()));
            return Self { user, system };
        }
        Self::default()
    }

    /// User and system time together.
    #[must_use]
    pub fn total(self) -> Duration {
        self.user + self.system
    }
}

impl Add for CpuTime {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { user: self.user + other.user, system: self.system + other.system }
    }
}

impl Sub for CpuTime {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
        }
    }
}

/// Context switches of a thread, since it began or between two times; zero if the system does not report
/// them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// Voluntary switches: the thread had to wait.
    pub waits: i64,
    /// Involuntary switches: the thread could have continued.
    pub preemptions: i64,
}

impl Switches {
    /// Switches of the calling thread so far.
    #[must_use]
    pub fn of_this_thread() -> Self {
        #[cfg(target_os = "linux")]
        if let Ok(usage) = getrusage(UsageWho::RUSAGE_THREAD) {
            let waits = usage.voluntary_context_switches();
            return Self { waits, preemptions: usage.involuntary_context_switches() };
        }
        Self::default()
    }
}

impl Sub for Switches {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            waits: self.waits - earlier.waits,
            preemptions: self.preemptions - earlier.preemptions,
        }
    }
}

#[cfg(unix)]
fn duration(time: TimeVal) -> Duration {
    Duration::from_micros(u64::try_from(time.num_microseconds()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::{CpuTime, Switches};
    use std::{hint::black_box, time::Duration};

    #[test]
    #[cfg(target_os = "linux")]
    fn a_sleep_counts_as_a_wait() {
        let before = Switches::of_this_thread();
        std::thread::sleep(Duration::from_millis(1));
        assert!((Switches::of_this_thread() - before).waits > 0);
    }

    #[test]
    #[cfg(unix)]
    fn work_takes_time() {
        let before = CpuTime::now();
        let mut x = 1u64;
        while (CpuTime::now() - before).total() < Duration::from_millis(20) {
            x = black_box(x.wrapping_mul(6_364_136_223_846_793_005));
        }
        assert!(CpuTime::now().total() > before.total());
    }
}
