//! The page of commands and flags in the documents, made from the arguments.

use std::{fmt::Write as _, fs, path::Path};

use clap::{Arg, ArgAction, Args as _, Command, CommandFactory as _};
use curtail_lab::text::wrapped;

use crate::{admin::Format, settings::ClientArguments};

const HEAD: &str = "\
# Commands and flags

Each command with its arguments, as `curtail COMMAND --help` prints them. The [command line](command-line.md) by example is
shorter. `DOCUMENTS=write cargo test -p curtail-cli page_` writes this page.

## Flags of clients

";

/// Longest line outside tables.
const WIDTH: usize = 132;

/// Arguments that the commands below one must share so that they are listed once.
const WORTH_A_SECTION: usize = 4;

const CLIENTS: &str = "
Commands that connect to a cluster have these flags. Commands that print rows have the last one.
";

/// An argument as the page lists it: usage and meaning.
type Entry = (String, String);

/// The whole page.
fn page() -> String {
    let shared = Format::augment_args(ClientArguments::augment_args(Command::new("shared")));
    let shared: Vec<_> = shared.get_arguments().map(entry).collect();
    let mut page = HEAD.to_owned();
    table(&mut page, &shared);
    page += CLIENTS;
    let mut curtail = crate::Arguments::command();
    curtail.build();
    section(&mut page, "curtail", &curtail, &shared);
    page
}

/// The sections of a command, or of those below it in the order of `--help`, without arguments listed before.
fn section(page: &mut String, name: &str, command: &Command, listed: &[Entry]) {
    let is_shown = |below: &&Command| below.get_name() != "help" && !below.is_hide_set();
    let below: Vec<_> = command.get_subcommands().filter(is_shown).collect();
    let is_whole = !command.is_subcommand_required_set();
    if is_whole {
        title(page, name, command);
        table(page, &own(command, listed));
    }
    let mut listed = listed.to_vec();
    let common = common(&below, &listed);
    if !is_whole && common.len() >= WORTH_A_SECTION {
        title(page, name, command);
        write!(page, "\nAll `{name}` commands have these flags:\n").unwrap();
        table(page, &common);
        listed.extend(common);
    }
    for command in below {
        section(page, &format!("{name} {}", command.get_name()), command, &listed);
    }
}

fn title(page: &mut String, name: &str, command: &Command) {
    write!(page, "\n## {name}\n\n").unwrap();
    let about = command.get_long_about().or(command.get_about()).unwrap().to_string();
    // Clap cuts the full stop off.
    let about = format!("{}.", about.trim_end_matches('.'));
    writeln!(page, "{}", wrapped(&about, WIDTH).join("\n")).unwrap();
}

/// The arguments of a command that are not listed before.
fn own(command: &Command, listed: &[Entry]) -> Vec<Entry> {
    let shown = command.get_arguments().filter(|arg| !is_everywhere(arg) && !arg.is_hide_set());
    shown.map(entry).filter(|entry| !listed.contains(entry)).collect()
}

/// The arguments that all these commands have.
fn common(commands: &[&Command], listed: &[Entry]) -> Vec<Entry> {
    let [first, others @ ..] = commands else { return Vec::new() };
    let mut common = own(first, listed);
    for other in others {
        let own = own(other, listed);
        common.retain(|entry| own.contains(entry));
    }
    common
}

fn entry(arg: &Arg) -> Entry {
    (usage(arg), meaning(arg))
}

fn is_everywhere(arg: &Arg) -> bool {
    matches!(
        arg.get_action(),
        ArgAction::Version | ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong
    )
}

fn table(page: &mut String, entries: &[Entry]) {
    if entries.is_empty() {
        return;
    }
    if !page.ends_with("\n\n") {
        page.push('\n');
    }
    page.push_str("| argument | meaning |\n|---|---|\n");
    for (usage, meaning) in entries {
        writeln!(page, "| `{}` | {} |", cell(usage), cell(meaning)).unwrap();
    }
}

/// The flag and its value: `-b, --bootstrap-server <SERVERS>`.
fn usage(arg: &Arg) -> String {
    let values = arg.get_value_names().unwrap_or_default();
    let values: Vec<_> = values.iter().map(|value| format!("<{value}>")).collect();
    let short = arg.get_short().map(|short| format!("-{short}"));
    let long = arg.get_long().map(|long| format!("--{long}"));
    let flags: Vec<_> = short.into_iter().chain(long).collect();
    let takes = arg.get_action().takes_values();
    let values = if takes { values.join(" ") } else { String::new() };
    [flags.join(", "), values]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

fn meaning(arg: &Arg) -> String {
    let help = arg.get_long_help().or(arg.get_help());
    let mut text = help.map(ToString::to_string).unwrap_or_default();
    let possible: Vec<_> = match arg.get_action().takes_values() {
        true => arg.get_possible_values(),
        false => Vec::new(),
    };
    let names: Vec<_> = possible
        .iter()
        .filter(|value| !value.is_hide_set())
        .map(clap::builder::PossibleValue::get_name)
        .collect();
    if !names.is_empty() {
        write!(text, " [one of: {}]", names.join(", ")).unwrap();
    }
    let defaults = arg.get_default_values();
    if !arg.is_hide_default_value_set() && arg.get_action().takes_values() && !defaults.is_empty() {
        let defaults: Vec<_> = defaults.iter().map(|value| value.to_string_lossy()).collect();
        write!(text, " [default: {}]", defaults.join(", ")).unwrap();
    }
    text
}

/// A text in a cell of a table: in one line, and without a bar.
fn cell(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.replace('|', "\\|")
}

#[test]
fn page_of_commands_is_made_from_the_arguments() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands.md");
    let expected = page();
    if std::env::var("DOCUMENTS").is_ok_and(|value| value == "write") {
        fs::write(&path, expected).unwrap();
        return;
    }
    let document = fs::read_to_string(&path).unwrap();
    assert!(
        document == expected,
        "docs/commands.md is outdated; run DOCUMENTS=write cargo test -p curtail-cli page_"
    );
}
