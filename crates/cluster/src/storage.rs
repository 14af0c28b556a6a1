//! The location of a cluster's files, and its lock against other clusters.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    config::{ClusterConfig, Storage},
    disk::{DirLock, Disk, LockError, RealDisk},
    error::ClusterError,
};

/// The opened storage of a cluster.
pub(crate) struct Opened {
    /// One disk per broker.
    pub(crate) disks: Vec<Arc<dyn Disk>>,
    /// The directory with each broker's directory.
    pub(crate) root: PathBuf,
    pub(crate) hold: Arc<Hold>,
}

/// A cluster's lock on its directory. Every task that writes there shares it, so the directory is
/// free for the next cluster only after the last task has ended.
#[derive(Debug)]
pub(crate) enum Hold {
    /// Files are in memory or belong to the caller.
    None,
    /// A persistent directory, locked.
    Kept { _lock: DirLock },
    /// A temporary directory, removed with the cluster.
    Temporary { _dir: tempfile::TempDir },
}

/// Opens the configured storage, and locks a persistent directory.
pub(crate) fn open(config: &ClusterConfig) -> Result<Opened, ClusterError> {
    let same =
        |disk: RealDisk| config.broker_ids().map(|_| Arc::new(disk) as Arc<dyn Disk>).collect();
    match &config.storage {
        Storage::Disks(disks) | Storage::Machines { brokers: disks, .. } => {
            Ok(Opened { disks: disks.clone(), root: PathBuf::new(), hold: Arc::new(Hold::None) })
        }
        Storage::Dir(path) => {
            let lock = lock(path)?;
            let hold = Arc::new(Hold::Kept { _lock: lock });
            Ok(Opened { disks: same(RealDisk::new()), root: path.clone(), hold })
        }
        Storage::Temp => {
            let temp = tempfile::Builder::new().prefix("curtail-").tempdir();
            let dir = temp
                .map_err(|source| ClusterError::Storage { path: std::env::temp_dir(), source })?;
            let root = dir.path().to_owned();
            let hold = Arc::new(Hold::Temporary { _dir: dir });
            Ok(Opened { disks: same(RealDisk::temporary()), root, hold })
        }
    }
}

fn lock(path: &Path) -> Result<DirLock, ClusterError> {
    let storage = |source: io::Error| ClusterError::Storage { path: path.to_owned(), source };
    fs::create_dir_all(path).map_err(storage)?;
    DirLock::acquire(path).map_err(|error| match error {
        LockError::Held(process) => ClusterError::InUse { path: path.to_owned(), process },
        LockError::Io(source) => storage(source),
    })
}
