//! `curtail lab publish`, with the runs of the checkout.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::common::{Run, run};

struct Published {
    dir: tempfile::TempDir,
}

impl Published {
    /// An empty directory of results and a README with marks.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("results")).unwrap();
        fs::write(dir.path().join("README.md"), "<!-- results -->\n<!-- end of results -->\n")
            .unwrap();
        Self { dir }
    }

    fn results(&self) -> PathBuf {
        self.dir.path().join("results")
    }

    fn readme(&self) -> PathBuf {
        self.dir.path().join("README.md")
    }

    fn run(&self, arguments: &[&str]) -> Run {
        publish(&self.results(), &self.readme(), arguments)
    }
}

fn publish(results: &Path, readme: &Path, arguments: &[&str]) -> Run {
    let (results, readme) = (results.to_str().unwrap(), readme.to_str().unwrap());
    let all = ["lab", "publish", "--dir", results, "--readme", readme];
    run(&[&all[..], arguments].concat())
}

/// A run of the checkout: this experiment on the simulated cluster.
fn kept(experiment: &str) -> String {
    let path = format!("../../docs/results/sim/{experiment}/seed-1.json");
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path).to_str().unwrap().to_owned()
}

#[test]
fn a_published_run_is_kept_and_the_check_notices_a_changed_page() {
    let published = Published::new();
    let out = published.run(&[&kept("acks"), &kept("linger")]);
    assert_eq!(out.code, Some(0), "{out:?}");
    let copy = published.results().join("sim/acks/seed-1.json");
    assert_eq!(fs::read(&copy).unwrap(), fs::read(kept("acks")).unwrap());
    assert_eq!(published.run(&["--check"]).code, Some(0));

    let page = published.results().join("README.md");
    fs::write(&page, fs::read_to_string(&page).unwrap() + "one more line\n").unwrap();
    let said = published.run(&["--check"]).failed();
    assert!(said.ends_with("README.md: out of date; run `curtail lab publish`"), "{said}");
    assert_eq!(published.run(&[]).code, Some(0));
    assert_eq!(published.run(&["--check"]).code, Some(0));
}

#[test]
fn bad_input_of_publish_is_one_line() {
    let published = Published::new();
    let (results, readme) = (published.results(), published.readme());
    let nowhere = Path::new("/nonexistent");
    let said = publish(nowhere, &readme, &[]).failed();
    assert!(said.starts_with("/nonexistent: no such directory; run this in"), "{said}");
    let said = publish(&results, nowhere, &[]).failed();
    assert!(said.starts_with("cannot read /nonexistent: "), "{said}");

    let damaged = published.dir.path().join("damaged.json");
    fs::write(&damaged, &fs::read_to_string(kept("acks")).unwrap()[..100]).unwrap();
    let said = published.run(&[damaged.to_str().unwrap()]).failed();
    assert!(
        said.contains("damaged.json, line 1: not in the format of `curtail lab run --json`: "),
        "{said}"
    );
    fs::remove_file(&damaged).unwrap();
    let said = published.run(&[damaged.to_str().unwrap()]).failed();
    assert!(said.starts_with("cannot read ") && said.contains("damaged.json: "), "{said}");
    assert!(!results.join("README.md").exists(), "nothing was written");
}
