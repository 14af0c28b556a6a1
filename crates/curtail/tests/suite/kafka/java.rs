//! Kafka's console consumer as a member of a group.

use std::process::Stdio;

use curtail_apache::{Program, Toolchain};

/// Starts a console consumer that reads a topic from the beginning, in this group.
pub(crate) fn start(
    toolchain: &Toolchain,
    bootstrap: &str,
    (topic, group): (&str, &str),
    properties: &[(&str, &str)],
) -> Program {
    let mut args = vec!["--bootstrap-server", bootstrap, "--topic", topic, "--group", group];
    args.push("--from-beginning");
    let properties: Vec<String> =
        properties.iter().map(|(name, value)| format!("{name}={value}")).collect();
    for property in &properties {
        args.extend(["--command-property", property]);
    }
    let tool =
        toolchain.tool("org.apache.kafka.tools.consumer.ConsoleConsumer").short_lived().args(&args);
    let mut command = tool.command();
    Program::start(command.stdin(Stdio::null()).stderr(Stdio::null())).expect("it starts")
}
