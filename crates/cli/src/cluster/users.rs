//! SASL users from flags, a file and the environment. No message repeats a line, which contains a password.

use std::{convert::Infallible, fmt, fs, path::Path};

use curtail_cluster::User;

use crate::{failure::Failure, output};

/// Environment variable with one user per line.
const VARIABLE: &str = "CURTAIL_USERS";

/// A text that is not printed.
#[derive(Clone)]
pub(super) struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("...")
    }
}

/// Accepts any text, so that clap never prints it in an error.
pub(super) fn secret(text: &str) -> Result<Secret, Infallible> {
    Ok(Secret(text.to_owned()))
}

/// All users, from every source.
pub(super) fn all(flags: &[Secret], file: Option<&Path>) -> Result<Vec<User>, Failure> {
    let mut users = Vec::new();
    for Secret(text) in flags {
        users.push(user(text, "--user")?);
    }
    if let Some(path) = file {
        lines(&read(path)?, &path.display().to_string(), &mut users)?;
    }
    match std::env::var(VARIABLE) {
        Ok(text) => lines(&text, VARIABLE, &mut users)?,
        Err(std::env::VarError::NotPresent) => {}
        Err(std::env::VarError::NotUnicode(_)) => {
            return Err(Failure::new(format!("{VARIABLE} is not UTF-8")));
        }
    }
    Ok(users)
}

fn user(text: &str, of: &str) -> Result<User, Failure> {
    User::parse(text).map_err(|error| Failure::new(format!("{of}: {error}")))
}

/// Adds the user of each line.
fn lines(text: &str, of: &str, users: &mut Vec<User>) -> Result<(), Failure> {
    for (line, number) in text.lines().zip(1..) {
        if !line.trim().is_empty() && !line.starts_with('#') {
            users.push(user(line, &format!("{of}, line {number}"))?);
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<String, Failure> {
    let shown = path.display();
    let text = fs::read_to_string(path)
        .map_err(|error| Failure::new(format!("cannot read {shown}: {error}")))?;
    if is_open_to_others(path) {
        output::note(format_args!("others can read the passwords in {shown}; chmod 600 {shown}"));
    }
    Ok(text)
}

#[cfg(unix)]
fn is_open_to_others(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;

    fs::metadata(path).is_ok_and(|metadata| metadata.mode() & 0o077 != 0)
}

/// The rights of a file are those of its folder.
#[cfg(not(unix))]
fn is_open_to_others(_: &Path) -> bool {
    false
}
