//! Starts an Apache Kafka cluster, or runs one of its tools, from the command line.
//!
//! `start` prints `bootstrap: host:port,...` when the cluster is ready, then `NAME: host:port,...`
//! for each added listener. It runs until its standard input closes or a signal ends it; the
//! brokers end with it either way. A line `kill N` or `restart N` of its input is answered by `done`
//! or an error, once it is carried out. N is a broker's id, from 1 on.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use curtail_apache::{ApacheCluster, Error, available};

const USAGE: &str = "\
usage: curtail-apache start [--brokers 1|3] [--heap-mb N] [--port-file FILE] [--property k=v]...
                            [--listener NAME:PROTOCOL]... [--short-lived]
       curtail-apache tool CLASS [ARGUMENT]...";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match args.split_first() {
        Some((command, rest)) if command == "start" => start(rest),
        Some((command, [class, rest @ ..])) if command == "tool" => tool(class, rest),
        _ => Err(USAGE.into()),
    };
    match result {
        Ok(code) => code,
        Err(message) => {
            let _ = writeln!(std::io::stderr(), "{message}");
            ExitCode::FAILURE
        }
    }
}

fn start(args: &[String]) -> Result<ExitCode, String> {
    let mut builder = ApacheCluster::builder();
    let mut port_file = None;
    let mut listeners = Vec::new();
    let mut args = args.iter();
    while let Some(flag) = args.next() {
        if flag == "--short-lived" {
            builder = builder.short_lived();
            continue;
        }
        let value = args.next().ok_or_else(|| format!("{flag} needs a value\n{USAGE}"))?;
        builder = match flag.as_str() {
            "--brokers" => builder.brokers(number(flag, value)?),
            "--heap-mb" => builder.heap_mb(number(flag, value)?),
            "--property" => {
                let (key, value) = value.split_once('=').ok_or("--property needs key=value")?;
                builder.property(key, value)
            }
            "--listener" => {
                let (name, protocol) =
                    value.split_once(':').ok_or("--listener needs NAME:PROTOCOL")?;
                listeners.push(name);
                builder.listener(name, protocol)
            }
            "--port-file" => {
                port_file = Some(PathBuf::from(value));
                builder
            }
            _ => return Err(format!("unknown flag {flag}\n{USAGE}")),
        };
    }
    let cluster = builder.start().map_err(text)?;
    let bootstrap = cluster.bootstrap();
    if let Some(path) = &port_file {
        write_whole(path, &bootstrap).map_err(|e| format!("write {}: {e}", path.display()))?;
    }
    let mut stdout = std::io::stdout();
    let added = listeners.iter().map(|name| format!("{name}: {}\n", cluster.listener(name)));
    let lines = format!("bootstrap: {bootstrap}\n{}", added.collect::<String>());
    stdout.write_all(lines.as_bytes()).map_err(|e| format!("standard output: {e}"))?;
    stdout.flush().map_err(|e| format!("standard output: {e}"))?;
    serve(&cluster, stdout).map_err(|e| format!("standard output: {e}"))?;
    drop(cluster);
    Ok(ExitCode::SUCCESS)
}

/// Writes a file atomically: a reader sees either no file or the whole address.
fn write_whole(path: &PathBuf, text: &str) -> std::io::Result<()> {
    let partial = path.with_extension("partial");
    std::fs::write(&partial, format!("{text}\n"))?;
    std::fs::rename(partial, path)
}

/// Carries out commands until the input closes. An input that cannot be read counts as closed.
fn serve(cluster: &ApacheCluster, mut answers: impl Write) -> std::io::Result<()> {
    for command in std::io::stdin().lines().map_while(Result::ok) {
        match carry_out(cluster, &command) {
            Ok(()) => writeln!(answers, "done")?,
            Err(error) => writeln!(answers, "{command}: {error}")?,
        }
        answers.flush()?;
    }
    Ok(())
}

fn carry_out(cluster: &ApacheCluster, command: &str) -> Result<(), String> {
    let (verb, broker) = command.split_once(' ').ok_or("kill N or restart N expected")?;
    let index = number::<usize>(verb, broker)?.checked_sub(1).filter(|at| *at < cluster.len());
    let index = index.ok_or("no such broker")?;
    match verb {
        "kill" => cluster.kill(index),
        "restart" => cluster.restart(index),
        _ => return Err("kill N or restart N expected".into()),
    }
    .map_err(text)
}

/// The tool reads and writes our own standard streams.
fn tool(class: &str, args: &[String]) -> Result<ExitCode, String> {
    let toolchain = available().map_err(text)?;
    let status = toolchain
        .tool(class)
        .args(args)
        .command()
        .status()
        .map_err(|e| format!("start {class}: {e}"))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn number<T: std::str::FromStr>(flag: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{flag} needs a number, not {value:?}"))
}

fn text(error: impl Into<Error>) -> String {
    error.into().to_string()
}
