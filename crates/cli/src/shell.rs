//! `curtail completions` and `curtail man`: files for the shell and for man.

#[cfg(test)]
mod reference;

use std::{io, path::PathBuf};

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::{failure::Failure, output};

/// Arguments of `curtail completions`.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// Shell that reads the script.
    #[arg(value_enum)]
    shell: Shell,
}

/// Arguments of `curtail man`.
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Directory for the pages, which is created: a man1 below a directory of MANPATH, such as ~/.local/share/man/man1.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Prints the script that completes commands and flags.
pub(crate) fn completions(arguments: &Completions) -> Result<(), Failure> {
    let mut script = Vec::new();
    let mut command = crate::Arguments::command();
    clap_complete::generate(arguments.shell, &mut command, "curtail", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}

/// Writes a page for each command.
pub(crate) fn man(arguments: &Man) -> Result<(), Failure> {
    let directory = &arguments.directory;
    let write = || -> io::Result<()> {
        std::fs::create_dir_all(directory)?;
        clap_mangen::generate_to(crate::Arguments::command(), directory)
    };
    write().map_err(|error| {
        Failure::new(format!("cannot write the pages to {}: {error}", directory.display()))
    })?;
    output::note(format_args!("wrote the pages to {}", directory.display()));
    Ok(())
}
