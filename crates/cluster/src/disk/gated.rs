//! A disk for tests that may refuse changes.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;

use super::{Disk, DiskFile, MemDisk};

/// A change of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// To the content of a file.
    Content,
    /// A file's content is made durable.
    Sync,
    /// To the entries of a directory, or their durability.
    Entries,
}

/// Refuses a change with an error, or lets it happen.
type Gate = Arc<dyn Fn(Change) -> io::Result<()> + Send + Sync>;

/// A disk in memory that asks before each change.
#[derive(Clone)]
pub(crate) struct GatedDisk {
    pub(crate) disk: MemDisk,
    gate: Gate,
}

struct GatedFile {
    file: Box<dyn DiskFile>,
    gate: Gate,
}

impl GatedDisk {
    pub(crate) fn new(
        disk: MemDisk,
        gate: impl Fn(Change) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self { disk, gate: Arc::new(gate) }
    }
}

impl Disk for GatedDisk {
    fn open_append(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let file = self.disk.open_append(path)?;
        Ok(Box::new(GatedFile { file, gate: Arc::clone(&self.gate) }))
    }

    fn exists(&self, path: &Path) -> bool {
        self.disk.exists(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        self.disk.list(dir)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.disk.create_dir_all(dir)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        (self.gate)(Change::Entries).and_then(|()| self.disk.remove_file(path))
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        (self.gate)(Change::Entries).and_then(|()| self.disk.remove_dir_all(dir))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        (self.gate)(Change::Entries).and_then(|()| self.disk.rename(from, to))
    }

    fn read_all(&self, path: &Path) -> io::Result<Bytes> {
        self.disk.read_all(path)
    }

    fn write_atomic(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        (self.gate)(Change::Content).and_then(|()| self.disk.write_atomic(path, bytes))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        (self.gate)(Change::Entries).and_then(|()| self.disk.sync_dir(dir))
    }
}

impl DiskFile for GatedFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        (self.gate)(Change::Content).and_then(|()| self.file.append(bytes))
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        self.file.read_at(offset, len)
    }

    fn len(&self) -> u64 {
        self.file.len()
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        (self.gate)(Change::Content).and_then(|()| self.file.truncate(len))
    }

    fn sync(&mut self) -> io::Result<()> {
        (self.gate)(Change::Sync).and_then(|()| self.file.sync())
    }
}
