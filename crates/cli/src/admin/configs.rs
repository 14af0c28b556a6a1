//! `curtail configs`.

use clap::{Args, Subcommand};
use curtail::{
    Admin,
    admin::{ConfigChange, ConfigResource, ConfigSource, Mode},
};

use super::{Cell, Format, admin, block_on, report};
use crate::{
    failure::Failure,
    output,
    settings::{ClientArguments, Property, property},
};

/// Subcommands of `curtail configs`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Prints settings that differ from Kafka's defaults, or all.
    Describe(Describe),
    /// Changes settings.
    Alter(Alter),
}

#[derive(Debug, Args)]
pub(crate) struct Describe {
    #[command(flatten)]
    client: ClientArguments,
    #[command(flatten)]
    of: Resources,
    #[command(flatten)]
    format: Format,
    /// Print all settings, including those with Kafka's defaults.
    #[arg(long)]
    all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Alter {
    #[command(flatten)]
    client: ClientArguments,
    #[command(flatten)]
    of: Resources,
    /// Set a value. May be given several times.
    #[arg(long, alias = "add-config", value_name = "NAME=VALUE", value_parser = property)]
    add: Vec<Property>,
    /// Append a value to a list setting. May be given several times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = property)]
    append: Vec<Property>,
    /// Remove a value from a list setting. May be given several times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = property)]
    subtract: Vec<Property>,
    /// Remove a setting, so that its default applies. May be given several times.
    #[arg(long, alias = "delete-config", value_name = "NAME")]
    delete: Vec<String>,
    /// Validate the change without applying it.
    #[arg(long)]
    dry_run: bool,
}

/// Resources whose settings are described or altered.
#[derive(Debug, Args)]
struct Resources {
    /// A topic. May be given several times.
    #[arg(short, long = "topic", value_name = "TOPIC")]
    topics: Vec<String>,
    /// A broker's id. May be given several times.
    #[arg(long = "broker", value_name = "ID")]
    brokers: Vec<i32>,
    /// Cluster-wide defaults of all brokers.
    #[arg(long, alias = "broker-defaults")]
    all_brokers: bool,
    /// A group. May be given several times.
    #[arg(long = "group", value_name = "GROUP")]
    groups: Vec<String>,
}

impl Resources {
    fn at_least_one(self) -> Result<Vec<ConfigResource>, Failure> {
        let topics = self.topics.into_iter().map(ConfigResource::Topic);
        let brokers = self.brokers.into_iter().map(ConfigResource::Broker);
        let all = self.all_brokers.then_some(ConfigResource::AllBrokers);
        let groups = self.groups.into_iter().map(ConfigResource::Group);
        let resources: Vec<_> = topics.chain(brokers).chain(all).chain(groups).collect();
        if resources.is_empty() {
            let text = "no resource given; use --topic, --broker, --all-brokers or --group";
            return Err(Failure::new(text));
        }
        Ok(resources)
    }
}

/// Runs `curtail configs`.
pub(crate) fn run(command: Command) -> Result<(), Failure> {
    block_on(async {
        match command {
            Command::Describe(arguments) => describe(arguments).await,
            Command::Alter(arguments) => alter(arguments).await,
        }
    })
}

async fn describe(arguments: Describe) -> Result<(), Failure> {
    let admin = admin(&arguments.client)?;
    let resources = arguments.of.at_least_one()?;
    let mut rows = Vec::new();
    let all_known = report(admin.describe_configs(&resources).await?, |resource, mut settings| {
        settings.sort_by(|a, b| a.name.cmp(&b.name));
        let shown = settings
            .into_iter()
            .filter(|setting| arguments.all || setting.source != ConfigSource::Default);
        rows.extend(shown.map(|setting| {
            let value = match setting.sensitive {
                true => Some("(sensitive)".to_owned()),
                false => setting.value,
            };
            let source = setting.source.name();
            vec![Cell::from(resource.to_string()), setting.name.into(), value.into(), source.into()]
        }));
        Ok(())
    });
    // An error explains why there are no rows.
    if arguments.format.json || !rows.is_empty() || all_known.is_ok() {
        let none = "no setting differs from Kafka's defaults; --all prints every setting";
        arguments.format.rows(&["RESOURCE", "NAME", "VALUE", "SOURCE"], rows, none)?;
    }
    all_known
}

async fn alter(arguments: Alter) -> Result<(), Failure> {
    let admin = admin(&arguments.client)?;
    let resources = arguments.of.at_least_one()?;
    are_known(&admin, &resources, &arguments.delete).await?;
    let pairs = |properties: Vec<Property>, change: fn(String, String) -> ConfigChange| {
        properties.into_iter().map(move |Property { name, value }| change(name, value))
    };
    let changes: Vec<ConfigChange> = pairs(arguments.add, ConfigChange::Set)
        .chain(pairs(arguments.append, ConfigChange::Append))
        .chain(pairs(arguments.subtract, ConfigChange::Subtract))
        .chain(arguments.delete.into_iter().map(ConfigChange::Delete))
        .collect();
    if changes.is_empty() {
        let text =
            "no change given; use for example --add retention.ms=3600000 or --delete retention.ms";
        return Err(Failure::new(text));
    }
    let wanted: Vec<_> = resources.into_iter().map(|at| (at, changes.clone())).collect();
    let (mode, done) = match arguments.dry_run {
        true => (Mode::Validate, "Would change"),
        false => (Mode::Apply, "Changed"),
    };
    report(admin.incremental_alter_configs(&wanted, mode).await?, |resource, ()| {
        output::line(format_args!("{done} settings of {resource}."))
    })
}

/// Fails if a resource lacks one of these settings. Brokers accept the deletion of a setting that does not exist. An error
/// of the description is left to the change.
async fn are_known(
    admin: &Admin,
    resources: &[ConfigResource],
    settings: &[String],
) -> Result<(), Failure> {
    // The description of the cluster-wide defaults has only those that were set.
    let resources: Vec<_> =
        resources.iter().filter(|at| **at != ConfigResource::AllBrokers).cloned().collect();
    if settings.is_empty() || resources.is_empty() {
        return Ok(());
    }
    for (resource, described) in admin.describe_configs(&resources).await? {
        let Ok(known) = described else { continue };
        let is_unknown = |name: &&String| known.iter().all(|setting| setting.name != **name);
        if let Some(name) = settings.iter().find(is_unknown) {
            let text = "`curtail configs describe --all` prints those it has";
            return Err(Failure::new(format!("{resource} has no setting {name}; {text}")));
        }
    }
    Ok(())
}
