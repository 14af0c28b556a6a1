//! `curtail quorum`: kafka-metadata-quorum.

use clap::{Args, Subcommand};
use curtail::admin::{QuorumDescription, QuorumReplica};
use serde_json::json;

use super::{Cell, Format, admin, block_on};
use crate::{failure::Failure, output, settings::ClientArguments};

/// Subcommands of `curtail quorum`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Prints the state of the metadata quorum, or its replicas.
    Describe(Describe),
}

#[derive(Debug, Args)]
pub(crate) struct Describe {
    #[command(flatten)]
    client: ClientArguments,
    #[command(flatten)]
    format: Format,
    /// Print leader, epoch, high watermark and lag, which is the default.
    #[arg(long, conflicts_with = "replication")]
    status: bool,
    /// Print the replicas of the metadata log with their lag.
    #[arg(long)]
    replication: bool,
}

/// Runs `curtail quorum`.
pub(crate) fn run(command: Command) -> Result<(), Failure> {
    let Command::Describe(arguments) = command;
    block_on(async {
        let admin = admin(&arguments.client)?;
        let quorum = admin.describe_metadata_quorum().await?;
        if arguments.replication {
            let columns = ["NODE", "LOG-END-OFFSET", "LAG", "LAST-CAUGHT-UP", "STATUS"];
            return arguments.format.rows(&columns, replication(&quorum), "no replicas");
        }
        let cluster = admin.describe_cluster().await?.cluster_id;
        let status = Status::of(&quorum);
        let ids =
            |replicas: &[QuorumReplica]| replicas.iter().map(|one| one.id).collect::<Vec<_>>();
        let (voters, observers) = (ids(&quorum.voters), ids(&quorum.observers));
        if arguments.format.json {
            return output::line(json!({
                "cluster_id": cluster,
                "leader": quorum.leader,
                "leader_epoch": quorum.leader_epoch,
                "high_watermark": quorum.high_watermark,
                "max_follower_lag": status.lag,
                "max_follower_lag_time_ms": status.lag_ms,
                "voters": voters,
                "observers": observers,
            }));
        }
        let cluster = Cell::from(cluster);
        let (voters, observers) = (Cell::Numbers(voters), Cell::Numbers(observers));
        let lag_ms = status.lag_ms.unwrap_or(-1);
        // The lines of kafka-metadata-quorum.
        output::print(&format!(
            "ClusterId:              {cluster}\n\
             LeaderId:               {}\n\
             LeaderEpoch:            {}\n\
             HighWatermark:          {}\n\
             MaxFollowerLag:         {}\n\
             MaxFollowerLagTimeMs:   {lag_ms}\n\
             CurrentVoters:          [{voters}]\n\
             CurrentObservers:       [{observers}]\n",
            quorum.leader, quorum.leader_epoch, quorum.high_watermark, status.lag
        ))
    })
}

/// The lag of the voter that is furthest behind, as Kafka's tool computes it.
struct Status {
    lag: i64,
    /// `None` if the leader does not know it.
    lag_ms: Option<i64>,
}

impl Status {
    fn of(quorum: &QuorumDescription) -> Self {
        let leader = quorum.voters.iter().find(|voter| voter.id == quorum.leader);
        let last = quorum.voters.iter().min_by_key(|voter| voter.log_end_offset);
        let Some((leader, last)) = leader.zip(last) else { return Self { lag: 0, lag_ms: None } };
        if leader.log_end_offset == last.log_end_offset {
            return Self { lag: 0, lag_ms: Some(0) };
        }
        Self {
            lag: leader.log_end_offset - last.log_end_offset,
            lag_ms: leader.last_caught_up.zip(last.last_caught_up).map(|(of, at)| of - at),
        }
    }
}

fn replication(quorum: &QuorumDescription) -> Vec<Vec<Cell>> {
    let end = quorum.voters.iter().find(|voter| voter.id == quorum.leader);
    let end = end.map(|leader| leader.log_end_offset);
    let row = |replica: &QuorumReplica, status: &str| {
        vec![
            replica.id.into(),
            replica.log_end_offset.into(),
            end.map(|end| end - replica.log_end_offset).into(),
            replica.last_caught_up.into(),
            status.into(),
        ]
    };
    // As in Kafka's tool: the leader, the other voters, the observers.
    let leader = quorum.voters.iter().filter(|voter| voter.id == quorum.leader);
    let followers = quorum.voters.iter().filter(|voter| voter.id != quorum.leader);
    leader
        .map(|replica| row(replica, "Leader"))
        .chain(followers.map(|replica| row(replica, "Follower")))
        .chain(quorum.observers.iter().map(|replica| row(replica, "Observer")))
        .collect()
}
