//! The lock on a data directory: one cluster at a time, as Kafka's `.lock` file.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read as _, Seek as _, Write as _},
    path::Path,
};

/// The lock file's name, as in Kafka.
const FILE: &str = ".lock";

/// A lock on a directory, released when it is dropped or when the process ends, however it ends.
///
/// The lock is advisory and belongs to the open file, so a second one in the same process is
/// refused as well.
#[derive(Debug)]
pub(crate) struct DirLock {
    _file: File,
}

/// Why a directory could not be locked.
#[derive(Debug)]
pub(crate) enum LockError {
    /// Another cluster uses the directory; the id of its process, if readable.
    Held(Option<u32>),
    /// The file could not be opened, locked or written.
    Io(io::Error),
}

impl DirLock {
    /// Locks an existing directory.
    pub(crate) fn acquire(dir: &Path) -> Result<Self, LockError> {
        let options =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).clone();
        let mut file = options.open(dir.join(FILE)).map_err(LockError::Io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(LockError::Held(holder(&mut file))),
            Err(TryLockError::Error(error)) => return Err(LockError::Io(error)),
        }
        write_holder(&mut file).map_err(LockError::Io)?;
        Ok(Self { _file: file })
    }
}

fn write_holder(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
