//! The shared archive of the classes that a broker loads.
//!
//! A broker spends most of its start loading and verifying classes, the same ones each time. A JVM
//! that maps them from an archive needs about half the CPU time to start (JEP 350). The archive is
//! made once per target directory, by a broker started for this purpose. It belongs to one build of
//! the JVM and these jars: any other JVM detects the mismatch and ignores it.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::cluster::ApacheCluster;
use crate::error::Error;
use crate::toolchain::Toolchain;

/// Returns the archive at `path` and makes it if it does not exist. `None` if that fails, since the
/// archive only saves time.
pub(crate) fn find_or_make(toolchain: &Toolchain, path: PathBuf) -> Option<PathBuf> {
    if path.is_file() {
        return Some(path);
    }
    let lock = File::create(path.with_extension("lock")).ok()?;
    lock.lock().ok()?;
    if !path.is_file() {
        make(toolchain, &path).ok()?;
    }
    Some(path)
}

/// Starts a broker that writes the archive at its end. A partial archive never appears at `path`.
fn make(toolchain: &Toolchain, path: &Path) -> Result<(), Error> {
    let partial = path.with_extension("partial");
    let cluster = ApacheCluster::builder()
        .toolchain(toolchain.clone())
        .short_lived()
        .jvm(format!("-XX:ArchiveClassesAtExit={}", partial.display()))
        .start()?;
    cluster.terminate(0)?;
    std::fs::rename(&partial, path).map_err(Error::io("make the archive of Kafka's classes"))
}
