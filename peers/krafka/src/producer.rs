//! The commands of a producer.

use krafka::Record;
use krafka::producer::{DeliveryHandle, Producer, TransactionalProducer};
use tokio::task::JoinSet;

use crate::args::Args;
use crate::settings::{self, property};
use crate::{Failure, commands, line, reply, say};

pub async fn run(args: &Args) -> Result<(), Failure> {
    match property(args, "transactional.id") {
        Some(id) => transact(args, id).await,
        None => produce(args).await,
    }
}

/// Building a producer asks the brokers for a producer id, so the first record that needs the producer builds it: where
/// that fails, the record fails.
async fn produce(args: &Args) -> Result<(), Failure> {
    let mut producer: Option<Producer> = None;
    let mut outcomes = Outcomes::default();
    for command in commands() {
        let (word, rest) = command.split_once(' ').unwrap_or((&command, ""));
        match (word, &producer) {
            ("send", _) => {
                let queued = match built(args, &mut producer).await {
                    Ok(producer) => producer.enqueue(record(args, rest)?).await,
                    Err(error) => Err(error),
                };
                outcomes.await_one(queued);
            }
            ("flush", Some(producer)) => reply(producer.flush().await),
            ("close", Some(producer)) => {
                let closed = producer.close().await;
                outcomes.printed().await;
                reply(closed);
                return Ok(());
            }
            ("close", None) => {
                outcomes.printed().await;
                say("done");
                return Ok(());
            }
            ("flush", None) => say("done"),
            _ => return Err(format!("unknown command {word}").into()),
        }
    }
    Ok(())
}

async fn built<'a>(
    args: &Args,
    producer: &'a mut Option<Producer>,
) -> krafka::Result<&'a Producer> {
    if producer.is_none() {
        let kafka = settings::connect(args).await?;
        *producer = Some(settings::producer(args, &kafka).build().await?);
    }
    Ok(producer.as_ref().expect("it was built"))
}

async fn transact(args: &Args, id: &str) -> Result<(), Failure> {
    let kafka = settings::connect(args).await?;
    let mut producer: Option<TransactionalProducer> = None;
    let mut outcomes = Outcomes::default();
    for command in commands() {
        let (word, rest) = command.split_once(' ').unwrap_or((&command, ""));
        match (word, &producer) {
            ("init", _) => {
                let built = settings::producer(args, &kafka).build_transactional(id).await;
                reply(built.map(|built| producer = Some(built)));
            }
            ("begin", Some(producer)) => reply(producer.begin()),
            ("send", Some(producer)) => {
                outcomes.await_one(producer.enqueue(record(args, rest)?).await);
            }
            ("flush", Some(producer)) => reply(producer.flush().await),
            ("commit", Some(producer)) => reply(producer.commit().await),
            ("abort", Some(producer)) => reply(producer.abort().await),
            ("close", Some(producer)) => {
                let closed = producer.close().await;
                outcomes.printed().await;
                reply(closed);
                return Ok(());
            }
            _ => return Err(format!("{word} is unknown or precedes init").into()),
        }
    }
    Ok(())
}

fn record(args: &Args, rest: &str) -> Result<Record, Failure> {
    let (partition, value) = rest.split_once(' ').ok_or("send needs a partition and a value")?;
    let record = Record::new(&args.topic, value.to_owned());
    Ok(match partition.parse()? {
        chosen if chosen >= 0 => record.partition(chosen),
        _ => record,
    })
}

/// Prints the outcome of each record when it is known.
#[derive(Default)]
struct Outcomes {
    sent: usize,
    tasks: JoinSet<()>,
}

impl Outcomes {
    fn await_one(&mut self, queued: krafka::Result<DeliveryHandle>) {
        let number = self.sent;
        self.sent += 1;
        let outcome = async move { queued?.await };
        self.tasks.spawn(async move {
            match outcome.await {
                Ok(written) => {
                    let (partition, offset) = (written.partition, written.offset);
                    say(&format!("acknowledged {number} {partition} {offset}"));
                }
                Err(error) => say(&format!("failed {number} {}", line(&error))),
            }
        });
    }

    /// Returns once every outcome is printed. The reply to `close` ends the process, so it comes later.
    async fn printed(self) {
        self.tasks.join_all().await;
    }
}
