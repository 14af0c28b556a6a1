//! Kafka's command-line tools.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::toolchain::Toolchain;

const CLASS_PATH_SEPARATOR: &str = if cfg!(windows) { ";" } else { ":" };
const DEFAULT_LIMIT: Duration = Duration::from_secs(120);

/// The output and exit status of a tool.
#[derive(Debug, Clone)]
pub struct Output {
    /// The exit status.
    pub status: ExitStatus,
    /// Standard output, with invalid UTF-8 replaced.
    pub stdout: String,
    /// Standard error, with invalid UTF-8 replaced.
    pub stderr: String,
}

impl Output {
    /// Whether the tool ended with exit code 0.
    #[must_use]
    pub fn success(&self) -> bool {
        self.status.success()
    }
}

/// One run of a tool class; see [`Toolchain::tool`].
#[derive(Debug, Clone)]
#[must_use]
pub struct Tool<'a> {
    toolchain: &'a Toolchain,
    class: String,
    args: Vec<String>,
    stdin: Vec<u8>,
    jvm: Vec<String>,
    jars: Vec<PathBuf>,
    limit: Duration,
}

impl Toolchain {
    /// A run of one of Kafka's tool classes, for example `org.apache.kafka.tools.TopicCommand`.
    ///
    /// In this release: in `org.apache.kafka.tools` `TopicCommand`, `ConsoleProducer`,
    /// `consumer.ConsoleConsumer`, `consumer.group.ConsumerGroupCommand`, `ProducerPerformance`,
    /// `ConsumerPerformance`, `EndToEndLatency`, `VerifiableProducer`, `VerifiableConsumer`,
    /// `DumpLogSegments`, `GetOffsetShell`, `LeaderElectionCommand`,
    /// `reassign.ReassignPartitionsCommand`, `MetadataQuorumCommand`, `FeatureCommand`,
    /// `AclCommand`, `BrokerApiVersionsCommand`; and `kafka.admin.ConfigCommand`, `kafka.tools.StorageTool`.
    pub fn tool(&self, class: impl Into<String>) -> Tool<'_> {
        Tool {
            toolchain: self,
            class: class.into(),
            args: Vec::new(),
            stdin: Vec::new(),
            jvm: vec!["-Xmx512m".into()],
            jars: Vec::new(),
            limit: DEFAULT_LIMIT,
        }
    }
}

impl Tool<'_> {
    /// Adds arguments.
    pub fn args<S: AsRef<str>>(mut self, args: &[S]) -> Self {
        self.args.extend(args.iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets the tool's standard input; empty by default.
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    /// Adds an option for the JVM; the heap is at most 512 MB unless an option here says otherwise.
    pub fn jvm(mut self, option: impl Into<String>) -> Self {
        self.jvm.push(option.into());
        self
    }

    /// Configures the JVM for a run of seconds that is not measured: only the quick compiler runs.
    pub fn short_lived(self) -> Self {
        self.jvm("-XX:TieredStopAtLevel=1")
    }

    /// Runs the tool with another Java client instead of this release's own; see
    /// [`Toolchain::clients`].
    pub fn clients(self, jar: PathBuf) -> Self {
        self.jar(jar)
    }

    /// Adds a jar that precedes this release's own ones; see [`Toolchain::streams`].
    pub fn jar(mut self, jar: PathBuf) -> Self {
        self.jars.push(jar);
        self
    }

    /// Sets the limit on the wall time, 120 seconds by default.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Returns the command that [`run`](Self::run) would start, for a caller that handles the
    /// process itself.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut class_path = self.toolchain.class_path();
        for jar in &self.jars {
            // The first jar on the class path with a class takes precedence.
            class_path = format!("{}{CLASS_PATH_SEPARATOR}{class_path}", jar.display());
        }
        let mut command = Command::new(self.toolchain.java());
        command
            .args(self.toolchain.shared_classes())
            .args(&self.jvm)
            .arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
            .arg("-cp")
            .arg(class_path)
            .arg(&self.class)
            .args(&self.args);
        command
    }

    /// Runs the tool to its end.
    ///
    /// # Errors
    /// If it cannot be started, or does not end within its limit and is killed. An exit code other
    /// than 0 is not an error.
    pub fn run(self) -> Result<Output, Error> {
        let deadline = Instant::now() + self.limit;
        let mut command = self.command();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(Error::io(format!("start {}", self.class)))?;
        if let Some(mut stdin) = child.stdin.take() {
            let bytes = self.stdin;
            // A tool that ends before it has read everything is not an error. The thread ends when
            // everything is written or the tool has ended.
            std::thread::spawn(move || stdin.write_all(&bytes));
        }
        let (sender, receiver) = mpsc::channel();
        collect(child.stdout.take(), Stream::Out, &sender);
        collect(child.stderr.take(), Stream::Err, &sender);
        drop(sender);
        let mut streams = [Vec::new(), Vec::new()];
        let in_time = receive(&receiver, &mut streams, deadline);
        let status = end(&mut child, in_time, &self.class)?;
        let [stdout, stderr] = streams.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        if in_time {
            return Ok(Output { status, stdout, stderr });
        }
        let output = format!("{stdout}{stderr}");
        Err(Error::ToolTimeout { class: self.class, limit: self.limit, output })
    }
}

#[derive(Clone, Copy)]
enum Stream {
    Out,
    Err,
}

fn collect(
    source: Option<impl Read + Send + 'static>,
    stream: Stream,
    sender: &mpsc::Sender<(Stream, Vec<u8>)>,
) {
    let Some(mut source) = source else { return };
    let sender = sender.clone();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = source.read(&mut buffer) {
            if sender.send((stream, buffer[..count].to_vec())).is_err() {
                return;
            }
        }
    });
}

/// Gathers both streams until both have ended (true) or the deadline has passed (false).
fn receive(
    receiver: &mpsc::Receiver<(Stream, Vec<u8>)>,
    streams: &mut [Vec<u8>; 2],
    deadline: Instant,
) -> bool {
    loop {
        match receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok((Stream::Out, bytes)) => streams[0].extend(bytes),
            Ok((Stream::Err, bytes)) => streams[1].extend(bytes),
            Err(RecvTimeoutError::Disconnected) => return true,
            Err(RecvTimeoutError::Timeout) => return false,
        }
    }
}

fn end(child: &mut Child, in_time: bool, class: &str) -> Result<ExitStatus, Error> {
    if !in_time {
        child.kill().map_err(Error::io(format!("kill {class}")))?;
    }
    child.wait().map_err(Error::io(format!("wait for {class}")))
}
