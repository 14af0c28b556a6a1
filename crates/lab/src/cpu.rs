//! Processor time of this process.

use std::{
    ops::{Add, Sub},
    time::Duration,
};

use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeVal,
};

/// Processor time of all threads of this process since it began, or between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// In the program.
    pub user: Duration,
    /// In the kernel on its behalf.
    pub system: Duration,
}

impl CpuTime {
    /// What was used up to now. Zero where the system does not tell.
    #[must_use]
    pub fn now() -> Self {
        getrusage(UsageWho::RUSAGE_SELF).map_or_else(
            |_| Self::default(),
            |usage| Self {
                user: duration(usage.user_time()),
                system: duration(usage.system_time()),
            },
        )
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

/// How often the kernel took a thread off its core since it began, or between two moments. Zero where the system
/// does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// Because it had to wait.
    pub waits: i64,
    /// Although it could have gone on.
    pub preemptions: i64,
}

impl Switches {
    /// Those of the calling thread up to now.
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

fn duration(time: TimeVal) -> Duration {
    let micros = time.tv_sec().saturating_mul(1_000_000).saturating_add(time.tv_usec());
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::{CpuTime, Switches};
    use std::{hint::black_box, time::Duration};

    #[test]
    #[cfg(target_os = "linux")]
    fn who_sleeps_waits() {
        let before = Switches::of_this_thread();
        std::thread::sleep(Duration::from_millis(1));
        assert!((Switches::of_this_thread() - before).waits > 0);
    }

    #[test]
    fn work_takes_time() {
        let before = CpuTime::now();
        let mut x = 1u64;
        while (CpuTime::now() - before).total() < Duration::from_millis(20) {
            x = black_box(x.wrapping_mul(6_364_136_223_846_793_005));
        }
        assert!(CpuTime::now().total() > before.total());
    }
}
