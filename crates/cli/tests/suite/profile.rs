//! Profiles: client properties by name.

use std::{fs, path::Path, process::Command};

use crate::common::{Cluster, Run, curtail, run};

struct Folder(tempfile::TempDir);

impl Folder {
    fn with(profiles: &[(&str, String)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("curtail")).unwrap();
        for (name, text) in profiles {
            fs::write(directory.path().join(format!("curtail/{name}.properties")), text).unwrap();
        }
        Self(directory)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn run(&self, arguments: &[&str]) -> Run {
        finish(curtail().args(arguments).env("XDG_CONFIG_HOME", self.path()))
    }

    /// With `CURTAIL_PROFILE`.
    fn run_in(&self, profile: &str, arguments: &[&str]) -> Run {
        let mut command = curtail();
        command.args(arguments).env("XDG_CONFIG_HOME", self.path());
        finish(command.env("CURTAIL_PROFILE", profile))
    }
}

fn finish(command: &mut Command) -> Run {
    let output = command.output().unwrap();
    Run {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

#[test]
fn a_profile_has_the_address_and_the_security_of_a_cluster() {
    let data = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(&[
        "--brokers",
        "1",
        "--security-protocol",
        "SASL_PLAINTEXT",
        "--user",
        "alice:secret:SCRAM-SHA-512",
        "--data",
        data.path().to_str().unwrap(),
    ]);
    let written = fs::read_to_string(data.path().join("client-alice.properties")).unwrap();
    let servers = format!("bootstrap.servers={}\n", cluster.bootstrap);
    let nowhere = "bootstrap.servers=no-such-host.invalid:9092\n".to_owned();
    let folder = Folder::with(&[("local", written + "\n" + &servers), ("nowhere", nowhere)]);
    folder.run(&["topics", "create", "t", "--profile", "local"]).ok();
    assert_eq!(folder.run_in("local", &["topics", "list"]).ok(), "t\n");
    // The flag counts more than the variable, and the address more than the profile.
    assert_eq!(folder.run_in("nowhere", &["topics", "list", "--profile", "local"]).ok(), "t\n");
    let refused = folder.run_in("nowhere", &["topics", "list"]).failed();
    assert!(refused.contains("'no-such-host.invalid'"), "{refused}");
    let elsewhere = ["topics", "list", "--profile", "local", "-b", "other-host.invalid:1"];
    assert!(folder.run(&elsewhere).failed().contains("'other-host.invalid'"));
    let consumed = folder.run(&["consume", "t", "-e", "--profile", "local"]).ok();
    assert_eq!(consumed, "");
    let perf = ["perf", "consume", "--topic", "missing", "--profile", "local"];
    assert!(folder.run(&perf).failed().starts_with("topic 'missing' does not exist"));
}

/// Otherwise the password of one cluster would be sent to another.
#[test]
fn the_variable_does_not_count_with_a_file_of_properties() {
    let wrong = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n".to_owned();
    let folder = Folder::with(&[("prod", wrong + "bootstrap.servers=prod.invalid:9092\n")]);
    let file = folder.path().join("test.properties");
    fs::write(&file, "client.id=x\n").unwrap();
    let cluster = Cluster::start(&["--brokers", "1"]);
    let file = ["--command-config", file.to_str().unwrap()];
    for tool in [&["topics", "create", "t"][..], &["consume", "t", "-e"], &["produce", "-t", "t"]] {
        let at_cluster = [tool, &file, &["-b", &cluster.bootstrap]].concat();
        folder.run_in("prod", &at_cluster).ok();
    }
    let both = [&["topics", "list"][..], &file, &["--profile", "prod"]].concat();
    let refused = folder.run(&both).failed();
    assert!(refused.contains("sasl.jaas.config is required"), "the flag counts: {refused}");
}

#[test]
fn wrong_profiles_are_one_line_that_lists_the_known_ones() {
    let folder = Folder::with(&[("prod", String::new()), ("wrong", "linger=5\n".to_owned())]);
    let shown = folder.path().join("curtail").display().to_string();
    let expected =
        format!("no profile 'prd' in {shown}; did you mean 'prod'? known profiles: prod, wrong");
    assert_eq!(folder.run(&["topics", "list", "--profile", "prd"]).failed(), expected);
    let from_variable = folder.run_in("prd", &["topics", "list"]).failed();
    assert_eq!(from_variable, format!("CURTAIL_PROFILE: {expected}"));
    for tool in
        [&["perf", "produce"][..], &["doctor", "--target-p99", "9ms", "--throughput", "1MB/s"]]
    {
        let error = folder.run(&[tool, &["--profile", "prd"]].concat()).failed();
        assert_eq!(error, expected, "{tool:?}");
    }
    let doctor = ["doctor", "--target-p99", "9ms", "--throughput", "1MB/s"];
    let error = folder.run_in("prod", &doctor).failed();
    assert!(
        error.contains("--bootstrap-server"),
        "the variable chooses no cluster to load: {error}"
    );
    let unknown = folder.run(&["topics", "list", "--profile", "wrong"]).failed();
    assert!(unknown.contains("wrong.properties:1: unknown property 'linger'"), "{unknown}");
    let path = run(&["topics", "list", "--profile", "./prod.properties"]).failed();
    assert!(path.contains("--command-config FILE"), "{path}");
}
