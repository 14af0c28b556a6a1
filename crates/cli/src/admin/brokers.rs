//! `curtail brokers`: kafka-cluster.

use clap::{Args, Subcommand};
use curtail::admin::BrokerDescription;
use serde_json::json;

use super::{Cell, Format, admin, block_on};
use crate::{failure::Failure, output, settings::ClientArguments};

/// Subcommands of `curtail brokers`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Lists the live brokers with their endpoints.
    #[command(alias = "list-endpoints")]
    List(Show),
    /// Prints the cluster's id.
    ClusterId(Show),
    /// Removes the registration of a broker that has been shut down for good.
    Unregister(Unregister),
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    #[command(flatten)]
    client: ClientArguments,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct Unregister {
    #[command(flatten)]
    client: ClientArguments,
    /// Id of the broker.
    #[arg(value_name = "ID", conflicts_with = "flagged", required_unless_present = "flagged")]
    bare: Option<i32>,
    /// Id of the broker.
    #[arg(short = 'i', long = "id", value_name = "ID")]
    flagged: Option<i32>,
}

/// Runs `curtail brokers`.
pub(crate) fn run(command: Command) -> Result<(), Failure> {
    block_on(async {
        match command {
            Command::List(arguments) => list(&arguments).await,
            Command::ClusterId(arguments) => cluster_id(&arguments).await,
            Command::Unregister(arguments) => unregister(&arguments).await,
        }
    })
}

const COLUMNS: &[&str] = &["ID", "HOST", "PORT", "RACK"];

fn row(broker: BrokerDescription) -> Vec<Cell> {
    vec![broker.id.into(), broker.host.into(), i32::from(broker.port).into(), broker.rack.into()]
}

async fn list(arguments: &Show) -> Result<(), Failure> {
    let cluster = admin(&arguments.client)?.describe_cluster().await?;
    let rows = cluster.brokers.into_iter().map(row).collect();
    arguments.format.rows(COLUMNS, rows, "no live brokers")
}

/// Runs `curtail cluster describe`.
pub(crate) fn describe(arguments: &Show) -> Result<(), Failure> {
    block_on(async {
        let cluster = admin(&arguments.client)?.describe_cluster().await?;
        let rows: Vec<Vec<Cell>> = cluster.brokers.into_iter().map(row).collect();
        if arguments.format.json {
            return output::line(json!({
                "cluster_id": cluster.cluster_id,
                "controller": cluster.controller,
                "brokers": Format::objects(COLUMNS, rows),
            }));
        }
        let controller = cluster.controller.map(|id| id.to_string());
        output::line(format_args!("Cluster ID: {}", cluster.cluster_id.as_deref().unwrap_or("-")))?;
        output::line(format_args!("Controller: {}", controller.as_deref().unwrap_or("-")))?;
        arguments.format.rows(COLUMNS, rows, "no live brokers")
    })
}

async fn cluster_id(arguments: &Show) -> Result<(), Failure> {
    let id = admin(&arguments.client)?.describe_cluster().await?.cluster_id;
    if arguments.format.json {
        return output::line(json!({ "cluster_id": id }));
    }
    match id {
        Some(id) => output::line(format_args!("Cluster ID: {id}")),
        None => {
            output::note("the cluster has no id");
            Ok(())
        }
    }
}

async fn unregister(arguments: &Unregister) -> Result<(), Failure> {
    // clap requires one of them.
    let Some(id) = arguments.bare.or(arguments.flagged) else { return Ok(()) };
    admin(&arguments.client)?.unregister_broker(id).await?;
    output::line(format_args!("Broker {id} is no longer registered."))
}
