//! The file system as the logs use it, behind a trait: real files, or memory that can crash.
//!
//! [`RealDisk`] works on the operating system's files with positional reads and writes. [`MemDisk`] keeps the
//! same files in memory for simulation and recovery tests: it knows which bytes have been synced, drops the
//! others on a crash, and can be made to run full.

mod lock;
mod mem;
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
/// Every method blocks for as long as the operating system does; none keeps a clock or a thread.
pub trait Disk: Send + Sync {
    /// What whoever appends so many batches of so many bytes waits for before it does, where the disk only plays that writing
    /// takes time. Nothing on a disk whose methods take the time they take.
    fn turn(&self, _batches: usize, _bytes: usize) -> Option<BoxFuture<'static, ()>> {
        None
    }

    /// Opens the file for appending and positional reading, creating it when it does not exist.
    fn open_append(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Whether a file or directory exists at `path`.
    fn exists(&self, path: &Path) -> bool;

    /// The full paths of the entries of a directory, sorted; `NotFound` when there is no such directory.
    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>>;

    /// Creates the directory and its parents; succeeds when it exists already.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;

    /// Removes one file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes a directory and everything under it.
    fn remove_dir_all(&self, dir: &Path) -> io::Result<()>;

    /// Renames a file or a directory; an existing file at `to` is replaced.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// The whole content of a file.
    fn read_all(&self, path: &Path) -> io::Result<Bytes>;

    /// Replaces the file's content in one step: a reader, or a restart after the process was killed, sees the
    /// old content or the new, never a mixture.
    fn write_atomic(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;

    /// Returns once the directory's entries (files created, renamed, removed) will survive a crash of the machine.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Replaces the file's content as [`Disk::write_atomic`] does, and returns once that will survive a crash of the
    /// machine.
    fn write_durable(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let temporary = temporary(path);
        if self.exists(&temporary) {
            // A crash left it.
            self.remove_file(&temporary)?;
        }
        let write = || {
            let mut file = self.open_append(&temporary)?;
            file.append(bytes)?;
            file.sync()?;
            self.rename(&temporary, path)
        };
        // The first error is the one that matters.
        write().inspect_err(|_| drop(self.remove_file(&temporary)))?;
        path.parent().map_or(Ok(()), |dir| self.sync_dir(dir))
    }
}

/// The path next to `path` under which its next content is written.
fn temporary(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".tmp");
    path.with_file_name(name)
}

/// One open append-only file.
pub trait DiskFile: Send + Sync {
    /// Writes all of `bytes` at the end of the file.
    ///
    /// On an error a part of them may have been written: the file may be longer than before, and [`len`]
    /// reports that; the caller truncates.
    ///
    /// [`len`]: DiskFile::len
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Writes the parts one after the other at the end of the file; errors as for [`DiskFile::append`].
    fn append_vectored(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        parts.iter().try_for_each(|part| self.append(part))
    }

    /// Reads up to `len` bytes from `offset`; fewer only where the file ends.
    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes>;

    /// The length of the file in bytes.
    fn len(&self) -> u64;

    /// Whether the file holds no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Cuts the file to `len` bytes; does nothing when it is not longer than that.
    fn truncate(&mut self, len: u64) -> io::Result<()>;

    /// Returns once what has been appended will survive a crash of the machine.
    fn sync(&mut self) -> io::Result<()>;
}
