//! Kafka's console consumer as a member of a group.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    sync::mpsc,
};

use curtail_apache::Toolchain;

/// A console consumer that runs until it is stopped; if dropped, it is killed.
pub(crate) struct Java {
    child: Child,
    pub(crate) lines: mpsc::Receiver<String>,
}

impl Java {
    /// Reads a topic from the beginning, in this group.
    pub(crate) fn start(
        toolchain: &Toolchain,
        bootstrap: &str,
        (topic, group): (&str, &str),
        properties: &[(&str, &str)],
    ) -> Self {
        let mut args = vec!["--bootstrap-server", bootstrap, "--topic", topic, "--group", group];
        args.push("--from-beginning");
        let properties: Vec<String> =
            properties.iter().map(|(name, value)| format!("{name}={value}")).collect();
        for property in &properties {
            args.extend(["--command-property", property]);
        }
        let tool = toolchain
            .tool("org.apache.kafka.tools.consumer.ConsoleConsumer")
            .short_lived()
            .args(&args);
        let mut command = tool.command();
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines }
    }

    /// Stops it, so that it leaves the group, and waits for its end.
    pub(crate) fn stop(mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        self.child.wait().unwrap();
    }
}

impl Drop for Java {
    fn drop(&mut self) {
        // The Java process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
