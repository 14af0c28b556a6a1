//! Scripts for shells and pages for man.

#[cfg(target_os = "linux")]
use std::process::Command;

use crate::common::{curtail, run};

#[test]
fn each_shell_gets_a_script_with_every_command() {
    for shell in ["bash", "zsh", "fish", "powershell"] {
        let script = run(&["completions", shell]).ok();
        for word in ["get-offsets", "find-hanging", "under-replicated-partitions"] {
            assert!(script.contains(word), "{shell} lacks {word}");
        }
    }
    let unknown = run(&["completions", "tcsh"]).failed();
    assert!(unknown.contains("bash, elvish, fish, powershell or zsh"), "{unknown}");
}

/// The completions that bash offers for the last of these words.
#[cfg(target_os = "linux")]
fn offered(words: &[&str]) -> Vec<String> {
    let script = r#"
        source "$1"; shift
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
        _curtail curtail "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), run(&["completions", "bash"]).ok()).unwrap();
    let output = Command::new("bash")
        .args(["-c", script, "bash"])
        .arg(file.path())
        .args(words)
        .output()
        .unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[cfg(target_os = "linux")]
#[test]
fn bash_completes_commands_flags_and_values() {
    assert_eq!(offered(&["curtail", "top"]), ["topics"]);
    assert_eq!(offered(&["curtail", "groups", "offsets", "re"]), ["reset"]);
    let flags = offered(&["curtail", "get-offsets", "--topic"]);
    assert_eq!(flags, ["--topic", "--topic-partitions"]);
    let types = offered(&["curtail", "elect", "--election-type", ""]);
    assert_eq!(types, ["preferred", "unclean"]);
}

#[test]
fn each_command_has_a_page_for_man() {
    let directory = tempfile::tempdir().unwrap();
    let pages = directory.path().join("man1");
    let written = run(&["man", pages.to_str().unwrap()]);
    assert_eq!(written.err, format!("wrote the pages to {}\n", pages.display()));
    written.ok();
    for page in ["curtail", "curtail-topics", "curtail-groups-offsets-reset"] {
        let text = std::fs::read_to_string(pages.join(format!("{page}.1"))).unwrap();
        assert!(text.contains(&format!(".TH {page} 1")), "{page}: {text}");
    }
    let file = pages.join("curtail.1");
    let error = run(&["man", file.to_str().unwrap()]).failed();
    assert!(
        error.starts_with(&format!("cannot write the pages to {}: ", file.display())),
        "{error}"
    );
}

/// The reader of a script may stop early, as `head` does.
#[test]
fn a_closed_reader_of_a_script_is_no_error() {
    let mut child = curtail()
        .args(["completions", "bash"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}
