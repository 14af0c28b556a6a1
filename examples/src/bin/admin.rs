//! Creates a topic, changes a setting, describes both, and deletes the topic.
#![allow(clippy::print_stdout)]

use std::error::Error;

use curtail::{
    Admin, AdminConfig,
    admin::{ConfigChange, ConfigResource, Mode, NewTopic},
};
use curtail_examples::Brokers;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let brokers = Brokers::of_this_program().await?;
    let admin = Admin::new(AdminConfig::new(brokers.bootstrap()))?;

    let topic = NewTopic::new("ledger").partitions(6).config("retention.ms", "86400000");
    // Each call returns a result for each topic.
    for (name, created) in admin.create_topics(&[topic]).await? {
        created?;
        println!("created {name}");
    }
    for (_, topic) in admin.describe_topics(&["ledger"]).await? {
        println!("{} partitions", topic?.partitions.len());
    }

    let ledger = ConfigResource::Topic("ledger".into());
    let changes = vec![ConfigChange::set("retention.ms", "3600000")];
    for (_, changed) in
        admin.incremental_alter_configs(&[(ledger.clone(), changes)], Mode::Apply).await?
    {
        changed?;
    }
    for (_, settings) in admin.describe_configs(&[ledger]).await? {
        let settings = settings?;
        let retention = settings.iter().find(|setting| setting.name == "retention.ms");
        println!("retention.ms={:?}", retention.and_then(|setting| setting.value.as_deref()));
    }

    for (name, deleted) in admin.delete_topics(&["ledger"]).await? {
        deleted?;
        println!("deleted {name}");
    }
    Ok(())
}
