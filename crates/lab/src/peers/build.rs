//! Sources of the drivers, and their build commands.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::SystemTime,
};

use super::{Driver, Peer};
use crate::perf::{Error, Result};

/// The project's folder `peers/`.
#[derive(Clone, Debug)]
pub struct Checkout {
    folder: PathBuf,
}

/// Build and run of a driver.
#[derive(Debug, PartialEq, Eq)]
struct Recipe {
    /// Folder below `peers/`.
    folder: &'static str,
    /// Required programs, each with what to do if it is missing.
    needs: &'static [(&'static str, &'static str)],
    build: Vec<OsString>,
    /// Whether the build tool itself detects quickly that it has nothing to do.
    quick: bool,
    /// File that the build creates.
    made: PathBuf,
    /// Command of the driver.
    run: Vec<OsString>,
}

const CARGO: (&str, &str) = ("cargo", "install a Rust toolchain");
const JAVA: (&str, &str) = ("java", "install Java 17 or newer");
const MAVEN: (&str, &str) = ("mvn", "install Maven 3.8 or newer");
const GO: (&str, &str) = ("go", "install Go 1.26 or newer");
const MAKE: (&str, &str) = ("make", "install make (librdkafka is built from its sources)");
const CC: (&str, &str) = ("cc", "install a C compiler");

/// A file that distinguishes this folder from others of the same name.
const MARK: &str = "librdkafka/Cargo.toml";

impl Checkout {
    /// The given folder, or `peers/` in the current directory or one above it.
    ///
    /// # Errors
    /// No such folder: the drivers are not part of an installed command.
    pub fn find(given: Option<&Path>) -> Result<Self> {
        if let Some(folder) = given {
            return match folder.join(MARK).is_file() {
                true => Ok(Self { folder: folder.to_owned() }),
                false => Err(Error::Options(format!(
                    "{} is not the directory `peers` of the project's checkout",
                    folder.display()
                ))),
            };
        }
        let here = env::current_dir().map_err(|error| Error::Options(error.to_string()))?;
        let found = here.ancestors().map(|above| above.join("peers"));
        let found = found.into_iter().find(|folder| folder.join(MARK).is_file());
        found.map(|folder| Self { folder }).ok_or_else(|| {
            Error::Options(
                "other clients are built from the project's checkout; run this inside it, or name \
                 its directory `peers` with --peers DIR"
                    .into(),
            )
        })
    }

    /// Builds a driver unless it exists and is newer than its sources.
    ///
    /// # Errors
    /// A tool that is missing, a build that fails.
    pub(super) fn build(&self, peer: Peer) -> Result<Driver> {
        let recipe = Recipe::of(peer, &self.folder);
        let folder = self.folder.join(recipe.folder);
        let driver = Driver::new(peer, recipe.run);
        if !recipe.quick && is_current(&recipe.made, &folder) {
            require(peer, recipe.needs.iter().filter(|(program, _)| *program != MAVEN.0))?;
            return Ok(driver);
        }
        require(peer, recipe.needs.iter())?;
        let [program, words @ ..] = &recipe.build[..] else { return Ok(driver) };
        let mut build = Command::new(program);
        build.args(words).current_dir(&folder);
        // Each driver has its own target directory, independent of the project's.
        if program == CARGO.0 {
            build.env("CARGO_TARGET_DIR", folder.join("target"));
        }
        let begun = SystemTime::now();
        let output = build.output().map_err(|error| failed(peer, &error.to_string()))?;
        if !output.status.success() {
            let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.push_str(&String::from_utf8_lossy(&output.stderr));
            return Err(failed(peer, &last_lines(&text)));
        }
        if !recipe.quick {
            // Dates the driver to the start of the build, so that a source changed during the build is newer.
            let made = fs::File::options().append(true).open(&recipe.made);
            let dated = made.and_then(|made| made.set_modified(begun));
            dated.map_err(|error| failed(peer, &error.to_string()))?;
        }
        Ok(driver)
    }
}

impl Recipe {
    fn of(peer: Peer, peers: &Path) -> Self {
        match peer {
            Peer::Java | Peer::Java39 | Peer::Java36 | Peer::Java32 | Peer::Java28 => {
                java(peer, peers)
            }
            Peer::Librdkafka => rust("librdkafka", &[CARGO, CC, MAKE], peers),
            Peer::ConfluentRust => rust("confluent-rust", &[CARGO, CC], peers),
            Peer::Krafka => rust("krafka", &[CARGO, CC], peers),
            Peer::FranzGo => {
                let program = "curtail-peer-franz-go";
                let made = peers.join("franz-go").join(program);
                Self {
                    folder: "franz-go",
                    needs: &[GO],
                    build: words(["go", "build", "-o", program, "."]),
                    quick: true,
                    run: vec![made.clone().into()],
                    made,
                }
            }
        }
    }
}

fn rust(name: &'static str, needs: &'static [(&str, &str)], peers: &Path) -> Recipe {
    let made = peers.join(name).join("target/release").join(format!("curtail-peer-{name}"));
    Recipe {
        folder: name,
        needs,
        build: words(["cargo", "build", "--release", "--locked"]),
        quick: true,
        run: vec![made.clone().into()],
        made,
    }
}

/// One source, built against several releases of kafka-clients. Each release has its own folder below
/// `target`, except the current one.
fn java(peer: Peer, peers: &Path) -> Recipe {
    let version = peer.kafka_clients().unwrap_or_default();
    let target = peers.join("java/target");
    let mut build = words(["mvn", "-q", "-B", "package"]);
    let target = if peer == Peer::Java {
        target
    } else {
        let target = target.join(version);
        build.push(format!("-Dkafka.version={version}").into());
        let mut directory = OsString::from("-Dpeer.directory=");
        directory.push(&target);
        build.push(directory);
        target
    };
    let made = target.join("curtail-peer-java.jar");
    let mut classes = made.clone().into_os_string();
    classes.push(":");
    classes.push(target.join("jars/*"));
    // The collector's settings are those of Kafka's start scripts; the heap is that of its perf tool.
    let mut run = words([
        "java",
        "-server",
        "-Xmx512m",
        "-XX:+UseG1GC",
        "-XX:MaxGCPauseMillis=20",
        "-XX:InitiatingHeapOccupancyPercent=35",
        "-cp",
    ]);
    run.extend([classes, "curtail.peers.Main".into()]);
    Recipe { folder: "java", needs: &[JAVA, MAVEN], build, quick: false, made, run }
}

fn words<const N: usize>(words: [&str; N]) -> Vec<OsString> {
    words.map(OsString::from).into()
}

/// Fails if a program is missing, with its name and purpose.
fn require<'a>(
    peer: Peer,
    needs: impl Iterator<Item = &'a (&'static str, &'static str)>,
) -> Result<()> {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = |program: &str| env::split_paths(&path).any(|at| at.join(program).is_file());
    let missing = needs.filter(|(program, _)| !found(program));
    let missing: Vec<String> =
        missing.map(|(program, advice)| format!("`{program}` is missing: {advice}")).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Error::Options(format!("{} cannot be built: {}", peer.name(), missing.join("; "))))
}

/// Whether the file is newer than all sources in the folder.
fn is_current(made: &Path, folder: &Path) -> bool {
    let Ok(made) = fs::metadata(made).and_then(|made| made.modified()) else { return false };
    newest(folder).is_some_and(|newest| newest <= made)
}

fn newest(folder: &Path) -> Option<SystemTime> {
    let mut newest = None;
    for entry in fs::read_dir(folder).ok()? {
        let entry = entry.ok()?;
        if entry.file_name() == "target" {
            continue;
        }
        let changed = match entry.file_type().ok()?.is_dir() {
            true => self::newest(&entry.path()),
            false => entry.metadata().and_then(|file| file.modified()).ok(),
        };
        newest = newest.max(changed);
    }
    newest
}

/// The last lines of a build's output, on one line.
fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(8)..].join(" | ")
}

fn failed(peer: Peer, reason: &str) -> Error {
    Error::Options(format!("{} cannot be built: {reason}", peer.name()))
}

#[cfg(test)]
mod tests;
