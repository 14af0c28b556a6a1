//! A disk that reports its first failure, like Kafka's LogDirFailureChannel for a log directory.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use curtail_net::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Disk, DiskFile};

/// The first failure of a disk.
#[derive(Debug, Default)]
pub(crate) struct Failure {
    first: Mutex<Option<io::Error>>,
    happened: Notify,
}

impl Failure {
    /// Waits for the first failure and returns it.
    ///
    /// # Cancel safety
    /// Cancel safe before it is ready. One caller at a time.
    pub(crate) async fn first(&self) -> io::Error {
        loop {
            if let Some(error) = self.first.lock().take() {
                return error;
            }
            self.happened.notified().await;
        }
    }

    #[cold]
    fn report(&self, error: &io::Error) {
        if is_fatal(error) {
            self.add(error);
        }
    }

    #[cold]
    fn add(&self, error: &io::Error) {
        let mut first = self.first.lock();
        if first.is_none() {
            *first = Some(io::Error::new(error.kind(), error.to_string()));
            self.happened.notify_one();
        }
    }
}

/// Returns whether an error means that the disk is unreliable.
///
/// A missing file is a normal result. A full disk refuses appends and keeps its content: unlike
/// Kafka, which halts, the broker still serves reads and accepts records again once there is space.
fn is_fatal(error: &io::Error) -> bool {
    !matches!(
        error.kind(),
        io::ErrorKind::NotFound
            | io::ErrorKind::AlreadyExists
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::Interrupted
    )
}

/// A disk whose errors are reported. A successful call costs one additional indirect call.
pub(crate) struct Watched {
    disk: Arc<dyn Disk>,
    state: State,
}

struct WatchedFile {
    file: Box<dyn DiskFile>,
    state: State,
}

#[derive(Clone)]
struct State {
    failure: Arc<Failure>,
    /// Whether a fault leaves no space.
    full: Arc<AtomicBool>,
}

impl State {
    fn seen<T>(&self, result: io::Result<T>) -> io::Result<T> {
        result.inspect_err(|error| self.failure.report(error))
    }

    /// Fails if a fault leaves no space. Such a failure ends the broker, as in Kafka.
    fn room(&self) -> io::Result<()> {
        if !self.full.load(Ordering::Relaxed) {
            return Ok(());
        }
        let error =
            io::Error::new(io::ErrorKind::StorageFull, "no space left on device (injected)");
        self.failure.add(&error);
        Err(error)
    }
}

impl Watched {
    /// `full` leaves the disk no space while it is true.
    pub(crate) fn new(disk: Arc<dyn Disk>, failure: Arc<Failure>, full: Arc<AtomicBool>) -> Self {
        Self { disk, state: State { failure, full } }
    }
}

impl Disk for Watched {
    fn turn(&self, batches: usize, bytes: usize) -> Option<BoxFuture<'static, ()>> {
        self.disk.turn(batches, bytes)
    }

    fn open_append(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let file = self.state.seen(self.disk.open_append(path))?;
        Ok(Box::new(WatchedFile { file, state: self.state.clone() }))
    }

    fn exists(&self, path: &Path) -> bool {
        self.disk.exists(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        self.state.seen(self.disk.list(dir))
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.state.seen(self.disk.create_dir_all(dir))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.state.seen(self.disk.remove_file(path))
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.state.seen(self.disk.remove_dir_all(dir))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.state.seen(self.disk.rename(from, to))
    }

    fn read_all(&self, path: &Path) -> io::Result<Bytes> {
        self.state.seen(self.disk.read_all(path))
    }

    fn write_atomic(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.state.room()?;
        self.state.seen(self.disk.write_atomic(path, bytes))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.state.seen(self.disk.sync_dir(dir))
    }

    fn write_durable(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.state.room()?;
        self.state.seen(self.disk.write_durable(path, bytes))
    }
}

impl DiskFile for WatchedFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.state.room()?;
        let result = self.file.append(bytes);
        self.state.seen(result)
    }

    fn append_vectored(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        self.state.room()?;
        let result = self.file.append_vectored(parts);
        self.state.seen(result)
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        self.state.seen(self.file.read_at(offset, len))
    }

    fn len(&self) -> u64 {
        self.file.len()
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        let result = self.file.truncate(len);
        self.state.seen(result)
    }

    fn sync(&mut self) -> io::Result<()> {
        let result = self.file.sync();
        self.state.seen(result)
    }
}
