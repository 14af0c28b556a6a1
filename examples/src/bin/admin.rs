//! Creates a topic, changes a setting, describes both, and deletes the topic.
#![allow(clippy::print_stdout)]

use std::time::Duration;

use curtail::{
    Admin, AdminConfig, Error, Result,
    admin::{ConfigChange, ConfigResource, Mode, NewTopic},
};
use curtail_examples::Brokers;

/// Repeats a question until its answer counts. Brokers learn of a change a moment after the controller has made it.
async fn until<T>(ask: impl AsyncFn() -> Result<Option<T>>) -> Result<T> {
    loop {
        if let Some(answer) = ask().await? {
            return Ok(answer);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let brokers = Brokers::of_this_program().await?;
    let admin = Admin::new(AdminConfig::new(brokers.bootstrap()))?;

    let topic = NewTopic::new("ledger").partitions(6).config("retention.ms", "86400000");
    // Each call returns a result for each topic.
    for (name, created) in admin.create_topics(&[topic]).await? {
        created?;
        println!("created {name}");
    }
    let topic = until(async || match admin.describe_topics(&["ledger"]).await?.remove(0).1 {
        Err(Error::UnknownTopic(_)) => Ok(None),
        described => described.map(Some),
    });
    println!("{} partitions", topic.await?.partitions.len());

    let ledger = ConfigResource::Topic("ledger".into());
    let changes = vec![ConfigChange::set("retention.ms", "3600000")];
    for (_, changed) in
        admin.incremental_alter_configs(&[(ledger.clone(), changes)], Mode::Apply).await?
    {
        changed?;
    }
    let retention = until(async || {
        let settings = admin.describe_configs(std::slice::from_ref(&ledger)).await?.remove(0).1?;
        let retention = settings.into_iter().find(|setting| setting.name == "retention.ms");
        let value = retention.and_then(|setting| setting.value);
        Ok(value.filter(|value| value == "3600000"))
    });
    println!("retention.ms={}", retention.await?);

    for (name, deleted) in admin.delete_topics(&["ledger"]).await? {
        deleted?;
        println!("deleted {name}");
    }
    Ok(())
}
