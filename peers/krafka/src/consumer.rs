//! The commands of a consumer.

use std::time::Duration;

use krafka::consumer::Consumer;

use crate::args::Args;
use crate::settings::{self, property};
use crate::{Failure, commands, reply, say};

pub async fn run(args: &Args) -> Result<(), Failure> {
    let kafka = settings::connect(args).await?;
    let consumer = settings::consumer(args, &kafka).await?;
    for command in commands() {
        let words: Vec<&str> = command.split(' ').collect();
        match words[..] {
            ["close"] => {
                reply(consumer.close().await);
                return Ok(());
            }
            ["assign", _] if property(args, "group.id").is_some() => {
                say("unsupported a consumer with a group cannot be assigned partitions");
                return Ok(());
            }
            _ => reply(obey(&consumer, &args.topic, &words).await?),
        }
    }
    Ok(())
}

async fn obey(
    consumer: &Consumer,
    topic: &str,
    words: &[&str],
) -> Result<krafka::Result<()>, Failure> {
    Ok(match *words {
        ["subscribe"] => consumer.subscribe([topic]).await,
        ["unsubscribe"] => consumer.unsubscribe().await,
        ["assign", count] => consumer.assign(topic, (0..count.parse()?).collect()).await,
        ["seek", index, offset] => consumer.seek(topic, index.parse()?, offset.parse()?).await,
        ["pause", index] => {
            consumer.pause(topic, &[index.parse()?]).await;
            Ok(())
        }
        ["resume", index] => {
            consumer.resume(topic, &[index.parse()?]).await;
            Ok(())
        }
        ["poll", wait] => poll(consumer, topic, Duration::from_millis(wait.parse()?)).await,
        ["commit"] => consumer.commit().await,
        _ => return Err(format!("unknown command {words:?}").into()),
    })
}

async fn poll(consumer: &Consumer, topic: &str, wait: Duration) -> krafka::Result<()> {
    for record in consumer.poll(wait).await? {
        let value = String::from_utf8_lossy(record.value.as_deref().unwrap_or_default());
        say(&format!("record {} {} {value}", record.partition, record.offset));
    }
    let mut indexes = consumer.assignment().await.remove(topic).unwrap_or_default();
    indexes.sort_unstable();
    let indexes: Vec<_> = indexes.iter().map(ToString::to_string).collect();
    say(format!("assignment {}", indexes.join(" ")).trim_end());
    Ok(())
}
