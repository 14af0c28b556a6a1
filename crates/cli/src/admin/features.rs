//! `curtail features`: kafka-features.

use std::collections::BTreeSet;

use clap::{Args, Subcommand};
use curtail::admin::{FeatureUpdate, Mode};

use super::{Cell, Format, admin, block_on};
use crate::{failure::Failure, output, settings::ClientArguments};

/// Subcommands of `curtail features`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Prints the supported levels and the finalized level of each feature.
    Describe(Describe),
    /// Raises levels of features.
    Upgrade(Change),
    /// Lowers levels of features.
    Downgrade(Downgrade),
    /// Sets levels of features to 0.
    Disable(Disable),
}

#[derive(Debug, Args)]
pub(crate) struct Describe {
    #[command(flatten)]
    client: ClientArguments,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct Change {
    #[command(flatten)]
    client: ClientArguments,
    /// Features with their new levels.
    #[arg(value_name = "NAME=LEVEL", value_parser = level)]
    bare: Vec<(String, i16)>,
    /// A feature with its new level, such as transaction.version=2. May be given several times.
    #[arg(long = "feature", value_name = "NAME=LEVEL", value_parser = level)]
    flagged: Vec<(String, i16)>,
    /// Validate the change without applying it.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Downgrade {
    #[command(flatten)]
    change: Change,
    /// Lower the level even if metadata are lost.
    #[arg(long = "unsafe")]
    lossy: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Disable {
    #[command(flatten)]
    client: ClientArguments,
    /// Features.
    #[arg(value_name = "NAME")]
    bare: Vec<String>,
    /// A feature. May be given several times.
    #[arg(long = "feature", value_name = "NAME")]
    flagged: Vec<String>,
    /// Disable the feature even if metadata are lost.
    #[arg(long = "unsafe")]
    lossy: bool,
    /// Validate the change without applying it.
    #[arg(long)]
    dry_run: bool,
}

fn level(text: &str) -> Result<(String, i16), String> {
    let parsed = text.split_once('=').and_then(|(name, level)| {
        let level = level.trim().parse::<i16>().ok().filter(|level| *level >= 0)?;
        Some((name.trim().to_owned(), level))
    });
    parsed.filter(|(name, _)| !name.is_empty()).ok_or_else(|| {
        "expected NAME=LEVEL with a number, for example transaction.version=2; `curtail features describe` prints the \
         levels"
            .to_owned()
    })
}

/// Runs `curtail features`.
pub(crate) fn run(command: Command) -> Result<(), Failure> {
    block_on(async {
        match command {
            Command::Describe(arguments) => describe(&arguments).await,
            Command::Upgrade(change) => {
                let Change { client, bare, flagged, dry_run } = change;
                let levels = bare.into_iter().chain(flagged).collect();
                apply(&client, levels, FeatureUpdate::Upgrade, dry_run).await
            }
            Command::Downgrade(Downgrade { change, lossy }) => {
                let Change { client, bare, flagged, dry_run } = change;
                let levels = bare.into_iter().chain(flagged).collect();
                apply(&client, levels, lowering(lossy), dry_run).await
            }
            Command::Disable(Disable { client, bare, flagged, lossy, dry_run }) => {
                let levels = bare.into_iter().chain(flagged).map(|name| (name, 0)).collect();
                apply(&client, levels, lowering(lossy), dry_run).await
            }
        }
    })
}

async fn describe(arguments: &Describe) -> Result<(), Failure> {
    let features = admin(&arguments.client)?.describe_features().await?;
    let names: BTreeSet<&String> =
        features.supported.keys().chain(features.finalized.keys()).collect();
    let number = |level: &i16| i32::from(*level);
    let rows = names.into_iter().map(|name| {
        let supported = features.supported.get(name);
        vec![
            Cell::from(name.as_str()),
            supported.map(|(min, _)| number(min)).into(),
            supported.map(|(_, max)| number(max)).into(),
            // A feature without a finalized level is disabled, as in kafka-features.
            features.finalized.get(name).map_or(0, number).into(),
            features.epoch.into(),
        ]
    });
    let columns = ["FEATURE", "SUPPORTED-MIN", "SUPPORTED-MAX", "FINALIZED", "EPOCH"];
    arguments.format.rows(&columns, rows.collect(), "no features")
}

fn lowering(lossy: bool) -> fn(i16) -> FeatureUpdate {
    if lossy { FeatureUpdate::UnsafeDowngrade } else { FeatureUpdate::SafeDowngrade }
}

async fn apply(
    client: &ClientArguments,
    levels: Vec<(String, i16)>,
    update: fn(i16) -> FeatureUpdate,
    dry_run: bool,
) -> Result<(), Failure> {
    if levels.is_empty() {
        return Err(Failure::new(
            "no feature given; use for example --feature transaction.version",
        ));
    }
    let updates: Vec<_> =
        levels.iter().map(|(name, level)| (name.as_str(), update(*level))).collect();
    let (mode, done) = match dry_run {
        true => (Mode::Validate, "can be set"),
        false => (Mode::Apply, "was set"),
    };
    admin(client)?.update_features(&updates, mode).await?;
    for (name, level) in &levels {
        output::line(format_args!("{name} {done} to {level}."))?;
    }
    Ok(())
}
