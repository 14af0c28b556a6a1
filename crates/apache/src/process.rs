//! A broker's process, its log, and the watchdog that outlives the starting process.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::signal::{self, Signal};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use crate::error::Error;

/// The line a KRaft server logs when it is unfenced and serves its listeners.
const STARTED: &str = "Kafka Server started";

/// Stages of a process, as seen in its output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Starting,
    Started,
    Ended,
}

/// Progress of a server's start, as its output shows.
#[derive(Debug)]
pub(crate) struct Progress {
    stage: Mutex<Stage>,
    changed: Condvar,
}

impl Progress {
    fn advance(&self, to: Stage) {
        let mut stage = lock(&self.stage);
        *stage = to.max(*stage);
        self.changed.notify_all();
    }

    pub(crate) fn wait_ready(&self, deadline: Instant) -> Start {
        match self.wait(Stage::Started, deadline) {
            Stage::Starting => Start::TooLate,
            Stage::Started => Start::Ready,
            Stage::Ended => Start::Ended,
        }
    }

    /// Waits until the stage is at least `at_least`, and returns the stage then.
    fn wait(&self, at_least: Stage, deadline: Instant) -> Stage {
        let mut stage = lock(&self.stage);
        while *stage < at_least {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            stage =
                self.changed.wait_timeout(stage, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        *stage
    }
}

/// A running server whose output goes to a log file.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    progress: Arc<Progress>,
}

/// How a server's start ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    Ready,
    Ended,
    TooLate,
}

impl Server {
    /// Starts `command` in its own process group, so that a terminal's Ctrl-C does not reach it,
    /// and copies both its streams to `log`.
    pub(crate) fn spawn(mut command: Command, log: &Path) -> Result<Self, Error> {
        let file = File::options()
            .create(true)
            .append(true)
            .open(log)
            .map_err(Error::file("open", log))?;
        let (reader, writer) = std::io::pipe().map_err(Error::io("make a pipe"))?;
        let stderr = writer.try_clone().map_err(Error::io("copy a pipe"))?;
        command.stdin(Stdio::null()).stdout(writer).stderr(stderr).process_group(0);
        let child = command.spawn().map_err(Error::io(format!("start {command:?}")))?;
        drop(command); // It holds write ends of the pipe, which would prevent its end of file.
        let progress =
            Arc::new(Progress { stage: Mutex::new(Stage::Starting), changed: Condvar::new() });
        let seen = Arc::clone(&progress);
        std::thread::Builder::new()
            .name(format!("log-of-{}", child.id()))
            .spawn(move || copy_log(reader, file, &seen))
            .map_err(Error::io("start a thread"))?;
        Ok(Self { child, progress })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    /// Sends SIGKILL, which also ends a frozen process, and reaps the process.
    pub(crate) fn kill(&mut self) -> Result<ExitStatus, Error> {
        self.child.kill().map_err(Error::io("kill a broker"))?;
        self.child.wait().map_err(Error::io("wait for a broker"))
    }

    /// Returns whether the process has ended, and reaps it if so.
    pub(crate) fn has_ended(&mut self) -> Result<bool, Error> {
        let status = self.child.try_wait().map_err(Error::io("look at a broker"))?;
        Ok(status.is_some())
    }

    /// Sends SIGTERM and waits for the end; `None` if the process still runs after `limit`.
    pub(crate) fn terminate(&mut self, limit: Duration) -> Result<Option<ExitStatus>, Error> {
        self.signal(Signal::SIGTERM)?;
        if self.progress.wait(Stage::Ended, Instant::now() + limit) != Stage::Ended {
            return Ok(None);
        }
        self.child.wait().map(Some).map_err(Error::io("wait for a broker"))
    }

    /// Sends SIGSTOP and waits until every thread of the process has stopped. The signal alone only
    /// requests it.
    pub(crate) fn freeze(&self) -> Result<(), Error> {
        self.signal(Signal::SIGSTOP)?;
        // If the process has ended instead, this does not reap it.
        let until = WaitPidFlag::WSTOPPED | WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        match waitid(Id::Pid(self.id()), until) {
            Ok(WaitStatus::Stopped(..)) => Ok(()),
            Ok(other) => Err(Error::Invalid(format!("the broker did not freeze: {other:?}"))),
            Err(errno) => Err(Error::io("wait for a broker to freeze")(errno.into())),
        }
    }

    /// SIGCONT.
    pub(crate) fn thaw(&self) -> Result<(), Error> {
        self.signal(Signal::SIGCONT)
    }

    /// Sends a signal. The standard library sends only SIGKILL.
    fn signal(&self, signal: Signal) -> Result<(), Error> {
        signal::kill(self.id(), signal).map_err(|errno| Error::io("signal a broker")(errno.into()))
    }

    fn id(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }
}

fn copy_log(reader: std::io::PipeReader, mut log: File, seen: &Progress) {
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        // A full disk must not stop the broker by a full pipe.
        let _ = log.write_all(&line);
        if line.windows(STARTED.len()).any(|window| window == STARTED.as_bytes()) {
            seen.advance(Stage::Started);
        }
        line.clear();
    }
    seen.advance(Stage::Ended);
}

/// The last `count` lines of a log that are worth showing.
pub(crate) fn log_tail(log: &Path, count: usize) -> String {
    let Ok(bytes) = std::fs::read(log) else {
        return format!("(no log at {})", log.display());
    };
    let text = String::from_utf8_lossy(&bytes);
    let mut lines: Vec<&str> = text.lines().rev().take(count).collect();
    lines.reverse();
    lines.join("\n")
}

/// A shell that kills the brokers and removes their directory once its standard input closes. The
/// kernel closes it when this process ends, even by a signal.
#[derive(Debug)]
pub(crate) struct Watchdog {
    child: Child,
    orders: Mutex<Option<ChildStdin>>,
}

const WATCHDOG: &str = r#"
trap '' INT TERM HUP
pids=' '
while read -r order argument; do
  case $order in
    add) pids="$pids$argument " ;;
    gone) pids="${pids%% $argument *} ${pids#* $argument }" ;;
    keep) keep=1 ;;
  esac
done
for pid in $pids; do kill -9 "$pid" 2>/dev/null; done
[ -n "$keep" ] || rm -rf -- "$1"
"#;

impl Watchdog {
    pub(crate) fn start(directory: &Path) -> Result<Self, Error> {
        let mut child = Command::new("sh")
            .args(["-c", WATCHDOG, "curtail-apache-watchdog"])
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(Error::io("start `sh`"))?;
        let orders = Mutex::new(child.stdin.take());
        Ok(Self { child, orders })
    }

    pub(crate) fn add(&self, pid: u32) {
        self.order(&format!("add {pid}\n"));
    }

    /// Removes a reaped process: another process may soon have its id.
    pub(crate) fn gone(&self, pid: u32) {
        self.order(&format!("gone {pid}\n"));
    }

    pub(crate) fn keep_directory(&self) {
        self.order("keep\n");
    }

    fn order(&self, line: &str) {
        if let Some(orders) = lock(&self.orders).as_mut() {
            // A killed watchdog cannot be notified; this process still stops the brokers.
            let _ = orders.write_all(line.as_bytes());
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(lock(&self.orders).take());
        let _ = self.child.wait();
    }
}

/// Makes a cluster's directory, which its watchdog removes.
pub(crate) fn make_directory() -> Result<PathBuf, Error> {
    let directory = tempfile::Builder::new()
        .prefix("curtail-apache-")
        .tempdir()
        .map_err(Error::io("create a temporary directory"))?;
    Ok(directory.keep())
}

/// Locks a mutex whose holders leave it consistent even when they panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
