//! Java, Maven and the jars of Apache Kafka.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::archive;

/// The release that `kafka/pom.xml` names.
pub const KAFKA_VERSION: &str = "4.3.0";

/// The oldest Java that runs this release's brokers.
const OLDEST_JAVA: u32 = 17;

/// The requirements of Apache Kafka on this machine: a Java and the jars.
#[derive(Debug, Clone)]
pub struct Toolchain {
    java: PathBuf,
    java_version: u32,
    jars: PathBuf,
    archive: Option<PathBuf>,
}

impl Toolchain {
    /// The `java` command.
    #[must_use]
    pub fn java(&self) -> &Path {
        &self.java
    }

    /// Java's feature version, for example 17.
    #[must_use]
    pub fn java_version(&self) -> u32 {
        self.java_version
    }

    /// The directory with the jars.
    #[must_use]
    pub fn jars(&self) -> &Path {
        &self.jars
    }

    /// A class path of all jars, with Java's wildcard.
    #[must_use]
    pub fn class_path(&self) -> String {
        format!("{}/*", self.jars.display())
    }

    /// The Java client of another release, for [`Tool::clients`](crate::Tool::clients). Maven
    /// fetches it on first use.
    ///
    /// # Errors
    /// If Maven is missing or cannot fetch it.
    pub fn clients(&self, version: &str) -> Result<PathBuf, Missing> {
        one_jar("kafka-clients", version)
    }

    /// The library Kafka Streams of this release, for [`Tool::jar`](crate::Tool::jar). Maven fetches it on first use,
    /// without RocksDB: applications keep their state in memory.
    ///
    /// # Errors
    /// If Maven is missing or cannot fetch it.
    pub fn streams(&self) -> Result<PathBuf, Missing> {
        one_jar("kafka-streams", KAFKA_VERSION)
    }

    /// Returns the options with which a JVM maps Kafka's classes from the shared archive; none
    /// without an archive. A JVM silently ignores the archive of another JVM.
    pub(crate) fn shared_classes(&self) -> Vec<String> {
        let Some(archive) = &self.archive else { return Vec::new() };
        let quiet = "-Xlog:cds=off,cds+dynamic=off";
        vec![format!("-XX:SharedArchiveFile={}", archive.display()), quiet.to_owned()]
    }
}

/// Returns one jar of Apache Kafka.
fn one_jar(artifact: &str, version: &str) -> Result<PathBuf, Missing> {
    let stem = format!("{artifact}-{version}");
    let name = format!("{stem}.jar");
    let artifact = format!("-Dartifact=org.apache.kafka:{artifact}:{version}");
    let jars = Jars { of: version, proof: &name, goal: &["dependency:copy", &artifact] };
    Ok(jars.fetch(&target_dir().join(stem))?.join(name))
}

/// Why Apache Kafka cannot run here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Missing {
    /// No `java` in `JAVA_HOME` or `PATH`.
    #[error(
        "no `java` found (neither in JAVA_HOME nor in PATH); Apache Kafka needs it: install Java \
         {OLDEST_JAVA} or newer"
    )]
    Java,
    /// A `java` that is too old, or whose version cannot be read.
    #[error(
        "`java` is version {found}, Apache Kafka {KAFKA_VERSION} needs {OLDEST_JAVA} or newer: \
         install it, and set JAVA_HOME if there are several"
    )]
    OldJava {
        /// The version that `java -version` printed.
        found: String,
    },
    /// No `mvn`, and the jars have not been fetched before.
    #[error("no `mvn` found, and no jars of Apache Kafka in {cache}: install Maven")]
    Maven {
        /// The directory searched for the jars.
        cache: PathBuf,
    },
    /// Maven is installed but could not fetch the jars.
    #[error("`mvn` could not bring Apache Kafka {release} from Maven Central: {reason}")]
    Download {
        /// The release to fetch.
        release: String,
        /// The last line Maven printed, or the operating system's error.
        reason: String,
    },
}

/// Looks for Java 17 or newer and for the jars. Missing jars are fetched with Maven (about 54 MB,
/// once per target directory; parallel callers wait for the first).
///
/// The search runs once per process.
///
/// # Errors
/// [`Missing`] names the missing part.
pub fn available() -> Result<Toolchain, Missing> {
    static FOUND: OnceLock<Result<Toolchain, Missing>> = OnceLock::new();
    FOUND.get_or_init(find).clone()
}

/// Returns the toolchain for a test. `None` means: skip the test named `test`; a line on standard
/// error says why. Call it in the test's first line.
///
/// # Panics
/// If the environment variable `CI` is set and the toolchain is missing, because these tests must
/// run there.
#[must_use]
pub fn require_or_skip(test: &str) -> Option<Toolchain> {
    match available() {
        Ok(toolchain) => Some(toolchain),
        Err(missing) => {
            let in_ci = std::env::var_os("CI").is_some_and(|v| !v.is_empty() && v != "false");
            assert!(!in_ci, "{test} must run under CI: {missing}");
            // Bypasses the test runner's capture, which discards the output of a skipped test
            // because it passes. A closed standard error loses only this line.
            let _ = writeln!(std::io::stderr(), "skipped: {test}: {missing}");
            None
        }
    }
}

fn find() -> Result<Toolchain, Missing> {
    let java = find_java().ok_or(Missing::Java)?;
    let banner = java_banner(&java).ok_or(Missing::Java)?;
    let target = target_dir();
    let java_version = match feature_version(&banner) {
        Some(version) if version >= OLDEST_JAVA => version,
        _ => {
            let found = banner.lines().next().unwrap_or("unknown").to_owned();
            return Err(Missing::OldJava { found });
        }
    };
    let jars = Jars {
        of: KAFKA_VERSION,
        proof: &format!("kafka_2.13-{KAFKA_VERSION}.jar"),
        goal: &["dependency:copy-dependencies"],
    };
    let jars = jars.fetch(&target.join(format!("apache-kafka-{KAFKA_VERSION}")))?;
    let archive = target.join(format!("apache-kafka-{KAFKA_VERSION}-java-{java_version}.jsa"));
    let toolchain = Toolchain { java, java_version, jars, archive: None };
    let archive = archive::find_or_make(&toolchain, archive);
    Ok(Toolchain { archive, ..toolchain })
}

fn find_java() -> Option<PathBuf> {
    let home = std::env::var_os("JAVA_HOME").map(|home| PathBuf::from(home).join("bin/java"));
    home.filter(|java| java.is_file()).or_else(|| find_in_path("java"))
}

fn find_in_path(command: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(command)).find(|file| file.is_file())
}

fn java_banner(java: &Path) -> Option<String> {
    let output = Command::new(java).arg("-version").stdin(Stdio::null()).output().ok()?;
    let text = if output.stderr.is_empty() { output.stdout } else { output.stderr };
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// The feature version in the output of `java -version`: the number before the first dot of the
/// quoted version, or the second number in versions of the form 1.8.
fn feature_version(banner: &str) -> Option<u32> {
    let quoted = banner.lines().find_map(|line| {
        let rest = line.split_once("version \"")?.1;
        Some(rest.split_once('"')?.0)
    })?;
    let mut numbers = quoted.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match numbers.next()?.ok()? {
        1 => numbers.next()?.ok(),
        feature => Some(feature),
    }
}

/// Cargo's target directory, as seen by the caller's `cargo`.
fn target_dir() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let workspace = workspace.canonicalize().unwrap_or(workspace);
    match std::env::var_os("CARGO_TARGET_DIR").filter(|dir| !dir.is_empty()) {
        Some(dir) => workspace.join(dir),
        None => workspace.join("target"),
    }
}

/// Jars that Maven fetches.
struct Jars<'a> {
    /// The release.
    of: &'a str,
    /// The file that exists once all jars do.
    proof: &'a str,
    goal: &'a [&'a str],
}

impl Jars<'_> {
    /// Returns the directory `cache`, filled. A partly filled directory never appears at this path.
    fn fetch(&self, cache: &Path) -> Result<PathBuf, Missing> {
        if self.fill(cache) {
            return Ok(cache.to_owned());
        }
        let Some(mvn) = find_in_path("mvn") else {
            return Err(Missing::Maven { cache: cache.to_owned() });
        };
        let failed = |e: std::io::Error| self.failed(e.to_string());
        if let Some(parent) = cache.parent() {
            std::fs::create_dir_all(parent).map_err(failed)?;
        }
        let lock = File::create(with_end(cache, ".lock")).map_err(failed)?;
        lock.lock().map_err(failed)?;
        if self.fill(cache) {
            return Ok(cache.to_owned());
        }
        let partial = with_end(cache, ".partial");
        if partial.exists() {
            std::fs::remove_dir_all(&partial).map_err(failed)?;
        }
        self.bring(&mvn, &partial)?;
        std::fs::rename(&partial, cache).map_err(failed)?;
        Ok(cache.to_owned())
    }

    /// Returns whether the jars are in this directory.
    fn fill(&self, directory: &Path) -> bool {
        directory.join(self.proof).is_file()
    }

    fn bring(&self, mvn: &Path, into: &Path) -> Result<(), Missing> {
        let pom = Path::new(env!("CARGO_MANIFEST_DIR")).join("kafka/pom.xml");
        let output = Command::new(mvn)
            .args(["-q", "-B", "-f"])
            .arg(pom)
            .args(self.goal)
            .arg(format!("-DoutputDirectory={}", into.display()))
            .stdin(Stdio::null())
            .output()
            .map_err(|e| self.failed(e.to_string()))?;
        if output.status.success() && self.fill(into) {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = text.lines().find(|line| line.contains("ERROR"));
        Err(self.failed(error.unwrap_or("it ended without the jars").to_owned()))
    }

    fn failed(&self, reason: String) -> Missing {
        Missing::Download { release: self.of.to_owned(), reason }
    }
}

/// Appends `end` to the last component of `path`. It does not replace the extension, because a
/// version's last number is not one.
fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(end);
    path.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_feature_version_is_read_from_both_forms() {
        assert_eq!(feature_version("openjdk version \"17.0.15\" 2025-04-15\nx"), Some(17));
        assert_eq!(feature_version("openjdk version \"21\" 2023-09-19"), Some(21));
        assert_eq!(feature_version("java version \"1.8.0_392\""), Some(8));
        assert_eq!(feature_version("Picked up options\nopenjdk version \"26-ea\""), Some(26));
        assert_eq!(feature_version("no such thing"), None);
    }

    #[test]
    fn a_missing_requirement_is_named_in_the_error() {
        let text = Missing::Maven { cache: PathBuf::from("target/x") }.to_string();
        assert!(text.contains("mvn") && text.contains("target/x") && text.contains("install"));
        let text = Missing::OldJava { found: "openjdk version \"11\"".into() }.to_string();
        assert!(text.contains("11") && text.contains("17"));
    }
}
