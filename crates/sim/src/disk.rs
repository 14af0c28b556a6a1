//! A disk that fails on request: errors for some operations, appends that wait, and syncs that do not return.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use curtail_cluster::disk::{Disk, DiskFile, MemDisk};
use curtail_net::BoxFuture;
use parking_lot::Mutex;
use tokio::{sync::watch, time::sleep};

use crate::{plan::DiskError, run::Observed, trace::now};

/// A disk in memory with faults. Clones are handles to the same disk.
#[derive(Clone)]
pub(crate) struct FaultyDisk {
    files: MemDisk,
    faults: Arc<Mutex<Faults>>,
    well: watch::Sender<bool>,
    /// Whether appends wait until it is over.
    stuck: Arc<Observed<bool>>,
}

#[derive(Default)]
struct Faults {
    fails: Option<DiskError>,
    slow: Duration,
    /// Syncs do not reach the device.
    holds_syncs: bool,
    failed: Option<Duration>,
    ended: Option<Duration>,
}

struct FaultyFile {
    file: Box<dyn DiskFile>,
    faults: Arc<Mutex<Faults>>,
}

impl Faults {
    fn check(&mut self, operation: DiskError) -> io::Result<()> {
        if self.fails != Some(operation) {
            return Ok(());
        }
        self.failed.get_or_insert_with(now);
        Err(io::Error::other(format!("{operation:?}: input/output error of the simulated disk")))
    }

    /// Whether a sync is held.
    fn check_sync(&mut self) -> io::Result<bool> {
        self.check(DiskError::Sync)?;
        Ok(self.holds_syncs)
    }
}

impl FaultyDisk {
    pub(crate) fn new(files: MemDisk) -> Self {
        Self {
            files,
            faults: Arc::default(),
            well: watch::Sender::new(true),
            stuck: Arc::default(),
        }
    }

    /// Makes one kind of operation fail from now on.
    pub(crate) fn fail(&self, operation: DiskError) {
        *self.faults.lock() = Faults { fails: Some(operation), ..Faults::default() };
        self.well.send_replace(false);
    }

    /// Ends the errors. Returns when the first one was returned and when its broker ended.
    pub(crate) fn heal(&self) -> (Option<Duration>, Option<Duration>) {
        let mut faults = self.faults.lock();
        faults.fails = None;
        self.well.send_replace(true);
        (faults.failed, faults.ended)
    }

    /// Records that the broker ended, and waits until the disk works.
    pub(crate) async fn ended(&self) {
        self.faults.lock().ended = Some(now());
        // The sender lives in `self`.
        let _ = self.well.subscribe().wait_for(|well| *well).await;
    }

    /// Makes every append wait so long from now on.
    pub(crate) fn slow_down(&self, by: Duration) {
        self.faults.lock().slow = by;
    }

    /// Makes every append wait until it is told otherwise.
    pub(crate) fn stick(&self, stuck: bool) {
        self.stuck.set(stuck);
    }

    /// Keeps syncs from the device. The caller suspends the tasks that wait for one.
    pub(crate) fn hold_syncs(&self, hold: bool) {
        self.faults.lock().holds_syncs = hold;
    }
}

impl Disk for FaultyDisk {
    fn turn(&self, _batches: usize, _bytes: usize) -> Option<BoxFuture<'static, ()>> {
        if self.stuck.look(|stuck| *stuck) {
            let stuck = Arc::clone(&self.stuck);
            return Some(Box::pin(async move { stuck.wait_for(|stuck| !*stuck).await }));
        }
        let slow = self.faults.lock().slow;
        (!slow.is_zero()).then(|| Box::pin(sleep(slow)) as BoxFuture<'static, ()>)
    }

    fn open_append(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let file = self.files.open_append(path)?;
        Ok(Box::new(FaultyFile { file, faults: Arc::clone(&self.faults) }))
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
        self.faults.lock().check(DiskError::Read)?;
        self.files.read_all(path)
    }

    fn write_atomic(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.faults.lock().check(DiskError::Append)?;
        self.files.write_atomic(path, bytes)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        if self.faults.lock().check_sync()? { Ok(()) } else { self.files.sync_dir(dir) }
    }
}

impl DiskFile for FaultyFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = self.faults.lock().check(DiskError::Append) {
            // A part of the bytes may reach the file.
            self.file.append(&bytes[..bytes.len() / 2])?;
            return Err(error);
        }
        self.file.append(bytes)
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        self.faults.lock().check(DiskError::Read)?;
        self.file.read_at(offset, len)
    }

    fn len(&self) -> u64 {
        self.file.len()
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.faults.lock().check(DiskError::Append)?;
        self.file.truncate(len)
    }

    fn sync(&mut self) -> io::Result<()> {
        if self.faults.lock().check_sync()? { Ok(()) } else { self.file.sync() }
    }
}
