//! [`Disk`] in memory, with crashes and limited space.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::{Disk, DiskFile, sparse::Sparse};

/// A disk in memory. Clones are handles to the same disk.
///
/// Appended bytes are durable only after [`DiskFile::sync`]: a crash may drop or tear them. For
/// [`MemDisk::crash_torn`], created, renamed, removed and replaced files are also durable only
/// after [`Disk::sync_dir`]; the milder crashes keep these changes. Directories and truncation are
/// durable immediately.
#[derive(Debug, Clone, Default)]
pub struct MemDisk {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    files: BTreeMap<PathBuf, Arc<Mutex<Content>>>,
    dirs: BTreeSet<PathBuf>,
    /// Paths changed since their directory was last synced, with their previous file.
    unsynced: BTreeMap<PathBuf, Option<Arc<Mutex<Content>>>>,
    capacity: Option<u64>,
    fails_syncs: bool,
    used: u64,
    /// Number of crashes. A handle opened before the last crash belongs to a dead process and must
    /// not write.
    generation: u64,
}

#[derive(Debug, Default)]
struct Content {
    bytes: Sparse,
    synced: usize,
    removed: bool,
    /// Whether [`Disk::write_atomic`] wrote it. A torn crash may leave the new name with a part of
    /// the bytes.
    replaced: bool,
}

/// Unit in which a torn crash loses unsynced bytes, in bytes.
const PAGE: usize = 512;

impl Content {
    /// Returns the start of the bytes that a torn crash may lose.
    fn volatile_from(&self) -> usize {
        if self.replaced { 0 } else { self.synced }
    }

    /// Loses unsynced bytes: none, all, all after some byte, or any of the pages before that byte.
    fn tear(&mut self, below: &mut impl FnMut(u64) -> u64) {
        let from = self.volatile_from();
        let unsynced = (self.bytes.len() - from) as u64;
        if unsynced > 0 {
            let kept = match below(4) {
                0 => 0,
                1 => unsynced,
                _ => below(unsynced + 1),
            };
            let mut bytes = self.bytes.read(0, from + kept as usize);
            if below(2) == 0 {
                lose_pages(&mut bytes, from, below);
            }
            self.bytes = Sparse::from(&bytes[..]);
        }
        self.synced = self.bytes.len();
        self.replaced = false;
    }
}

/// Sets about half of the pages after `from` to zero, as if a device had reordered the writes.
fn lose_pages(bytes: &mut [u8], from: usize, below: &mut impl FnMut(u64) -> u64) {
    let mut at = from;
    while at < bytes.len() {
        let end = (at / PAGE + 1) * PAGE;
        let end = end.min(bytes.len());
        if below(2) == 0 {
            bytes[at..end].fill(0);
        }
        at = end;
    }
}

impl MemDisk {
    /// Creates an empty disk with unlimited space.
    pub fn new() -> Self {
        Self::default()
    }

    /// Crashes the machine: unsynced bytes are either all kept or all lost. Handles opened before
    /// the crash fail.
    pub fn crash(&self, keep_unsynced: bool) {
        self.crash_with(|_, unsynced| if keep_unsynced { unsynced } else { 0 });
    }

    /// Crashes the machine. `kept` returns for every file, in the order of paths, how many of its
    /// unsynced bytes survive (a torn write keeps a part).
    pub fn crash_with(&self, mut kept: impl FnMut(&Path, u64) -> u64) {
        self.crash_under(Path::new(""), &mut kept);
        self.shared.lock().generation += 1;
    }

    /// Like [`MemDisk::crash_with`], but only for files under `dir`, as for one of several brokers
    /// on a disk. Older handles stay valid, so the caller must have dropped those under `dir`.
    pub fn crash_under(&self, dir: &Path, mut kept: impl FnMut(&Path, u64) -> u64) {
        let mut shared = self.shared.lock();
        let mut lost = 0;
        for (path, content) in &shared.files {
            if !path.starts_with(dir) {
                continue;
            }
            let mut content = content.lock();
            let unsynced = content.bytes.len() - content.synced;
            let kept = kept(path, unsynced as u64).min(unsynced as u64) as usize;
            let len = content.synced + kept;
            content.bytes.truncate(len);
            content.synced = len;
            lost += (unsynced - kept) as u64;
        }
        shared.used -= lost;
    }

    /// Crashes the machine at the worst moment. Any part of a file's unsynced bytes may be lost.
    /// Each change of a directory since its last [`Disk::sync_dir`] is independently kept or
    /// undone. Handles opened before the crash fail. `below(n)` returns a random number below `n`.
    pub fn crash_torn(&self, mut below: impl FnMut(u64) -> u64) {
        let mut shared = self.shared.lock();
        shared.generation += 1;
        for (path, before) in std::mem::take(&mut shared.unsynced) {
            if below(2) == 0 {
                continue;
            }
            match before {
                Some(content) => {
                    content.lock().removed = false;
                    shared.files.insert(path, content);
                }
                None => {
                    shared.files.remove(&path);
                }
            }
        }
        for content in shared.files.values() {
            content.lock().tear(&mut below);
        }
        shared.used = shared.files.values().map(|file| file.lock().bytes.len() as u64).sum();
    }

    /// Limits the disk to `bytes` in total (`None`: no limit). A write beyond the limit writes the
    /// part that fits and fails with [`io::ErrorKind::StorageFull`].
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.shared.lock().capacity = bytes;
    }

    /// Lets every [`DiskFile::sync`] fail, or succeed again.
    pub fn fail_syncs(&self, fails: bool) {
        self.shared.lock().fails_syncs = fails;
    }

    /// Returns the bytes in all files.
    pub fn used(&self) -> u64 {
        self.shared.lock().used
    }

    /// Changes the content of a file without its handles, as decaying media do. The result counts
    /// as synced.
    pub fn alter(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let mut shared = self.shared.lock();
        let content = shared.file(path)?;
        let mut content = content.lock();
        let before = content.bytes.len() as u64;
        let mut bytes = content.bytes.read(0, usize::MAX);
        change(&mut bytes);
        content.bytes = Sparse::from(&bytes[..]);
        content.synced = content.bytes.len();
        shared.used = shared.used - before + content.bytes.len() as u64;
        Ok(())
    }
}

impl Shared {
    fn file(&self, path: &Path) -> io::Result<Arc<Mutex<Content>>> {
        self.files.get(path).cloned().ok_or_else(|| not_found(path))
    }

    fn check_parent(&self, path: &Path) -> io::Result<()> {
        match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() && !self.dirs.contains(parent) => {
                Err(not_found(parent))
            }
            _ => Ok(()),
        }
    }

    /// Returns how many of `wanted` further bytes fit.
    fn room_for(&self, wanted: usize) -> usize {
        let Some(capacity) = self.capacity else { return wanted };
        usize::try_from(capacity.saturating_sub(self.used)).unwrap_or(usize::MAX).min(wanted)
    }

    fn drop_file(&mut self, path: &Path) -> bool {
        self.changes(path);
        let Some(content) = self.files.remove(path) else { return false };
        let mut content = content.lock();
        content.removed = true;
        self.used -= content.bytes.len() as u64;
        true
    }

    /// Remembers the file at `path`, which is about to change, until its directory is synced.
    fn changes(&mut self, path: &Path) {
        if !self.unsynced.contains_key(path) {
            self.unsynced.insert(path.to_owned(), self.files.get(path).cloned());
        }
    }

    /// Makes all changes under a directory durable.
    fn settle_under(&mut self, dir: &Path) {
        self.unsynced.retain(|path, _| !path.starts_with(dir));
    }
}

fn not_found(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{} does not exist", path.display()))
}

fn full() -> io::Error {
    io::Error::new(io::ErrorKind::StorageFull, "no space left on the simulated disk")
}

impl Disk for MemDisk {
    fn open_append(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut shared = self.shared.lock();
        shared.check_parent(path)?;
        if !shared.files.contains_key(path) {
            shared.changes(path);
        }
        let content = Arc::clone(shared.files.entry(path.to_owned()).or_default());
        Ok(Box::new(MemFile {
            generation: shared.generation,
            shared: Arc::clone(&self.shared),
            content,
        }))
    }

    fn exists(&self, path: &Path) -> bool {
        let shared = self.shared.lock();
        shared.files.contains_key(path) || shared.dirs.contains(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        let shared = self.shared.lock();
        if !shared.dirs.contains(dir) {
            return Err(not_found(dir));
        }
        // Paths are ordered by component, so the entries under a directory follow it without a gap.
        // A broker lists one directory per partition, and scanning all files would make that
        // quadratic.
        let after = (Bound::Excluded(dir), Bound::Unbounded);
        let files = shared.files.range::<Path, _>(after).map(|(path, _)| path);
        let files = files.take_while(|path| path.starts_with(dir));
        let dirs = shared.dirs.range::<Path, _>(after).take_while(|path| path.starts_with(dir));
        let inside = |path: &&PathBuf| path.parent() == Some(dir);
        let mut paths: Vec<PathBuf> = files.chain(dirs).filter(inside).cloned().collect();
        paths.sort();
        Ok(paths)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let mut shared = self.shared.lock();
        let named = dir.ancestors().filter(|path| !path.as_os_str().is_empty());
        shared.dirs.extend(named.map(Path::to_owned));
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        if self.shared.lock().drop_file(path) { Ok(()) } else { Err(not_found(path)) }
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        let mut shared = self.shared.lock();
        if !shared.dirs.contains(dir) {
            return Err(not_found(dir));
        }
        let doomed: Vec<PathBuf> =
            shared.files.keys().filter(|path| path.starts_with(dir)).cloned().collect();
        for path in doomed {
            shared.drop_file(&path);
        }
        shared.dirs.retain(|path| !path.starts_with(dir));
        shared.settle_under(dir);
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut shared = self.shared.lock();
        shared.check_parent(to)?;
        if shared.files.contains_key(from) {
            shared.changes(from);
        }
        if let Some(content) = shared.files.remove(from) {
            shared.drop_file(to);
            shared.files.insert(to.to_owned(), content);
            return Ok(());
        }
        if !shared.dirs.contains(from) {
            return Err(not_found(from));
        }
        let moved = |path: &PathBuf| match path.strip_prefix(from) {
            Ok(rest) if rest.as_os_str().is_empty() => to.to_owned(),
            Ok(rest) => to.join(rest),
            Err(_) => path.clone(),
        };
        shared.settle_under(from);
        shared.settle_under(to);
        shared.dirs = shared.dirs.iter().map(moved).collect();
        let files = std::mem::take(&mut shared.files);
        shared.files = files.into_iter().map(|(path, file)| (moved(&path), file)).collect();
        Ok(())
    }

    fn read_all(&self, path: &Path) -> io::Result<Bytes> {
        let content = self.shared.lock().file(path)?;
        let content = content.lock();
        Ok(content.bytes.read(0, usize::MAX).into())
    }

    fn write_atomic(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut shared = self.shared.lock();
        shared.check_parent(path)?;
        if shared.room_for(bytes.len()) < bytes.len() {
            return Err(full());
        }
        shared.drop_file(path);
        shared.used += bytes.len() as u64;
        let bytes = Sparse::from(bytes);
        let content = Content { synced: bytes.len(), bytes, removed: false, replaced: true };
        shared.files.insert(path.to_owned(), Arc::new(Mutex::new(content)));
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.shared.lock().unsynced.retain(|path, _| path.parent() != Some(dir));
        Ok(())
    }
}

#[derive(Debug)]
struct MemFile {
    shared: Arc<Mutex<Shared>>,
    content: Arc<Mutex<Content>>,
    generation: u64,
}

impl MemFile {
    fn check_alive(&self, shared: &Shared) -> io::Result<()> {
        if shared.generation == self.generation {
            return Ok(());
        }
        Err(io::Error::other("the simulated machine has crashed since this file was opened"))
    }
}

impl DiskFile for MemFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut shared = self.shared.lock();
        self.check_alive(&shared)?;
        let mut content = self.content.lock();
        // As on Unix, a removed file works for its open handles, but its space is not counted.
        let fits = if content.removed { bytes.len() } else { shared.room_for(bytes.len()) };
        content.bytes.append(&bytes[..fits]);
        if !content.removed {
            shared.used += fits as u64;
        }
        if fits < bytes.len() { Err(full()) } else { Ok(()) }
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let content = self.content.lock();
        Ok(content.bytes.read(usize::try_from(offset).unwrap_or(usize::MAX), len).into())
    }

    fn len(&self) -> u64 {
        self.content.lock().bytes.len() as u64
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        let mut shared = self.shared.lock();
        self.check_alive(&shared)?;
        let mut content = self.content.lock();
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(content.bytes.len());
        if !content.removed {
            shared.used -= (content.bytes.len() - len) as u64;
        }
        content.bytes.truncate(len);
        content.synced = content.synced.min(len);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let shared = self.shared.lock();
        self.check_alive(&shared)?;
        if shared.fails_syncs {
            return Err(io::Error::other("the disk failed"));
        }
        drop(shared);
        let mut content = self.content.lock();
        content.synced = content.bytes.len();
        content.replaced = false;
        Ok(())
    }
}
