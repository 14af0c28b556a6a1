//! Errors of a cluster as a whole.

use std::{io, path::PathBuf};

use curtail_wire::ErrorCode;

use crate::config::ConfigError;

/// Why a cluster could not be started or changed.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// A setting is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A broker cannot listen.
    #[error("cannot listen on {addr} ({})", listen_advice(source.kind()))]
    Listen {
        /// Host and port.
        addr: String,
        /// The network's error.
        source: io::Error,
    },
    /// The storage cannot be used.
    #[error("cannot use {} for data{}", path.display(), storage_advice(source.kind()))]
    Storage {
        /// The directory.
        path: PathBuf,
        /// The disk's error.
        source: io::Error,
    },
    /// Another cluster uses the directory.
    #[error(
        "{} is in use by another cluster{}; stop that one or choose another directory",
        path.display(),
        process.map(|id| format!(" (process {id})")).unwrap_or_default()
    )]
    InUse {
        /// The directory.
        path: PathBuf,
        /// The process id of that cluster, if known.
        process: Option<u32>,
    },
    /// Certificates or keys cannot be used or created.
    #[error("cannot use certificates of {}: {reason}", path.display())]
    Certificates {
        /// The file or directory.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The operating system provides no random numbers for keys and salts.
    #[error("the operating system provides no random numbers for passwords and keys")]
    NoRandomness,
    /// No broker has this id.
    #[error("the cluster has no broker {0}")]
    NoSuchBroker(i32),
    /// The broker already runs.
    #[error("broker {0} is already running")]
    AlreadyRunning(i32),
    /// The controller refused the request.
    #[error("{reason}")]
    Refused {
        /// Kafka's error code.
        code: ErrorCode,
        /// The reason.
        reason: String,
    },
    /// A broker ended while it was starting.
    #[error("broker {0} stopped while it was starting")]
    Ended(i32),
}

impl From<(ErrorCode, String)> for ClusterError {
    fn from((code, reason): (ErrorCode, String)) -> Self {
        Self::Refused { code, reason }
    }
}

/// Returns advice for an address that cannot be listened on.
fn listen_advice(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::AddrNotAvailable => "choose an address of this machine",
        io::ErrorKind::PermissionDenied => "choose a port above 1023",
        io::ErrorKind::NotFound => "choose a name that this machine can resolve",
        _ => "choose another port or stop the process that uses it",
    }
}

/// Returns advice for a directory that cannot be used, if the reason is not advice enough.
fn storage_advice(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::PermissionDenied => " (choose a directory that this user may write to)",
        io::ErrorKind::ReadOnlyFilesystem => " (choose a directory on a writable file system)",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => " (make room on the disk)",
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
            " (choose a directory, not a file)"
        }
        _ => "",
    }
}
