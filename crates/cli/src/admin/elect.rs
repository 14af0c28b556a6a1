//! `curtail elect`.

use clap::{Args, ValueEnum};
use curtail::admin::{Elected, Election};

use super::{Selections, TopicSelection, admin, block_on, partitions_of, report};
use crate::{failure::Failure, output, settings::ClientArguments};

/// Arguments of `curtail elect`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    client: ClientArguments,
    /// Election type: preferred replica, or an out-of-sync one if none in sync is alive (loses records).
    #[arg(long, value_enum, ignore_case = true, default_value_t = Kind::Preferred)]
    election_type: Kind,
    #[command(flatten)]
    topics: Selections,
    /// All partitions of all topics.
    #[arg(long, alias = "all-topic-partitions", conflicts_with_all = ["bare", "flagged"])]
    all_topics: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    Preferred,
    Unclean,
}

/// Runs `curtail elect`.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    block_on(async {
        let admin = admin(&arguments.client)?;
        let topics = match arguments.all_topics {
            false => arguments.topics.all(),
            true => {
                let all = admin.list_topics().await?.into_iter();
                all.map(|topic| TopicSelection { topic: topic.name, partitions: None }).collect()
            }
        };
        if topics.is_empty() && !arguments.all_topics {
            let text = "no partitions given; use for example --topic payments:0,1 or --all-topics";
            return Err(Failure::new(text));
        }
        let partitions = partitions_of(&admin, &topics).await?;
        let (election, already) = match arguments.election_type {
            Kind::Preferred => (Election::Preferred, "its preferred replica already leads"),
            Kind::Unclean => (Election::Unclean, "it has a leader"),
        };
        report(admin.elect_leaders(election, &partitions).await?, |at, elected| match elected {
            Elected::Already => output::line(format_args!("Nothing changed for {at}: {already}.")),
            _ => output::line(format_args!("Elected the leader of {at}.")),
        })
    })
}
