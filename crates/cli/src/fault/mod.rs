//! `curtail fault`.

mod add;
mod client;
mod script;

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Subcommand};
use curtail_cluster::ActiveFault;
use hyper::{Method, StatusCode};
use serde_json::json;
use tokio::runtime::Builder;

use crate::{
    control::{
        self,
        routes::{BrokerState, Brokers, Expired, FaultList, Lifted, NewCoordinator, NewLeader},
    },
    failure::Failure,
    output,
};
use add::{Add, object};
use client::Control;

/// Environment variable with the address of the control endpoint.
const VARIABLE: &str = "CURTAIL_CONTROL";

/// The subcommands of `curtail fault`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Prints the faults, oldest first.
    List(List),
    /// Adds a fault and prints its name.
    #[command(subcommand)]
    Add(Add),
    /// Lifts faults.
    Lift(Lift),
    /// Prints the brokers and whether they run.
    Brokers(List),
    /// Kills a broker, like kill -9.
    Kill(OnBroker),
    /// Stops a broker cleanly: its leaderships move away first.
    Stop(OnBroker),
    /// Restarts a broker that was killed or stopped.
    Restart(OnBroker),
    /// Makes a broker forget its fetch sessions.
    ExpireFetchSessions(OnBroker),
    /// Makes the replicas of a partition forget its producers, as after producer.id.expiration.ms.
    ExpireProducerIds(OnPartition),
    /// Makes a broker the leader of a partition.
    MoveLeader(MoveLeader),
    /// Makes a broker the coordinator of a group or a transactional id.
    MoveCoordinator(MoveCoordinator),
    /// Runs a script of faults. At its end, and on an error, Ctrl-C, SIGTERM or SIGHUP, its faults are lifted.
    Run(Run),
}

/// The control endpoint.
#[derive(Debug, Args)]
pub(crate) struct Endpoint {
    /// The control endpoint: PORT or ADDRESS:PORT [default: that of the environment variable CURTAIL_CONTROL].
    #[arg(long, value_name = "PORT", value_parser = control::address)]
    control: Option<SocketAddr>,
}

impl Endpoint {
    fn control(&self) -> Result<Control, Failure> {
        if let Some(addr) = self.control {
            return Ok(Control(addr));
        }
        let text = std::env::var(VARIABLE).map_err(|_| {
            Failure::new(format!(
                "which cluster? name its control endpoint with --control PORT or {VARIABLE}; \
                 `curtail cluster --control PORT` and `curtail proxy --control PORT` serve one"
            ))
        })?;
        let failed = |expected| Failure::new(format!("{VARIABLE}={text}: {expected}"));
        control::address(&text).map(Control).map_err(failed)
    }
}

/// Arguments of `curtail fault list` and `curtail fault brokers`.
#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    endpoint: Endpoint,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Arguments of `curtail fault lift`.
#[derive(Debug, Args)]
pub(crate) struct Lift {
    #[command(flatten)]
    endpoint: Endpoint,
    /// Names of faults.
    #[arg(value_name = "NAME", required_unless_present = "all")]
    names: Vec<String>,
    /// Lift all faults.
    #[arg(long, conflicts_with = "names")]
    all: bool,
}

/// A broker.
#[derive(Debug, Args)]
pub(crate) struct OnBroker {
    #[command(flatten)]
    endpoint: Endpoint,
    /// The broker's id.
    #[arg(value_name = "BROKER")]
    broker: i32,
}

/// A partition.
#[derive(Debug, Args)]
pub(crate) struct OnPartition {
    #[command(flatten)]
    endpoint: Endpoint,
    /// The topic.
    #[arg(value_name = "TOPIC")]
    topic: String,
    /// The partition.
    #[arg(value_name = "PARTITION")]
    partition: i32,
}

/// Arguments of `curtail fault move-leader`.
#[derive(Debug, Args)]
pub(crate) struct MoveLeader {
    #[command(flatten)]
    endpoint: Endpoint,
    /// The topic. The partitions of __consumer_offsets and __transaction_state are coordinators.
    #[arg(value_name = "TOPIC")]
    topic: String,
    /// The partition.
    #[arg(value_name = "PARTITION")]
    partition: i32,
    /// The new leader, one of the in-sync replicas.
    #[arg(value_name = "BROKER")]
    broker: i32,
}

/// Arguments of `curtail fault move-coordinator`.
#[derive(Debug, Args)]
pub(crate) struct MoveCoordinator {
    #[command(flatten)]
    endpoint: Endpoint,
    /// The group.
    #[arg(long, value_name = "ID", required_unless_present = "transactional_id")]
    group: Option<String>,
    /// The transactional id.
    #[arg(long, value_name = "ID", conflicts_with = "group")]
    transactional_id: Option<String>,
    /// The new coordinator, an in-sync replica of the partition with the key.
    #[arg(value_name = "BROKER")]
    broker: i32,
}

/// Arguments of `curtail fault run`.
#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    endpoint: Endpoint,
    /// The script (YAML).
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Runs `curtail fault`.
pub(crate) fn run(command: Command) -> Result<(), Failure> {
    let threads = |error| Failure::new(format!("cannot start a runtime: {error}"));
    let runtime = Builder::new_current_thread().enable_all().build().map_err(threads)?;
    runtime.block_on(async {
        match command {
            Command::List(list) => print_faults(&list).await,
            Command::Add(add) => print_added(&add).await,
            Command::Lift(lift) => print_lifted(&lift).await,
            Command::Brokers(list) => {
                let brokers: Brokers =
                    list.endpoint.control()?.send(Method::GET, "/v1/brokers").await?;
                print_brokers(&brokers, list.json)
            }
            Command::Kill(on) => change(&on, "kill").await,
            Command::Stop(on) => change(&on, "stop").await,
            Command::Restart(on) => change(&on, "restart").await,
            Command::ExpireFetchSessions(on) => {
                let expired = expire_fetch_sessions(on.endpoint.control()?, on.broker).await?;
                output::line(format_args!("{expired}"))
            }
            Command::ExpireProducerIds(of) => {
                let control = of.endpoint.control()?;
                let expired = expire_producer_ids(control, &of.topic, of.partition).await?;
                output::line(format_args!("{expired}"))
            }
            Command::MoveLeader(to) => {
                let control = to.endpoint.control()?;
                move_leader(control, &to.topic, to.partition, to.broker).await
            }
            Command::MoveCoordinator(to) => {
                let MoveCoordinator { endpoint, group, transactional_id, broker } = to;
                let new = NewCoordinator { group, transactional_id, broker };
                move_coordinator(endpoint.control()?, &new).await
            }
            Command::Run(run) => script::run(run.endpoint.control()?, &run.file).await,
        }
    })
}

async fn print_faults(list: &List) -> Result<(), Failure> {
    let FaultList { faults } = list.endpoint.control()?.send(Method::GET, "/v1/faults").await?;
    if list.json {
        return output::line(serde_json::to_string(&faults).map_err(Failure::new)?);
    }
    if faults.is_empty() {
        output::note("there are no faults");
        return Ok(());
    }
    let rows: Vec<Vec<String>> = faults.iter().map(row).collect::<Result<_, _>>()?;
    output::print(&output::table(&["NAME", "KIND", "HITS", "SEED", "FAULT"], &rows))
}

fn row(fault: &ActiveFault) -> Result<Vec<String>, Failure> {
    let mut content = serde_json::to_value(&fault.fault).map_err(Failure::new)?;
    if let Some(fields) = content.as_object_mut() {
        fields.remove("kind");
    }
    let ActiveFault { name, seed, hits, .. } = fault;
    let kind = fault.fault.kind().to_owned();
    Ok(vec![name.clone(), kind, hits.to_string(), seed.to_string(), content.to_string()])
}

async fn print_added(add: &Add) -> Result<(), Failure> {
    let (common, fault) = add.fault();
    let injection =
        object([("name", json!(common.name)), ("seed", json!(common.seed)), ("fault", fault)]);
    let control = common.endpoint.control()?;
    let added: ActiveFault = control.send_with(Method::POST, "/v1/faults", &injection).await?;
    output::line(added.name)
}

async fn print_lifted(lift: &Lift) -> Result<(), Failure> {
    let control = lift.endpoint.control()?;
    if lift.all {
        let Lifted { lifted } = control.send(Method::DELETE, "/v1/faults").await?;
        output::note(format_args!("{} lifted", output::count(lifted, "fault")));
        return Ok(());
    }
    let mut failures = Vec::new();
    for name in &lift.names {
        if let Err(failure) = lift_one(control, name).await {
            failures.push(failure);
        }
    }
    Failure::all(failures)
}

/// Lifts a fault.
async fn lift_one(control: Control, name: &str) -> Result<(), Failure> {
    let path = format!("/v1/faults/{}", segment(name)?);
    let Lifted { .. } = control.send(Method::DELETE, &path).await?;
    Ok(())
}

/// Lifts a fault that may have ended: a freeze ends with the process of its broker.
async fn lift_if_present(control: Control, name: &str) -> Result<(), Failure> {
    let path = format!("/v1/faults/{}", segment(name)?);
    match control.exchange::<Lifted>(Method::DELETE, &path, None).await? {
        Err(refused) if refused.status != StatusCode::NOT_FOUND => Err(refused.into()),
        _ => Ok(()),
    }
}

/// A name as a part of a path. Names of faults and topics need no escapes.
fn segment(name: &str) -> Result<&str, Failure> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    match !name.is_empty() && name.bytes().all(plain) {
        true => Ok(name),
        false => Err(Failure::new(format!("'{name}' has characters that no name has"))),
    }
}

/// Makes a broker forget its fetch sessions. Returns how many there were.
async fn expire_fetch_sessions(control: Control, broker: i32) -> Result<usize, Failure> {
    let path = format!("/v1/brokers/{broker}/expire-fetch-sessions");
    let Expired { expired } = control.send(Method::POST, &path).await?;
    Ok(expired)
}

/// Makes the replicas of a partition forget its producers. Returns how many the leader forgot.
async fn expire_producer_ids(
    control: Control,
    topic: &str,
    partition: i32,
) -> Result<usize, Failure> {
    let topic = segment(topic)?;
    let path = format!("/v1/topics/{topic}/partitions/{partition}/expire-producer-ids");
    let Expired { expired } = control.send(Method::POST, &path).await?;
    Ok(expired)
}

async fn move_leader(
    control: Control,
    topic: &str,
    partition: i32,
    broker: i32,
) -> Result<(), Failure> {
    let path = format!("/v1/topics/{}/partitions/{partition}/leader", segment(topic)?);
    let NewLeader { .. } = control.send_with(Method::PUT, &path, &NewLeader { broker }).await?;
    Ok(())
}

async fn move_coordinator(control: Control, new: &NewCoordinator) -> Result<(), Failure> {
    let NewCoordinator { .. } = control.send_with(Method::PUT, "/v1/coordinator", new).await?;
    Ok(())
}

async fn change(on: &OnBroker, action: &str) -> Result<(), Failure> {
    change_broker(on.endpoint.control()?, on.broker, action).await
}

/// Kills, stops or restarts a broker.
async fn change_broker(control: Control, broker: i32, action: &str) -> Result<(), Failure> {
    let path = format!("/v1/brokers/{broker}/{action}");
    let Brokers { .. } = control.send(Method::POST, &path).await?;
    Ok(())
}

fn print_brokers(Brokers { brokers }: &Brokers, json: bool) -> Result<(), Failure> {
    if json {
        return output::line(serde_json::to_string(brokers).map_err(Failure::new)?);
    }
    let row = |broker: &BrokerState| {
        let BrokerState { id, address, running, live } = broker;
        vec![id.to_string(), address.clone(), running.to_string(), live.to_string()]
    };
    let rows: Vec<_> = brokers.iter().map(row).collect();
    output::print(&output::table(&["BROKER", "ADDRESS", "RUNNING", "LIVE"], &rows))
}
