//! The shared archive of the classes that a broker loads.
//!
//! Most of a broker's start is loading and verifying classes, the same ones each time. A JVM that maps
//! them from an archive starts in about half the processor time (JEP 350). The archive is made once per
//! target directory, by a broker that is started for it, and belongs to one build of the JVM and these
//! jars: any other JVM notices and does without.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::cluster::ApacheCluster;
use crate::error::Error;
use crate::toolchain::Toolchain;

/// The archive at `path`, made if it is not there; `None` where that fails: it only saves time.
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

/// Has a broker write the archive when it ends. It appears under its name only when it is complete.
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
