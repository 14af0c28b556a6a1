//! Files with secrets.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    path::Path,
};

/// Writes a file with secrets, in place of any file of that name. On Unix only its owner can read it; elsewhere the rights of
/// its folder apply.
pub(crate) fn write(path: &Path, text: &str) -> io::Result<()> {
    // An existing file would keep its rights.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)?.write_all(text.as_bytes())
}
