//! The command as a user runs it.

#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    path::Path,
    process::{Child, ChildStderr, Command, Stdio},
};

/// What a finished run left behind.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Run {
    /// The output of a run that succeeded.
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.out
    }

    /// The one line of a run that failed.
    pub(crate) fn failed(self) -> String {
        assert_eq!(self.code, Some(1), "{self:?}");
        let lines: Vec<_> = self.err.lines().collect();
        assert_eq!(lines.len(), 1, "one line of error: {self:?}");
        assert!(!self.err.contains("panicked") && !self.err.contains("backtrace"), "{self:?}");
        lines[0].strip_prefix("curtail: ").unwrap_or_else(|| panic!("{self:?}")).to_owned()
    }
}

pub(crate) fn curtail() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_curtail"));
    command.env_remove("CURTAIL_PROFILE");
    command
}

/// Runs the command to its end.
pub(crate) fn run(arguments: &[&str]) -> Run {
    run_with_input(arguments, b"")
}

/// Runs the command to its end with an input.
pub(crate) fn run_with_input(arguments: &[&str], input: &[u8]) -> Run {
    let mut child = curtail()
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that fails early does not read its input.
    let _ = child.stdin.take().unwrap().write_all(input);
    let output = child.wait_with_output().unwrap();
    Run {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// `curtail cluster` in a separate process, killed when dropped.
pub(crate) struct Cluster {
    child: Child,
    pub(crate) bootstrap: String,
}

impl Cluster {
    /// Starts it on ports of the system's choosing.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut command = curtail();
        command.args(["cluster", "--port", "0"]).args(arguments);
        Self::spawn(command)
    }

    /// Runs a command that becomes a cluster and waits for the address.
    pub(crate) fn spawn(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut bootstrap = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut bootstrap).unwrap();
        assert!(bootstrap.ends_with('\n'), "no address; it says: {}", rest(&mut child));
        Self { child, bootstrap: bootstrap.trim().to_owned() }
    }

    /// Sends a signal as `kill` does, and waits for the end.
    pub(crate) fn stop(mut self, signal: &str) -> Run {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        let code = self.child.wait().unwrap().code();
        Run { code, out: String::new(), err: rest(&mut self.child) }
    }
}

fn rest(child: &mut Child) -> String {
    let mut text = String::new();
    let stderr: Option<ChildStderr> = child.stderr.take();
    if let Some(mut stderr) = stderr {
        stderr.read_to_string(&mut text).unwrap();
    }
    text
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Every file below a directory whose name ends so.
pub(crate) fn files(directory: &Path, end: &str) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, end));
        } else if path.to_string_lossy().ends_with(end) {
            found.push(path);
        }
    }
    found
}
