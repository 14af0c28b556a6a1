//! Programs that run in the background of a test.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;

use crate::error::Error;

/// A running program, such as that of a [`Tool`](crate::Tool). Dropping it kills it and waits for its end.
#[derive(Debug)]
pub struct Program {
    child: Child,
    /// The lines of its standard output, as they come. Disconnected once it has closed that.
    pub lines: mpsc::Receiver<String>,
}

impl Program {
    /// Starts a command, with its standard output read by a thread.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(command: &mut Command) -> Result<Self, Error> {
        let mut child =
            command.stdout(Stdio::piped()).spawn().map_err(Error::io("start a program"))?;
        let (sender, lines) = mpsc::channel();
        if let Some(out) = child.stdout.take() {
            std::thread::spawn(move || {
                let lines = BufReader::new(out).lines().map_while(Result::ok);
                lines.map(|line| sender.send(line)).take_while(Result::is_ok).for_each(drop);
            });
        }
        Ok(Self { child, lines })
    }

    /// Writes a line to its standard input, which must be a pipe.
    ///
    /// # Errors
    /// If the program has closed it.
    pub fn say(&mut self, line: &str) -> Result<(), Error> {
        let Some(stdin) = &mut self.child.stdin else {
            return Err(Error::Invalid("the program has no piped standard input".into()));
        };
        writeln!(stdin, "{line}").map_err(Error::io("write to a program"))
    }

    /// Stops it by SIGTERM, and waits for its end.
    ///
    /// # Errors
    /// If it has ended already.
    pub fn stop(mut self) -> Result<(), Error> {
        let pid = Pid::from_raw(self.child.id().cast_signed());
        signal::kill(pid, Signal::SIGTERM)
            .map_err(|errno| Error::io("stop a program")(errno.into()))?;
        self.child.wait().map_err(Error::io("wait for a program"))?;
        Ok(())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn lines_go_both_ways_until_the_program_is_stopped() {
        let script = "while read -r line; do echo \"got $line\"; done";
        let mut command = Command::new("sh");
        let mut program =
            Program::start(command.args(["-c", script]).stdin(Stdio::piped())).unwrap();
        let next = |program: &Program| program.lines.recv_timeout(Duration::from_secs(30)).unwrap();
        for line in ["one", "two"] {
            program.say(line).unwrap();
            assert_eq!(next(&program), format!("got {line}"));
        }
        program.stop().unwrap();

        let mut silent = Program::start(Command::new("true").stdin(Stdio::null())).unwrap();
        assert!(silent.lines.recv_timeout(Duration::from_secs(30)).is_err(), "it has ended");
        assert!(silent.say("more").is_err());
    }
}
