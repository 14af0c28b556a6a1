//! `curtail doctor`: examines a cluster and recommends settings.

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use clap::Args;
use curtail_lab::doctor::{
    self, Asked, Event, Options, Plan, Stop,
    settings::Clients,
    units::{Throughput, Time, duration, throughput},
};

use crate::{
    failure::Failure,
    json_file::JsonFile,
    output::{self, count},
    profile,
    settings::{BOOTSTRAP, Property, properties, property, set_both},
    signals,
};

/// Arguments of `curtail doctor`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Brokers of the cluster: host:port, separated by commas.
    #[arg(long, value_name = "SERVERS")]
    bootstrap_server: Option<String>,
    /// Target for the 99th percentile of latency, from the intended send time to the poll: 50ms, 1.5s.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    target_p99: Time,
    /// Write load to apply: 90MB/s, 500KB/s (1 MB = 1024 KB).
    #[arg(long, value_name = "RATE", value_parser = throughput)]
    throughput: Throughput,
    /// Bytes of a record's value.
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    record_size: usize,
    /// Partitions of the test topic [default: 3 for each broker].
    #[arg(long, value_name = "N")]
    partitions: Option<i32>,
    /// Replicas of the test topic [default: the brokers' default.replication.factor].
    #[arg(long, value_name = "N")]
    replication_factor: Option<i16>,
    /// Acknowledgements the producer waits for: 1 or all [default: all].
    #[arg(long, value_name = "ACKS")]
    acks: Option<String>,
    /// Client properties by their Java names, as your application uses them now.
    #[arg(long, value_name = "NAME=VALUE", value_parser = property, num_args = 1..)]
    command_property: Vec<Property>,
    /// A file of client properties.
    #[arg(long, value_name = "FILE")]
    command_config: Option<PathBuf>,
    /// A profile: the client properties of NAME.properties in ~/.config/curtail, or in curtail of XDG_CONFIG_HOME.
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Total time for which the runs write records.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    duration: Time,
    /// Write the figures to this file, as JSON with latencies in microseconds.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Arguments {
    fn options(&self) -> Result<Options, Failure> {
        let profile = profile::given(self.profile.as_deref())?;
        let file = self.command_config.as_deref();
        let mut all = properties(profile.as_deref(), file, &self.command_property)?;
        if let Some(servers) = &self.bootstrap_server {
            all.push((BOOTSTRAP.into(), servers.clone()));
        }
        if !all.iter().any(|(name, _)| name == BOOTSTRAP) {
            return Err(Failure::new("no cluster given; use --bootstrap-server HOST:PORT"));
        }
        if let Some(acks) = &self.acks {
            all.push(("acks".into(), acks.clone()));
        }
        let mut clients = Clients::default();
        set_both(&mut clients.producer, &mut clients.consumer, &all)?;
        let Clients { producer, consumer, admin } = clients.validated()?;
        Ok(Options {
            producer,
            consumer,
            admin,
            target: self.target_p99.duration,
            throughput: self.throughput.bytes_per_second,
            record_size: self.record_size,
            partitions: self.partitions,
            replication_factor: self.replication_factor,
            duration: self.duration.duration,
        })
    }
}

/// Examines a cluster and prints the report.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let options = arguments.options()?;
    let mut json = JsonFile::create(arguments.json.as_deref())?;
    let stop = Stop::default();
    stop_on_signal(stop.clone())?;
    let mut printed = Ok(());
    let mut runs = Runs::default();
    let report = doctor::run(&options, &stop, &mut |event| match event {
        Event::Plan(plan) => {
            runs.planned = plan.runs;
            printed = output::print(&planned(plan, arguments.throughput));
            // A user who cannot see the plan has not agreed to it.
            if printed.is_err() {
                stop.set();
            }
        }
        Event::WarmingUp => {
            let run = runs.next(0);
            output::note(format_args!("warming up ({run})"));
        }
        Event::Run { what, done, of } => {
            let run = runs.next(of - done);
            output::note(format_args!("{run}: {what}"));
        }
        _ => {}
    });
    printed?;
    let report = report?;
    let asked = Asked { target: arguments.target_p99, rate: arguments.throughput };
    output::print(&doctor::text(&report, &options.producer, asked))?;
    json.add(&report)?;
    if report.holds { Ok(()) } else { Err(Failure::NotHeld) }
}

/// Counts the runs of an examination, so that progress continues when further settings are tried.
#[derive(Default)]
struct Runs {
    begun: usize,
    planned: usize,
}

impl Runs {
    /// Describes the next run; `left` runs remain in this part, including it.
    fn next(&mut self, left: usize) -> String {
        self.planned = self.planned.max(self.begun + left);
        self.begun += 1;
        format!("run {} of {}", self.begun, self.planned)
    }
}

/// Stops the doctor on the first Ctrl-C or SIGTERM; it then cleans up.
fn stop_on_signal(stop: Stop) -> Result<(), Failure> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::new)?;
    let asked = {
        let _context = runtime.enter();
        signals::end().map_err(Failure::new)?
    };
    std::thread::spawn(move || {
        runtime.block_on(asked);
        output::note("stopping: the topic is being deleted");
        stop.set();
    });
    Ok(())
}

fn planned(plan: &Plan, rate: Throughput) -> String {
    format!(
        "This creates the topic {} with {} on {}, writes {rate} ({:.0} records/s) to it, reads the records back, and \
         deletes the topic.\nIt takes {} of {:.1} s, or up to {} if the target does not hold ({:.0} MB before \
         replication).\nNo setting of the cluster is changed. Ctrl-C ends it early and also deletes the topic.\n\n",
        plan.topic,
        count(plan.partitions, "partition"),
        count(plan.brokers, "broker"),
        plan.records_per_second,
        count(plan.runs, "run"),
        plan.run_s,
        plan.runs_at_most,
        mb(plan.bytes_at_most),
    )
}

fn mb(bytes: f64) -> f64 {
    bytes / (1024.0 * 1024.0)
}
