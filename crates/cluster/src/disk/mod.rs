//! The logs' file system behind a trait: real files, or memory that can crash.
//!
//! [`RealDisk`] uses the operating system's files with positional reads and writes. [`MemDisk`]
//! keeps the files in memory for simulation and recovery tests. It tracks synced bytes, drops the
//! others in a crash, and can run out of space.

#[cfg(test)]
pub(crate) mod gated;
mod lock;
mod mem;
mod positional;
mod real;
mod sparse;
#[cfg(test)]
mod tests;
mod watched;

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use curtail_net::BoxFuture;

pub(crate) use lock::{DirLock, LockError};
pub use mem::MemDisk;
pub use real::RealDisk;
pub(crate) use watched::{Failure, Watched};

/// A directory tree of append-only files.
///
/// Every method blocks as long as the operating system does; none has a clock or a thread.
pub trait Disk: Send + Sync {
    /// Returns a future to await before appending this many batches and bytes, on a disk that
    /// simulates the time of writes. `None` on a disk whose methods take real time.
    fn turn(&self, _batches: usize, _bytes: usize) -> Option<BoxFuture<'static, ()>> {
        None
    }

    /// Opens the file for appending and positional reads, and creates it if it does not exist.
    fn open_append(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Returns whether a file or directory exists at `path`.
    fn exists(&self, path: &Path) -> bool;

    /// Returns the full paths of a directory's entries, sorted; `NotFound` if there is no such
    /// directory.
    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>>;

    /// Creates the directory and its parents; succeeds if it already exists.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;

    /// Removes one file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes a directory and everything under it.
    fn remove_dir_all(&self, dir: &Path) -> io::Result<()>;

    /// Renames a file or a directory; an existing file at `to` is replaced.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Returns the whole content of a file.
    fn read_all(&self, path: &Path) -> io::Result<Bytes>;

    /// Atomically replaces the file's content. A reader sees the old or the new content, never a
    /// mixture; so does a restart after the process was killed.
    fn write_atomic(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;

    /// Returns once the directory's entries (files created, renamed, removed) will survive a crash
    /// of the machine.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Replaces the file's content like [`Disk::write_atomic`], and returns once that will survive
    /// a crash of the machine.
    fn write_durable(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let temporary = temporary(path);
        if self.exists(&temporary) {
            // The remains of a crash.
            self.remove_file(&temporary)?;
        }
        let write = || {
            let mut file = self.open_append(&temporary)?;
            file.append(bytes)?;
            file.sync()?;
            self.rename(&temporary, path)
        };
        // The caller needs the first error.
        write().inspect_err(|_| drop(self.remove_file(&temporary)))?;
        path.parent().map_or(Ok(()), |dir| self.sync_dir(dir))
    }
}

/// Returns the temporary path that a file's new content is written to before it replaces `path`.
fn temporary(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".tmp");
    path.with_file_name(name)
}

/// One open append-only file.
pub trait DiskFile: Send + Sync {
    /// Appends all of `bytes` to the file.
    ///
    /// After an error a part of them may have been written: [`len`] reports the resulting length,
    /// and the caller truncates.
    ///
    /// [`len`]: DiskFile::len
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Appends the parts one after the other; errors as for [`DiskFile::append`].
    fn append_vectored(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        parts.iter().try_for_each(|part| self.append(part))
    }

    /// Reads up to `len` bytes from `offset`; fewer only at the end of the file.
    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes>;

    /// Returns the length of the file in bytes.
    fn len(&self) -> u64;

    /// Returns whether the file is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Cuts the file to `len` bytes; does nothing if it is not longer.
    fn truncate(&mut self, len: u64) -> io::Result<()>;

    /// Returns once all appended bytes will survive a crash of the machine.
    fn sync(&mut self) -> io::Result<()>;
}
