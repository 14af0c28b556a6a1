//! `curtail configs`.

mod clients;

use clap::{Args, Subcommand};
use curtail::{
    Admin,
    admin::{ConfigChange, ConfigResource, ConfigSource, Mode},
};

use self::clients::Clients;
use super::{Cell, Format, admin, block_on, report};
use crate::{
    failure::Failure,
    output,
    settings::{ClientArguments, Property, property},
};

/// Subcommands of `curtail configs`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Prints settings that differ from Kafka's defaults, or all; quotas and SCRAM credentials.
    Describe(Describe),
    /// Changes settings, quotas and SCRAM credentials.
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
    /// All quotas of users, clients and addresses, and the SCRAM credentials of all users. Cannot be combined with resources.
    #[arg(long)]
    all_quotas: bool,
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
    /// Set values, separated by commas. A value with commas is in square brackets: `cleanup.policy=[compact,delete]`.
    /// For a user, `SCRAM-SHA-512=[iterations=8192,password=SECRET]` sets a password.
    #[arg(long, visible_alias = "add-config", value_name = "NAME=VALUE,...", value_parser = additions)]
    add: Vec<Additions>,
    /// Append a value to a list setting. May be given several times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = property)]
    append: Vec<Property>,
    /// Remove a value from a list setting. May be given several times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = property)]
    subtract: Vec<Property>,
    /// Remove settings, separated by commas, so that their defaults apply.
    #[arg(long, visible_alias = "delete-config", value_name = "NAME,...", value_delimiter = ',')]
    delete: Vec<String>,
    /// Validate the change without applying it.
    #[arg(long)]
    dry_run: bool,
}

/// The settings of one `--add`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Additions(Vec<Property>);

/// Parses kafka-configs' syntax: `a=1,b=[x,y]`. Commas in square brackets belong to the value, but the brackets around it
/// do not. Errors do not quote values, which may be passwords.
fn additions(text: &str) -> Result<Additions, String> {
    let mut pieces = vec![String::new()];
    let mut bracketed = false;
    for c in text.chars() {
        bracketed = c == '[' || (bracketed && c != ']');
        match pieces.last_mut() {
            Some(piece) if c != ',' || bracketed => piece.push(c),
            _ => pieces.push(String::new()),
        }
    }
    if bracketed {
        return Err("expected a closing square bracket".into());
    }
    let mut all: Vec<Property> = Vec::new();
    for piece in pieces {
        let Ok(Property { name, value }) = property(&piece) else {
            // After a password, other names may be parts of it.
            let password = all.iter().find(|added| clients::mechanism(&added.name).is_some());
            return Err(match password.or(all.last()) {
                Some(Property { name, .. }) => {
                    format!("expected name=value after each comma; {}", brackets(name))
                }
                None => "expected name=value, several separated by commas".into(),
            });
        };
        let value = value.trim();
        let inner = value.strip_prefix('[').and_then(|value| value.strip_suffix(']'));
        // Other brackets are a part of the value.
        let inner = inner.filter(|inner| !inner.contains(['[', ']']));
        all.push(Property { name, value: inner.unwrap_or(value).trim().to_owned() });
    }
    Ok(Additions(all))
}

/// Resources whose settings are described or altered.
#[derive(Debug, Args)]
struct Resources {
    /// Topics.
    #[arg(value_name = "TOPIC")]
    bare: Vec<String>,
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
    /// A subscription to metrics of clients (KIP-714). May be given several times.
    #[arg(long = "client-metrics", value_name = "NAME")]
    client_metrics: Vec<String>,
    #[command(flatten)]
    clients: Clients,
}

impl Resources {
    /// Whether a resource with settings is given.
    fn have_settings(&self) -> bool {
        let lists = [&self.bare, &self.topics, &self.groups, &self.client_metrics];
        lists.iter().any(|names| !names.is_empty()) || !self.brokers.is_empty() || self.all_brokers
    }

    /// The clients, if they are what is meant. Their quotas and credentials are no settings.
    fn of_clients(&mut self) -> Result<Option<Clients>, Failure> {
        if self.clients.is_empty() {
            return Ok(None);
        }
        if self.have_settings() {
            let text = "--user, --client and --ip cannot be combined with topics, brokers, groups or client metrics";
            return Err(Failure::new(text));
        }
        Ok(Some(std::mem::take(&mut self.clients)))
    }

    fn at_least_one(self) -> Result<Vec<ConfigResource>, Failure> {
        let topics = self.bare.into_iter().chain(self.topics).map(ConfigResource::Topic);
        let brokers = self.brokers.into_iter().map(ConfigResource::Broker);
        let all = self.all_brokers.then_some(ConfigResource::AllBrokers);
        let groups = self.groups.into_iter().map(ConfigResource::Group);
        let metrics = self.client_metrics.into_iter().map(ConfigResource::ClientMetrics);
        let resources: Vec<_> =
            topics.chain(brokers).chain(all).chain(groups).chain(metrics).collect();
        if resources.is_empty() {
            let text = "no resource given; use --topic, --broker, --all-brokers, --group, --client-metrics, --user, --client or --ip";
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

async fn describe(mut arguments: Describe) -> Result<(), Failure> {
    let clients = arguments.of.of_clients()?;
    if arguments.all_quotas && (clients.is_some() || arguments.of.have_settings()) {
        let text =
            "--all-quotas cannot be combined with users, clients, addresses or other resources";
        return Err(Failure::new(text));
    }
    let admin = admin(&arguments.client)?;
    if arguments.all_quotas {
        return clients::describe_all(&admin, &arguments.format).await;
    }
    if let Some(clients) = clients {
        return clients::describe(&admin, &clients, &arguments.format).await;
    }
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

async fn alter(mut arguments: Alter) -> Result<(), Failure> {
    let clients = arguments.of.of_clients()?;
    let admin = admin(&arguments.client)?;
    if let Some(clients) = clients {
        return clients::alter(&admin, &clients, arguments).await;
    }
    let resources = arguments.of.at_least_one()?;
    are_known(&admin, &resources, &arguments.delete).await?;
    let pairs = |properties: Vec<Property>, change: fn(String, String) -> ConfigChange| {
        properties.into_iter().map(move |Property { name, value }| change(name, value))
    };
    let added = arguments.add.into_iter().flat_map(|Additions(added)| added).collect();
    let changes: Vec<ConfigChange> = pairs(added, ConfigChange::Set)
        .chain(pairs(arguments.append, ConfigChange::Append))
        .chain(pairs(arguments.subtract, ConfigChange::Subtract))
        .chain(arguments.delete.into_iter().map(ConfigChange::Delete))
        .collect();
    if changes.is_empty() {
        return Err(no_change("retention.ms", "3600000"));
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

fn brackets(name: &str) -> String {
    format!("a value with commas is in square brackets: {name}=[x,y]")
}

fn no_change(name: &str, value: &str) -> Failure {
    Failure::new(format!(
        "no change given; use for example --add {name}={value} or --delete {name}"
    ))
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

#[cfg(test)]
mod tests {
    use super::{Additions, additions};

    #[test]
    fn additions_are_separated_by_commas_outside_of_square_brackets() {
        let pairs = |text: &str| {
            let Additions(all) = additions(text).unwrap();
            all.into_iter().map(|p| (p.name, p.value)).collect::<Vec<_>>()
        };
        let expected = |list: &[(&str, &str)]| {
            list.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect::<Vec<_>>()
        };
        for (text, list) in [
            ("a=1", &[("a", "1")][..]),
            ("a=1,b=2", &[("a", "1"), ("b", "2")]),
            (" a = 1 , b=", &[("a", "1"), ("b", "")]),
            ("a=[x,y],b=2", &[("a", "x,y"), ("b", "2")]),
            ("b=2,a=[x=1,y]", &[("b", "2"), ("a", "x=1,y")]),
            ("a=[]", &[("a", "")]),
            ("a=//[::1]:9", &[("a", "//[::1]:9")]),
            ("a=[x][y]", &[("a", "[x][y]")]),
        ] {
            assert_eq!(pairs(text), expected(list), "{text}");
        }
    }

    #[test]
    fn additions_that_are_no_settings_are_refused() {
        for (text, expected) in [
            ("", "expected name=value, several separated by commas"),
            ("a=[x,y", "expected a closing square bracket"),
            (
                "cleanup.policy=compact,delete",
                "expected name=value after each comma; a value with commas is in square brackets: cleanup.policy=[x,y]",
            ),
            (
                "a=1,",
                "expected name=value after each comma; a value with commas is in square brackets: a=[x,y]",
            ),
        ] {
            assert_eq!(additions(text).unwrap_err(), expected, "{text}");
        }
    }
}
