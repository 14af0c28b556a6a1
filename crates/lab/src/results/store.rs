//! The kept runs: one file each, at `CLUSTER/EXPERIMENT/MOMENT.json`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

use super::{
    Cluster, Invalid, date,
    kills::{self, Kills},
    page::{self, is_variant},
    readme, report,
    rows::LAST,
};
use crate::experiments::{self, Report};

/// The kept runs of every experiment.
#[derive(Default)]
pub struct Results {
    pub(super) runs: BTreeMap<(Cluster, &'static str), Vec<Run>>,
    pub(super) kills: BTreeMap<Cluster, Vec<KillsRun>>,
}

/// A run of an experiment, and its file as it is kept.
pub(super) struct Run {
    pub(super) file: String,
    pub(super) report: Report,
    text: String,
}

/// A crash test, and its file as it is kept.
pub(super) struct KillsRun {
    pub(super) file: String,
    pub(super) kills: Kills,
    text: String,
}

enum Parsed {
    Run(Cluster, &'static str, Run),
    Kills(Cluster, KillsRun),
}

impl Results {
    /// Reads the runs that a directory keeps.
    ///
    /// # Errors
    /// The directory or a file in it cannot be read, or is not what [`Results::save`] writes there.
    pub fn read(dir: &Path) -> Result<Self, Invalid> {
        let mut results = Self::default();
        for (name, path) in entries(dir)?.into_iter().filter(|(_, path)| path.is_dir()) {
            let known = || Cluster::ALL.map(Cluster::name).join(", ");
            let cluster = Cluster::of(&name).ok_or_else(|| {
                Invalid::new(format!("{}: unknown cluster; known are {}", path.display(), known()))
            })?;
            results.read_cluster(cluster, &path)?;
        }
        Ok(results)
    }

    fn read_cluster(&mut self, cluster: Cluster, dir: &Path) -> Result<(), Invalid> {
        for (experiment, path) in entries(dir)? {
            if is_json(&path) {
                let text = "not in an experiment's directory; move it out and publish it";
                return Err(Invalid::new(format!("{}: {text}", path.display())));
            }
            if path.is_dir() {
                for (file, path) in entries(&path)?.into_iter().filter(|(_, path)| is_json(path)) {
                    self.read_file(cluster, &experiment, &file, &path)?;
                }
            }
        }
        Ok(())
    }

    fn read_file(
        &mut self,
        cluster: Cluster,
        experiment: &str,
        file: &str,
        path: &Path,
    ) -> Result<(), Invalid> {
        let name = path.display().to_string();
        let text = fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
        for parsed in parse(&name, &text)? {
            let (of_cluster, of_experiment, of_file) = parsed.place();
            if (of_cluster, of_experiment, of_file) != (cluster, experiment, file) {
                let place = format!("{}/{of_experiment}/{of_file}", of_cluster.name());
                return Err(Invalid::new(format!("{name}: belongs in {place}")));
            }
            self.insert(parsed);
        }
        Ok(())
    }

    /// Adds what `curtail lab run --json` or `curtail lab kills --json` wrote, and drops runs that are no longer among the
    /// last ones of any of their arms. `name` is for errors.
    ///
    /// # Errors
    /// The text is something else; the experiment is unknown, not of a release build, or of a cluster without a section.
    pub fn add(&mut self, name: &str, text: &str) -> Result<(), Invalid> {
        for parsed in parse(name, text)? {
            self.insert(parsed);
        }
        self.runs.values_mut().for_each(drop_old);
        for runs in self.kills.values_mut() {
            runs.drain(..runs.len().saturating_sub(LAST));
        }
        Ok(())
    }

    fn insert(&mut self, parsed: Parsed) {
        match parsed {
            Parsed::Run(cluster, experiment, run) => {
                let runs = self.runs.entry((cluster, experiment)).or_default();
                runs.retain(|other| other.file != run.file);
                runs.push(run);
                runs.sort_by(|a, b| a.order().cmp(&b.order()));
            }
            Parsed::Kills(cluster, run) => {
                let runs = self.kills.entry(cluster).or_default();
                runs.retain(|other| other.file != run.file);
                runs.push(run);
                runs.sort_by(|a, b| a.file.cmp(&b.file));
            }
        }
    }

    /// The runs of an experiment on a cluster, oldest first.
    pub(super) fn of(&self, cluster: Cluster, experiment: &str) -> &[Run] {
        let found = self.runs.iter().find(|((c, e), _)| *c == cluster && *e == experiment);
        found.map_or(&[], |(_, runs)| runs)
    }

    /// Every file of the directory: the kept runs, and what is made from them.
    #[must_use]
    pub fn files(&self) -> BTreeMap<PathBuf, String> {
        let mut files = BTreeMap::new();
        for ((cluster, experiment), runs) in &self.runs {
            let dir = Path::new(cluster.name()).join(experiment);
            for run in runs {
                files.insert(dir.join(&run.file), run.text.clone());
            }
            files.insert(dir.join("README.md"), report::report(*cluster, runs));
            if let Some(chart) = report::chart(*cluster, runs) {
                files.insert(dir.join("chart.svg"), chart);
            }
        }
        for (cluster, runs) in &self.kills {
            for run in runs {
                let dir = Path::new(cluster.name()).join(kills::NAME);
                files.insert(dir.join(&run.file), run.text.clone());
            }
            let dir = Path::new(cluster.name()).join(kills::NAME);
            files.insert(dir.join("README.md"), kills::report(*cluster, runs));
        }
        files.insert("README.md".into(), page::page(self));
        files.insert("faults.svg".into(), readme::picture(self));
        files
    }

    /// A README with the table of these results between its marks. `name` is for errors.
    ///
    /// # Errors
    /// The text has no marks.
    pub fn readme(&self, name: &str, text: &str) -> Result<String, Invalid> {
        readme::with_table(self, name, text)
    }

    /// Makes the directory have [`Results::files`], without touching what is as it should be.
    ///
    /// # Errors
    /// A file cannot be written or removed.
    pub fn save(&self, dir: &Path) -> Result<(), Invalid> {
        let unwritable = |path: &Path, error: &io::Error| {
            Invalid::new(format!("cannot write {}: {error}", path.display()))
        };
        for (path, text) in self.wrong(dir)? {
            let path = dir.join(path);
            let done = match (text, path.parent()) {
                (Some(text), Some(parent)) => {
                    fs::create_dir_all(parent).and_then(|()| fs::write(&path, text))
                }
                _ => fs::remove_file(&path),
            };
            done.map_err(|error| unwritable(&path, &error))?;
        }
        Ok(())
    }

    /// The files of the directory that are not as [`Results::files`] has them.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn differences(&self, dir: &Path) -> Result<Vec<PathBuf>, Invalid> {
        Ok(self.wrong(dir)?.into_keys().collect())
    }

    /// Files to write, and (`None`) to remove.
    fn wrong(&self, dir: &Path) -> Result<BTreeMap<PathBuf, Option<String>>, Invalid> {
        let expected = self.files();
        let mut wrong = BTreeMap::new();
        for path in ours(dir)? {
            if !expected.contains_key(&path) {
                wrong.insert(path, None);
            }
        }
        for (path, text) in expected {
            if fs::read_to_string(dir.join(&path)).ok().as_deref() != Some(&*text) {
                wrong.insert(path, Some(text));
            }
        }
        Ok(wrong)
    }
}

impl Run {
    fn order(&self) -> (u64, &str) {
        (self.report.environment.started_ms, &self.file)
    }
}

impl Parsed {
    fn place(&self) -> (Cluster, &'static str, &str) {
        match self {
            Self::Run(cluster, experiment, run) => (*cluster, experiment, &run.file),
            Self::Kills(cluster, run) => (*cluster, kills::NAME, &run.file),
        }
    }
}

/// Keeps a run while it is among the last ones of an arm and client.
fn drop_old(runs: &mut Vec<Run>) {
    let mut seen: BTreeMap<(String, String), usize> = BTreeMap::new();
    let mut kept: BTreeSet<String> = BTreeSet::new();
    for run in runs.iter().rev() {
        let arms = run.report.arms.iter().filter(|arm| !is_variant(arm));
        let arms = arms.map(|arm| (arm.name.clone(), arm.client.clone()));
        // A run may name an arm twice; it counts once.
        for arm in arms.collect::<BTreeSet<_>>() {
            let count = seen.entry(arm).or_default();
            *count += 1;
            if *count <= LAST {
                kept.insert(run.file.clone());
            }
        }
    }
    runs.retain(|run| kept.contains(&run.file));
}

/// The files of the directory that [`Results::save`] may have written.
fn ours(dir: &Path) -> Result<Vec<PathBuf>, Invalid> {
    let mut found = Vec::new();
    for cluster in Cluster::ALL.map(Cluster::name) {
        if !dir.join(cluster).is_dir() {
            continue;
        }
        for (experiment, path) in entries(&dir.join(cluster))? {
            if !path.is_dir() {
                continue;
            }
            for (file, path) in entries(&path)? {
                if is_json(&path) || file == "README.md" || file == "chart.svg" {
                    found.push(Path::new(cluster).join(&experiment).join(file));
                }
            }
        }
    }
    Ok(found)
}

/// The entries of a directory by name.
fn entries(dir: &Path) -> Result<BTreeMap<String, PathBuf>, Invalid> {
    let read = || -> io::Result<BTreeMap<String, PathBuf>> {
        let entry = |entry: io::Result<fs::DirEntry>| {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            Ok((name, path))
        };
        fs::read_dir(dir)?.map(entry).collect()
    };
    read().map_err(|error| unreadable(dir, &error))
}

fn is_json(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "json")
}

fn unreadable(path: &Path, error: &io::Error) -> Invalid {
    Invalid::new(format!("cannot read {}: {error}", path.display()))
}

/// Reads a report per line, or the one of a crash test.
fn parse(name: &str, text: &str) -> Result<Vec<Parsed>, Invalid> {
    if let Ok(kills) = serde_json::from_str::<Kills>(text) {
        return Ok(vec![kills_run(name, kills, text)?]);
    }
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let parsed = lines.map(|(at, line)| {
        let report = serde_json::from_str::<Report>(line).map_err(|error| {
            let what = "not in the format of `curtail lab run --json`";
            Invalid::new(format!("{name}, line {}: {what}: {error}", at + 1))
        })?;
        run(name, report, line)
    });
    let parsed: Vec<Parsed> = parsed.collect::<Result<_, _>>()?;
    if parsed.is_empty() {
        return Err(Invalid::new(format!("{name} contains no experiment")));
    }
    Ok(parsed)
}

fn run(name: &str, report: Report, line: &str) -> Result<Parsed, Invalid> {
    let invalid = |text: &str| Invalid::new(format!("{name}: {text}"));
    let known = experiments::find(&report.experiment);
    let experiment = known.map_err(|error| invalid(&error.to_string()))?.name();
    let cluster = cluster_of(name, &report.cluster)?;
    let environment = &report.environment;
    let file = match (cluster, environment.started_ms) {
        (Cluster::Sim, _) => format!("seed-{}.json", report.seed),
        (_, 0) => return Err(invalid("the run has no date")),
        (_, started) => format!("{}.json", date::moment(started)),
    };
    if cluster != Cluster::Sim && !environment.release_build {
        return Err(invalid("not a run of a release build"));
    }
    if report.command.contains("--cluster-property") {
        return Err(invalid("its brokers had other settings than those of the experiment"));
    }
    Ok(Parsed::Run(cluster, experiment, Run { file, report, text: format!("{line}\n") }))
}

fn kills_run(name: &str, kills: Kills, text: &str) -> Result<Parsed, Invalid> {
    let cluster = cluster_of(name, &kills.cluster)?;
    let file = format!("{}.json", date::moment(kills.environment.started_ms));
    Ok(Parsed::Kills(cluster, KillsRun { file, kills, text: format!("{}\n", text.trim_end()) }))
}

fn cluster_of(name: &str, cluster: &str) -> Result<Cluster, Invalid> {
    Cluster::of(cluster).ok_or_else(|| {
        let known = Cluster::ALL.map(Cluster::name).join(", ");
        Invalid::new(format!("{name}: a run on {cluster}; the page has runs on {known}"))
    })
}
