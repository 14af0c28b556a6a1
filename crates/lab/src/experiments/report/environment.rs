//! The machine of a run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::super::ClusterKind;

/// Origin of a report. A value that the system does not provide is empty or `null`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// When the run began, in milliseconds since 1970-01-01 UTC.
    pub started_ms: u64,
    /// The operating system, its release, and the architecture.
    pub system: String,
    /// Model of the CPU.
    pub processor: String,
    /// Cores that this process may use.
    pub cores: u32,
    /// Memory of the machine in bytes.
    pub memory_bytes: Option<u64>,
    /// Whether the brokers, and all clients, had the same machine.
    pub shares_machine: bool,
    /// Whether this is a release build.
    pub release_build: bool,
    /// The machine's one-minute load average before the run.
    pub load_before: Option<f64>,
    /// The same after the run.
    pub load_after: Option<f64>,
    /// Share of all cores' time that all processes used during the run.
    pub busy_percent: Option<f64>,
    /// Share of it that the hypervisor gave to other machines (steal).
    pub stolen_percent: Option<f64>,
    /// Versions of the components, by name.
    pub versions: BTreeMap<String, String>,
    /// The commit of the checkout that the command ran in, with a `+` if its files differed; empty elsewhere.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub commit: String,
}

/// State of the machine at one time.
pub(crate) struct Machine {
    at_ms: u64,
    load: Option<f64>,
    times: Option<Times>,
}

/// CPU time since the machine started, in the kernel's ticks.
#[derive(Clone, Copy)]
struct Times {
    all: u64,
    idle: u64,
    stolen: u64,
}

impl Machine {
    pub(crate) fn now() -> Self {
        Self { at_ms: now_ms(), load: load(), times: times() }
    }

    /// The environment of a run that began at this time and ends now.
    pub(crate) fn until_now(
        self,
        cluster: &ClusterKind,
        versions: BTreeMap<String, String>,
    ) -> Environment {
        let after = Self::now();
        let spent = self.times.zip(after.times).map(|(from, until)| until.since(from));
        let percent = |part: fn(&Times) -> u64| {
            let spent = spent.as_ref().filter(|spent| spent.all > 0)?;
            Some(100.0 * part(spent) as f64 / spent.all as f64)
        };
        let curtail = ("Curtail".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
        Environment {
            started_ms: self.at_ms,
            system: system(),
            processor: processor(),
            cores: std::thread::available_parallelism().map_or(0, |cores| cores.get() as u32),
            memory_bytes: memory(),
            shares_machine: cluster.shares_machine(),
            release_build: !cfg!(debug_assertions),
            load_before: self.load,
            load_after: after.load,
            busy_percent: percent(|times| times.all.saturating_sub(times.idle + times.stolen)),
            stolen_percent: percent(|times| times.stolen),
            versions: versions.into_iter().chain([curtail]).collect(),
            commit: String::new(),
        }
    }
}

impl Times {
    fn since(self, earlier: Self) -> Self {
        Self {
            all: self.all.saturating_sub(earlier.all),
            idle: self.idle.saturating_sub(earlier.idle),
            stolen: self.stolen.saturating_sub(earlier.stolen),
        }
    }
}

/// Milliseconds since 1970-01-01 UTC.
pub(in crate::experiments) fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

fn system() -> String {
    let release = proc("sys/kernel/osrelease").unwrap_or_default();
    let words = [std::env::consts::OS, release.trim(), std::env::consts::ARCH];
    words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

fn processor() -> String {
    let info = proc("cpuinfo").unwrap_or_default();
    field(&info, "model name").unwrap_or_default().to_owned()
}

fn memory() -> Option<u64> {
    let info = proc("meminfo")?;
    let kib: u64 = field(&info, "MemTotal")?.trim_end_matches("kB").trim().parse().ok()?;
    Some(kib * 1024)
}

fn load() -> Option<f64> {
    proc("loadavg")?.split_whitespace().next()?.parse().ok()
}

fn times() -> Option<Times> {
    read_times(&proc("stat")?)
}

/// Parses the first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal. The
/// remaining fields are included in user and nice.
fn read_times(stat: &str) -> Option<Times> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_whitespace().take(8).map_while(|t| t.parse().ok()).collect();
    let [.., idle, waiting, _, _, stolen] = ticks[..] else { return None };
    Some(Times { all: ticks.iter().sum(), idle: idle + waiting, stolen })
}

fn proc(path: &str) -> Option<String> {
    std::fs::read_to_string(format!("/proc/{path}")).ok()
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.into_iter().find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_split_by_kind() {
        let before = read_times("cpu  100 0 50 800 40 0 5 5 0 0\ncpu0 1 2 3\n").unwrap();
        let after = read_times("cpu  150 0 70 820 40 0 5 15 0 0\ncpu0 1 2 3\n").unwrap();
        let spent = after.since(before);
        assert_eq!((spent.all, spent.idle, spent.stolen), (100, 20, 10));
        assert!(read_times("cpu 1 2\n").is_none() && read_times("").is_none());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_machine_has_a_description() {
        let seen = Machine::now().until_now(&ClusterKind::Embedded, BTreeMap::new());
        assert!(seen.cores > 0 && seen.memory_bytes > Some(1 << 20), "{seen:?}");
        assert!(seen.load_before.is_some() && seen.shares_machine, "{seen:?}");
        assert_eq!(seen.versions["Curtail"], env!("CARGO_PKG_VERSION"));
    }
}
