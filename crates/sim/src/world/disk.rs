//! A broker's disk: files in memory, and writes that take their time.

use std::{
    io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use bytes::Bytes;
use curtail_cluster::disk::{Disk, DiskFile, MemDisk};
use curtail_net::BoxFuture;

use super::{
    Model,
    clock::Clock,
    net::{nanos, nanos_for},
};

/// Writes for one request at a time, in the order in which it is asked to.
pub(super) struct PacedDisk {
    files: MemDisk,
    clock: Clock,
    model: Model,
    /// Until when it is busy, in nanoseconds.
    busy: AtomicU64,
}

impl PacedDisk {
    pub(super) fn new(clock: Clock, model: Model) -> Self {
        Self { files: MemDisk::new(), clock, model, busy: AtomicU64::new(0) }
    }
}

impl Disk for PacedDisk {
    fn turn(&self, batches: usize, bytes: usize) -> Option<BoxFuture<'static, ()>> {
        let Model { request, append, disk_bandwidth, .. } = self.model;
        let appends = nanos(append).saturating_mul(batches as u64);
        let bytes = nanos_for(bytes, disk_bandwidth);
        let takes = nanos(request).saturating_add(appends).saturating_add(bytes);
        // All brokers run on one thread.
        let done = self.busy.load(Ordering::Relaxed).max(self.clock.now()) + takes;
        self.busy.store(done, Ordering::Relaxed);
        Some(Box::pin(self.clock.until(done)))
    }

    fn open_append(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.files.open_append(path)
    }

    fn exists(&self, path: &Path) -> bool {
        self.files.exists(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        self.files.list(dir)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.files.create_dir_all(dir)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.files.remove_file(path)
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.files.remove_dir_all(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.files.rename(from, to)
    }

    fn read_all(&self, path: &Path) -> io::Result<Bytes> {
        self.files.read_all(path)
    }

    fn write_atomic(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.files.write_atomic(path, bytes)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.files.sync_dir(dir)
    }
}
