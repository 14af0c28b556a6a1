//! Obeys commands on standard input and prints every reply, for cases that script the network (see `museum/`).

use std::io::BufRead as _;
use std::time::Duration;

use confluent_kafka::common::{Error, TopicPartition};
use confluent_kafka::consumer::Consumer as _;
use confluent_kafka::producer::{Producer as _, ProducerRecord, callback};

use crate::Failure;
use crate::args::Args;
use crate::membership::say;
use crate::settings::{self, Consumer, Producer};

pub async fn run(args: &Args) -> Result<(), Failure> {
    say(&format!("version {} {}", settings::CLIENT, settings::version()));
    if args.role == "producer" {
        return produce(args).await;
    }
    let is_set = |name: &str| args.properties.iter().any(|(known, _)| known == name);
    if is_set("group.id") && !is_set("group.protocol") {
        // The classic protocol is the default of Kafka's clients, and so of the cases.
        say("unsupported no option offers the classic group protocol");
        return Ok(());
    }
    consume(args).await
}

/// Reading blocks this thread only: the client's tasks run on the others.
fn commands() -> impl Iterator<Item = String> {
    std::io::stdin().lock().lines().map_while(Result::ok)
}

fn line(error: &impl std::fmt::Display) -> String {
    error.to_string().replace('\n', " ")
}

fn reply(outcome: Result<(), Error>) {
    match outcome {
        Ok(()) => say("done"),
        Err(error) => say(&format!("error {}", line(&error))),
    }
}

// ---- producer ------------------------------------------------------------------------------------

async fn produce(args: &Args) -> Result<(), Failure> {
    let producer = settings::producer(args, &[])?;
    let mut sent = 0;
    for command in commands() {
        let (word, rest) = command.split_once(' ').unwrap_or((&command, ""));
        match word {
            "send" => {
                send(&producer, &args.topic, sent, rest).await?;
                sent += 1;
            }
            "flush" => reply(producer.flush().await),
            "init" => reply(producer.init_transactions().await),
            "begin" => reply(producer.begin_transaction()),
            "commit" => reply(producer.commit_transaction().await),
            "abort" => reply(producer.abort_transaction().await),
            "close" => {
                reply(producer.close().await);
                return Ok(());
            }
            _ => return Err(format!("unknown command {word}").into()),
        }
    }
    Ok(())
}

async fn send(producer: &Producer, topic: &str, number: usize, rest: &str) -> Result<(), Failure> {
    let (partition, value) = rest.split_once(' ').ok_or("send needs a partition and a value")?;
    let partition = Some(partition.parse()?).filter(|partition| *partition >= 0);
    let record = ProducerRecord::with_partition_key(
        topic.to_owned(),
        partition,
        None,
        Some(value.as_bytes()),
    )?;
    let done = callback::new(move |written, error| match (written, error) {
        (_, Some(error)) => say(&format!("failed {number} {}", line(error))),
        (Some(written), None) => {
            let (partition, offset) = (written.partition(), written.offset());
            say(&format!("acknowledged {number} {partition} {offset}"));
        }
        (None, None) => say(&format!("failed {number} neither metadata nor an error")),
    });
    if let Err(error) = Producer::send(producer, record, Some(Box::new(done))).await {
        // The callback is not called for a record that is refused at once.
        say(&format!("failed {number} {}", line(&error)));
    }
    Ok(())
}

// ---- consumer ------------------------------------------------------------------------------------

async fn consume(args: &Args) -> Result<(), Failure> {
    let mut consumer = settings::consumer(args, &[])?;
    for command in commands() {
        let words: Vec<&str> = command.split(' ').collect();
        if words == ["close"] {
            reply(consumer.close().await);
            return Ok(());
        }
        let outcome = obey(&mut consumer, &args.topic, &words).await?;
        reply(outcome);
    }
    Ok(())
}

async fn obey(
    consumer: &mut Consumer,
    topic: &str,
    words: &[&str],
) -> Result<Result<(), Error>, Failure> {
    let partition = |index: &str| -> Result<TopicPartition, Failure> {
        Ok(TopicPartition::new(topic, index.parse()?))
    };
    Ok(match *words {
        ["subscribe"] => consumer.subscribe_with_topics(vec![topic.to_owned()]).await,
        ["unsubscribe"] => consumer.unsubscribe().await,
        ["assign", count] => {
            let all: Vec<_> =
                (0..count.parse()?).map(|index| TopicPartition::new(topic, index)).collect();
            match consumer.assign(all.clone()).await {
                Ok(()) => consumer.seek_to_beginning(&all).await,
                failed => failed,
            }
        }
        ["seek", index, offset] => {
            consumer.seek_with_offset(partition(index)?, offset.parse()?).await
        }
        ["pause", index] => consumer.pause(&[partition(index)?]).await,
        ["resume", index] => consumer.resume(&[partition(index)?]).await,
        ["poll", wait] => poll(consumer, Duration::from_millis(wait.parse()?)).await,
        ["commit"] => consumer.commit_sync().await,
        _ => return Err(format!("unknown command {words:?}").into()),
    })
}

async fn poll(consumer: &mut Consumer, wait: Duration) -> Result<(), Error> {
    for record in &consumer.poll(wait).await? {
        let value = String::from_utf8_lossy(record.value().map_or(&[][..], Vec::as_slice));
        say(&format!("record {} {} {value}", record.partition(), record.offset()));
    }
    let mut indexes: Vec<_> = consumer.assignment().iter().map(TopicPartition::partition).collect();
    indexes.sort_unstable();
    let indexes: Vec<_> = indexes.iter().map(ToString::to_string).collect();
    say(format!("assignment {}", indexes.join(" ")).trim_end());
    Ok(())
}
