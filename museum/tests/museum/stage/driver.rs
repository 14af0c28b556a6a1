//! A peer's driver process: commands go to its standard input, replies come from its standard output.
//!
//! `peers/README.md` describes the commands (`<driver> drive`).

use std::{
    collections::{BTreeMap, VecDeque},
    process::Stdio,
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::{mpsc, oneshot},
};

use super::{Failure, Outcome, TOPIC, Written};

/// Begins the panic of a case that a peer cannot express; `museum/peers.py` looks for it.
const NOT_APPLICABLE: &str = "not applicable: ";

/// Whether another client than Curtail is under test.
pub(crate) fn is_peer() -> bool {
    std::env::var_os("MUSEUM_DRIVER").is_some()
}

/// Ends a case that only Curtail's own API can express, when a peer is under test.
pub(crate) fn curtail_only(reason: &str) {
    if is_peer() {
        not_applicable(reason);
    }
}

fn not_applicable(reason: &str) -> ! {
    panic!("{NOT_APPLICABLE}{reason}")
}

/// The lines of a reply before its end.
pub(crate) type Lines = Vec<String>;

#[derive(Default)]
struct Waiting {
    replies: VecDeque<oneshot::Sender<Result<Lines, Failure>>>,
    /// Senders of outcomes by the record's number.
    outcomes: BTreeMap<usize, oneshot::Sender<Outcome>>,
    records: usize,
    lines: Lines,
}

/// A running driver. Dropping it kills the process.
pub(crate) struct Driver {
    commands: mpsc::UnboundedSender<String>,
    waiting: Arc<Mutex<Waiting>>,
    _process: Child,
}

impl Driver {
    /// Starts a driver for a producer or a consumer of the topic.
    pub(crate) fn start(
        role: &str,
        bootstrap: &str,
        properties: impl IntoIterator<Item = (&'static str, String)>,
    ) -> Arc<Self> {
        // One word per line.
        let driver = std::env::var("MUSEUM_DRIVER").expect("a peer's command");
        let mut words = driver.lines();
        let mut command = Command::new(words.next().expect("the command is not empty"));
        command.args(words).args(["drive", "--role", role, "--topic", TOPIC]);
        command.args(["--bootstrap-server", bootstrap]);
        for (name, value) in properties {
            command.args(["--command-property", &format!("{name}={value}")]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().unwrap_or_else(|error| panic!("{driver}: {error}"));
        let (input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let waiting = Arc::<Mutex<Waiting>>::default();
        let (commands, queue) = mpsc::unbounded_channel();
        tokio::spawn(write(queue, input));
        tokio::spawn(read(output, Arc::clone(&waiting)));
        Arc::new(Self { commands, waiting, _process: process })
    }

    /// Sends a command and returns the lines before the end of its reply.
    pub(crate) async fn call(&self, command: &str) -> Result<Lines, Failure> {
        let (reply, replied) = oneshot::channel();
        self.waiting.lock().replies.push_back(reply);
        let _ = self.commands.send(format!("{command}\n"));
        replied.await.expect("the driver ended")
    }

    /// Sends a record; a negative index leaves the choice of the partition to the client.
    pub(crate) fn send(&self, index: i32, value: &str) -> oneshot::Receiver<Outcome> {
        let (outcome, known) = oneshot::channel();
        let mut waiting = self.waiting.lock();
        let number = waiting.records;
        waiting.records += 1;
        waiting.outcomes.insert(number, outcome);
        let _ = self.commands.send(format!("send {index} {value}\n"));
        known
    }
}

async fn write(mut queue: mpsc::UnboundedReceiver<String>, mut input: ChildStdin) {
    while let Some(line) = queue.recv().await {
        if input.write_all(line.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Ends with the process; waiting requests then find their senders dropped.
async fn read(output: ChildStdout, waiting: Arc<Mutex<Waiting>>) {
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        waiting.lock().take(line);
    }
    *waiting.lock() = Waiting::default();
}

impl Waiting {
    fn take(&mut self, line: String) {
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        match word {
            "version" => println!("{line}"),
            "unsupported" => not_applicable(rest),
            "acknowledged" | "failed" => self.settle(word, rest),
            "done" => self.reply(Ok),
            "error" => {
                let failure = Failure { text: rest.to_owned(), may_have_been_written: true };
                self.reply(|_| Err(failure));
            }
            _ => self.lines.push(line),
        }
    }

    fn reply(&mut self, end: impl FnOnce(Lines) -> Result<Lines, Failure>) {
        let lines = std::mem::take(&mut self.lines);
        let waits = self.replies.pop_front().expect("a reply follows a command");
        let _ = waits.send(end(lines));
    }

    fn settle(&mut self, word: &str, rest: &str) {
        let (number, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let waits = self.outcomes.remove(&number.parse().expect("a record's number"));
        let outcome = match word {
            "acknowledged" => {
                let (partition, offset) = rest.split_once(' ').expect("partition and offset");
                let offset: i64 = offset.parse().expect("an offset");
                let partition = partition.parse().expect("a partition");
                Ok(Written { partition, offset: Some(offset).filter(|offset| *offset >= 0) })
            }
            _ => Err(Failure { text: rest.to_owned(), may_have_been_written: true }),
        };
        println!("record {number}: {outcome:?}");
        let _ = waits.expect("one outcome per record").send(outcome);
    }
}
