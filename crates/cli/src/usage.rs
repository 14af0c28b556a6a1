//! Mistakes in the arguments, as one line that says what was expected.

mod habits;
#[cfg(test)]
mod tests;

use std::{
    error::Error as _,
    num::{IntErrorKind, ParseFloatError, ParseIntError},
};

use clap::{
    CommandFactory as _,
    error::{ContextKind, ContextValue, ErrorKind},
};

use crate::failure::{Failure, clause};

/// Prints help and version to standard output; a mistake in the arguments becomes one line. `given` are the arguments
/// without the name of the program.
pub(crate) fn explain(error: &clap::Error, given: &[String]) -> Result<(), Failure> {
    let shown = matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    );
    if shown {
        return crate::output::print(&error.to_string());
    }
    let mistake = Mistake::new(error, given);
    let text = mistake.habit().unwrap_or_else(|| match mistake.text() {
        // The question is the advice.
        text if text.ends_with('?') => text,
        text => format!("{}; --help shows the usage", clause(&text)),
    });
    Err(Failure::new(text))
}

/// A mistake, with its place in the command line.
struct Mistake<'a> {
    error: &'a clap::Error,
    given: &'a [String],
    /// The command and its subcommands, without options.
    words: Vec<String>,
    /// The possible subcommands after `words`, if there must be one.
    next: Vec<String>,
}

impl<'a> Mistake<'a> {
    fn new(error: &'a clap::Error, given: &'a [String]) -> Self {
        let mut command = crate::Arguments::command();
        let mut words = Vec::new();
        for word in given {
            let Some(found) = named(&command, word) else { break };
            // A mode of kcat is a flag: -Q is get-offsets.
            words.push(found.get_name().to_owned());
            command = found.clone();
        }
        let is_required = command.is_subcommand_required_set();
        let visible = command.get_subcommands().filter(|found| is_required && !found.is_hide_set());
        let next = visible.map(|found| found.get_name().to_owned()).collect();
        Self { error, given, words, next }
    }

    fn words(&self) -> Vec<&str> {
        self.words.iter().map(String::as_str).collect()
    }

    /// A text that clap gives about the mistake.
    fn context(&self, kind: ContextKind) -> Option<&'a str> {
        match self.error.get(kind)? {
            ContextValue::String(text) => Some(text.as_str()),
            ContextValue::Strings(texts) => texts.first().map(String::as_str),
            _ => None,
        }
    }

    /// Values that an argument accepts, and names similar to a mistyped one.
    fn all(&self, kind: ContextKind) -> Vec<&'a str> {
        match self.error.get(kind) {
            Some(ContextValue::Strings(texts)) => texts.iter().map(String::as_str).collect(),
            Some(ContextValue::String(text)) => vec![text.as_str()],
            _ => Vec::new(),
        }
    }

    /// The text for a command that is right in Kafka's own tools, if it is one.
    fn habit(&self) -> Option<String> {
        match self.error.kind() {
            ErrorKind::InvalidSubcommand if self.words.is_empty() => {
                habits::tool(self.context(ContextKind::InvalidSubcommand)?)
            }
            // A word after a command that needs no subcommand, but has one.
            ErrorKind::InvalidSubcommand if self.next.is_empty() => {
                habits::argument(self, self.context(ContextKind::InvalidSubcommand)?)
            }
            ErrorKind::UnknownArgument => {
                habits::argument(self, self.context(ContextKind::InvalidArg)?)
            }
            _ => None,
        }
    }

    fn text(&self) -> String {
        let text = match self.error.kind() {
            ErrorKind::UnknownArgument => self.unexpected(),
            ErrorKind::InvalidSubcommand => self.unknown_command(),
            ErrorKind::ValueValidation | ErrorKind::InvalidValue => self.invalid_value(),
            ErrorKind::MissingRequiredArgument => self.missing(),
            _ => None,
        };
        text.unwrap_or_else(|| plain(self.error))
    }

    fn unexpected(&self) -> Option<String> {
        let argument = self.context(ContextKind::InvalidArg)?;
        if argument.parse::<f64>().is_ok_and(|number| number < 0.0)
            && let Some(at) = self.given.iter().position(|given| given == argument)
            && let Some(flag) = at.checked_sub(1).and_then(|before| self.given.get(before))
            && flag.starts_with('-')
        {
            return Some(format!(
                "invalid value '{argument}' for {flag}: expected a number, at least 0"
            ));
        }
        let similar = similar(&self.all(ContextKind::SuggestedArg));
        Some(format!("unexpected argument '{argument}'{similar}"))
    }

    fn unknown_command(&self) -> Option<String> {
        let word = self.context(ContextKind::InvalidSubcommand)?;
        let similar = match &similar(&self.all(ContextKind::SuggestedSubcommand))[..] {
            "" if self.next.is_empty() => return Some(format!("unexpected argument '{word}'")),
            "" => format!("; expected {}", one_of(&self.next)),
            similar => similar.to_owned(),
        };
        Some(format!("unknown command '{word}'{similar}"))
    }

    fn missing(&self) -> Option<String> {
        let missing = self.all(ContextKind::InvalidArg).into_iter().map(alternatives);
        let missing: Vec<String> = missing.collect();
        (!missing.is_empty()).then(|| format!("missing {}", missing.join(", ")))
    }

    fn invalid_value(&self) -> Option<String> {
        let value = self.context(ContextKind::InvalidValue).filter(|value| !value.is_empty())?;
        // Without the name of the value, as in `--partitions <N>` and `--print-metrics[=<FORMAT>]`.
        let argument = self.context(ContextKind::InvalidArg)?.split([' ', '[']).next()?;
        let expected = match self.all(ContextKind::ValidValue).as_slice() {
            [] => self.expected(value)?,
            values => format!("expected {}", one_of(values)),
        };
        // SCRAM passwords of `curtail configs alter`.
        if argument == "--add" {
            return Some(format!("invalid value for {argument}: {expected}"));
        }
        Some(format!("invalid value '{value}' for {argument}: {expected}"))
    }

    /// The accepted values, from the parser's error.
    fn expected(&self, value: &str) -> Option<String> {
        let source = self.error.source()?;
        if let Some(error) = source.downcast_ref::<ParseIntError>() {
            return Some(whole_number(error, value).to_owned());
        }
        if source.is::<ParseFloatError>() {
            return Some("expected a number".to_owned());
        }
        let text = source.to_string();
        let range = text.strip_prefix(value).and_then(|rest| rest.strip_prefix(" is not in "));
        if let Some((low, high)) = range.and_then(|range| range.split_once("..=")) {
            let is_low = value.starts_with('-');
            let bound = if is_low { format!("at least {low}") } else { format!("at most {high}") };
            return Some(format!("expected a number, {bound}"));
        }
        // Some parsers repeat the value.
        let text = text.strip_prefix(&format!("'{value}': ")).unwrap_or(&text);
        Some(text.to_owned())
    }
}

/// The subcommand for a word or for a flag such as -Q.
fn named<'a>(command: &'a clap::Command, word: &str) -> Option<&'a clap::Command> {
    let is_flag = |found: &&clap::Command| {
        let flag = word.strip_prefix('-').and_then(|flag| flag.parse::<char>().ok());
        flag.is_some() && found.get_short_flag() == flag
    };
    command.find_subcommand(word).or_else(|| command.get_subcommands().find(is_flag))
}

fn whole_number(error: &ParseIntError, value: &str) -> &'static str {
    let is_negative = value.strip_prefix('-').is_some_and(|rest| rest.parse::<u64>().is_ok());
    match error.kind() {
        IntErrorKind::PosOverflow => "expected a smaller number",
        IntErrorKind::NegOverflow => "expected a greater number",
        _ if is_negative => "expected a whole number, at least 0",
        _ => "expected a whole number",
    }
}

/// `<--a|--b <N>>`, clap's notation of alternatives, as `--a or --b <N>`.
fn alternatives(argument: &str) -> String {
    match argument.strip_prefix('<').and_then(|inner| inner.strip_suffix('>')) {
        Some(inner) if inner.starts_with('-') => one_of(&inner.split('|').collect::<Vec<_>>()),
        _ => argument.to_owned(),
    }
}

fn similar(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        names => format!("; did you mean '{}'?", names.join("' or '")),
    }
}

/// `a`, `a or b`, `a, b or c`.
fn one_of(names: &[impl AsRef<str>]) -> String {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    match names.as_slice() {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [before @ .., last] => format!("{} or {last}", before.join(", ")),
    }
}

/// The message of clap, without the usage.
fn plain(error: &clap::Error) -> String {
    let text = error.to_string();
    let text = text.split("\n\nUsage:").next().unwrap_or(&text);
    let text = text.split("\n\nFor more information").next().unwrap_or(text);
    let text = text.strip_prefix("error: ").unwrap_or(text);
    text.replace("\n\n  tip: ", "; ")
}
