//! [`Disk`] on the operating system's files.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::positional::{read_at, write_at, write_vectored_at};
use super::{Disk, DiskFile, temporary};

/// The real file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealDisk {
    keeps: Keeps,
}

/// The losses to expect from a crash of the machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Keeps {
    /// Nothing that was written durably or synced may be lost.
    #[default]
    Durable,
    /// Everything may be lost, because no later process reads the files.
    Nothing,
}

impl RealDisk {
    /// Uses the real file system.
    pub fn new() -> Self {
        Self::default()
    }

    /// Uses the real file system for files that are deleted with the process that wrote them.
    /// [`Disk::write_durable`] and [`Disk::sync_dir`] do not wait for the device;
    /// [`DiskFile::sync`] does.
    pub fn temporary() -> Self {
        Self { keeps: Keeps::Nothing }
    }
}

impl Disk for RealDisk {
    fn open_append(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        // Not O_APPEND: pwrite must use this handle's length, even if a failed write has made the
        // file longer.
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let len = file.metadata()?.len();
        Ok(Box::new(RealFile { file, len }))
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        let mut paths =
            fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
        paths.sort();
        Ok(paths)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        fs::create_dir_all(dir)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        fs::remove_dir_all(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn read_all(&self, path: &Path) -> io::Result<Bytes> {
        fs::read(path).map(Bytes::from)
    }

    fn write_atomic(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        // No fsync: rename alone is atomic for a killed process, and a sync would delay a leader
        // change. After a power loss, files written this way can be rebuilt from the segments.
        let temporary = temporary(path);
        fs::write(&temporary, bytes).and_then(|()| fs::rename(&temporary, path)).inspect_err(|_| {
            // The caller needs the first error.
            drop(fs::remove_file(&temporary));
        })
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        // Windows cannot sync a directory; NTFS keeps a journal of its changes.
        if self.keeps == Keeps::Nothing || cfg!(windows) {
            return Ok(());
        }
        // The parent of a relative path without directories is the empty path.
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        File::open(dir)?.sync_all()
    }

    fn write_durable(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        if self.keeps == Keeps::Nothing {
            return self.write_atomic(path, bytes);
        }
        let temporary = temporary(path);
        let write = || {
            let mut file = File::create(&temporary)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&temporary, path)
        };
        // The caller needs the first error.
        write().inspect_err(|_| drop(fs::remove_file(&temporary)))?;
        path.parent().map_or(Ok(()), |dir| self.sync_dir(dir))
    }
}

#[derive(Debug)]
struct RealFile {
    file: File,
    len: u64,
}

impl RealFile {
    /// Reads the true length from the system after a failed write.
    fn resync_len(&mut self) {
        if let Ok(metadata) = self.file.metadata() {
            self.len = metadata.len();
        }
    }

    fn write_all_at_end(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match write_at(&self.file, bytes, self.len) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    self.len += written as u64;
                    bytes = &bytes[written..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl DiskFile for RealFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at_end(bytes).inspect_err(|_| self.resync_len())
    }

    fn append_vectored(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        let slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let mut written = match write_vectored_at(&self.file, &slices, self.len) {
            Ok(written) => written,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(error),
        };
        self.len += written as u64;
        for part in parts {
            let done = written.min(part.len());
            written -= done;
            self.append(&part[done..])?;
        }
        Ok(())
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let available = usize::try_from(self.len.saturating_sub(offset)).unwrap_or(usize::MAX);
        let wanted = len.min(available);
        let mut bytes = Vec::with_capacity(wanted);
        while bytes.len() < wanted {
            // The spare capacity may exceed `len`; the excess is cut below.
            let position = offset + bytes.len() as u64;
            match read_at(&self.file, &mut bytes, position) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        bytes.truncate(wanted);
        Ok(Bytes::from(bytes))
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        if len < self.len {
            self.file.set_len(len)?;
            self.len = len;
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }
}
