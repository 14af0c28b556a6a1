//! Metrics of Apache Kafka's brokers through JMX: `jcmd` starts the JVM's management agent in the running
//! broker, and Kafka's own `JmxTool` reads it.

use std::{net::TcpListener, process::Command, time::Duration};

use curtail_apache::Toolchain;

use super::Sessions;
use crate::perf::{Error, Result};

const TOOL: &str = "org.apache.kafka.tools.JmxTool";
const CACHE: &str = "kafka.server:type=FetchSessionCache,name=";
/// Timeout of a read, which starts a JVM.
const LIMIT: Duration = Duration::from_secs(60);

/// A broker's management agent.
pub(super) struct JmxAgent {
    port: u16,
}

impl JmxAgent {
    /// Starts the agent in the process, on a free port.
    pub(super) fn start(toolchain: &Toolchain, pid: u32) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(Error::Threads)?;
        let port = listener.local_addr().map_err(Error::Threads)?.port();
        drop(listener);
        let beside = toolchain.java().with_file_name("jcmd");
        let program = if beside.exists() { beside } else { "jcmd".into() };
        let output = Command::new(program)
            .arg(pid.to_string())
            .arg("ManagementAgent.start")
            .arg(format!("jmxremote.port={port}"))
            .args(["jmxremote.authenticate=false", "jmxremote.ssl=false"])
            .arg("jmxremote.host=127.0.0.1")
            .output()
            .map_err(|error| failed(&format!("jcmd: {error}")))?;
        if !output.status.success() {
            return Err(failed(&String::from_utf8_lossy(&output.stdout)));
        }
        Ok(Self { port })
    }

    /// The counters of the fetch session cache.
    pub(super) fn fetch_sessions(&self, toolchain: &Toolchain) -> Result<Sessions> {
        let url = format!("service:jmx:rmi:///jndi/rmi://127.0.0.1:{}/jmxrmi", self.port);
        let object = format!("{CACHE}*");
        let args = [
            "--jmx-url",
            &url,
            "--object-name",
            &object,
            "--one-time",
            "--report-format",
            "properties",
        ];
        let output = toolchain.tool(TOOL).args(&args).limit(LIMIT).run();
        let output = output.map_err(|error| failed(&error.to_string()))?;
        let figure = |name: &str, attribute: &str| {
            let key = format!("{CACHE}{name}:{attribute}=");
            let line = output.stdout.lines().find_map(|line| line.trim().strip_prefix(&key));
            line.and_then(|text| text.trim().parse::<f64>().ok())
                .map(|value| value as u64)
                .ok_or_else(|| {
                    failed(&format!("no {key} in {:?} {:?}", output.stdout, output.stderr))
                })
        };
        Ok(Sessions {
            sessions: figure("NumIncrementalFetchSessions", "Value")?,
            partitions: figure("NumIncrementalFetchPartitionsCached", "Value")?,
            evictions: figure("IncrementalFetchSessionEvictionsPerSec", "Count")?,
        })
    }
}

fn failed(reason: &str) -> Error {
    Error::Unexpected(format!("JMX of Apache Kafka: {reason}"))
}
