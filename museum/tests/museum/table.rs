//! The table in the README, made from the head of each case.

use std::{collections::BTreeSet, fs, path::PathBuf};

use crate::cases::NAMES;

const BEGIN: &str = "<!-- cases -->\n";
const END: &str = "<!-- end of cases -->\n";

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn source(name: &str) -> String {
    let path = root().join("tests/museum/cases").join(format!("{name}.rs"));
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The value of a `//! - Name: value` line.
fn field(name: &str, source: &str, field: &str) -> String {
    let prefix = format!("//! - {field}: ");
    let mut lines = source.lines().filter_map(|line| line.strip_prefix(&prefix));
    let value = lines.next().unwrap_or_else(|| panic!("{name} has no {field}"));
    assert!(lines.next().is_none(), "{name} has two lines {field}");
    assert!(!value.trim().is_empty() && !value.contains('|'), "{name}: {field}");
    value.to_owned()
}

/// A link with the short name of a thread or commit: `owner/name#123`.
fn thread(text: &str) -> String {
    let Some(path) = text.strip_prefix("https://github.com/") else { return text.to_owned() };
    let parts: Vec<&str> = path.split('/').collect();
    match parts[..] {
        [owner, repository, "issues" | "pull", number] => {
            format!("[{owner}/{repository}#{number}]({text})")
        }
        [owner, repository, "commit", hash] => format!("[{owner}/{repository}@{hash}]({text})"),
        _ => panic!("{text} is no thread"),
    }
}

fn row(name: &str) -> String {
    let source = source(name);
    let [client, failure, promise] =
        ["Client", "Failure", "Promise"].map(|wanted| field(name, &source, wanted));
    let threads = field(name, &source, "Threads");
    let threads: Vec<String> = threads.split(", ").map(thread).collect();
    let link = format!("[{name}](tests/museum/cases/{name}.rs)");
    format!("| {link} | {client} | {} | {failure} | {promise} |\n", threads.join(", "))
}

#[test]
fn every_file_is_a_case_with_a_test() {
    let files = fs::read_dir(root().join("tests/museum/cases")).unwrap();
    let files: BTreeSet<String> = files
        .map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .filter(|name| name != "mod")
        .collect();
    assert_eq!(files, NAMES.iter().map(|name| (*name).to_owned()).collect());
    for name in NAMES {
        let source = source(name);
        assert!(source.contains("#[test]"), "{name} has no test");
        let threads = field(name, &source, "Threads");
        assert!(threads.contains("https://"), "{name} names no thread that can be read");
    }
}

/// `MUSEUM_TABLE=write` writes the table instead.
#[test]
fn readme_has_the_table_of_the_cases() {
    let path = root().join("README.md");
    let readme = fs::read_to_string(&path).unwrap();
    let (head, rest) = readme.split_once(BEGIN).expect("a mark before the table");
    let (table, tail) = rest.split_once(END).expect("a mark after the table");
    let mut expected =
        "\n| case | client | threads | failure | promise |\n|---|---|---|---|---|\n".to_owned();
    expected.extend(NAMES.iter().map(|name| row(name)));
    expected.push('\n');
    if std::env::var("MUSEUM_TABLE").is_ok_and(|value| value == "write") {
        fs::write(&path, [head, BEGIN, &expected, END, tail].concat()).unwrap();
        return;
    }
    assert!(
        table == expected,
        "the table is outdated; run MUSEUM_TABLE=write cargo test -p curtail-museum readme"
    );
}
