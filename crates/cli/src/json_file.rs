//! The file of `--json`.

use std::{
    fs::File,
    io::{self, Write as _},
    path::Path,
};

use serde::Serialize;

use crate::failure::Failure;

/// Receives one line of JSON for each result; does nothing without a path.
///
/// It is created before the work whose result it receives, so that an unwritable file is reported at once.
pub(crate) struct JsonFile<'a>(Option<(File, &'a Path)>);

impl<'a> JsonFile<'a> {
    pub(crate) fn create(path: Option<&'a Path>) -> Result<Self, Failure> {
        let Some(path) = path else { return Ok(Self(None)) };
        Ok(Self(Some((create(path)?, path))))
    }

    /// Writes a result at once, so that it survives a later failure.
    pub(crate) fn add(&mut self, result: &impl Serialize) -> Result<(), Failure> {
        let Some((file, path)) = &mut self.0 else { return Ok(()) };
        let text = serde_json::to_string(result).map_err(Failure::new)?;
        writeln!(file, "{text}").map_err(|error| unwritable(path, &error))
    }
}

pub(crate) fn create(path: &Path) -> Result<File, Failure> {
    File::create(path).map_err(|error| unwritable(path, &error))
}

pub(crate) fn unwritable(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("cannot write {}: {error}", path.display()))
}
