use std::{ffi::OsString, fs, path::PathBuf};

use super::{find, folder};
use crate::failure::Failure;

fn text<T: std::fmt::Debug>(result: Result<T, Failure>) -> String {
    match result {
        Err(Failure::Message(text)) => text,
        other => panic!("{other:?}"),
    }
}

#[cfg(unix)]
#[test]
fn profiles_are_in_the_xdg_folder_or_below_home() {
    let with = |variables: &[(&str, &str)]| {
        folder(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        })
    };
    let home = ("HOME", "/h");
    let path = |text: &str| PathBuf::from(text);
    assert_eq!(with(&[home]).unwrap(), path("/h/.config/curtail"));
    assert_eq!(with(&[home, ("XDG_CONFIG_HOME", "/x")]).unwrap(), path("/x/curtail"));
    for unset in ["", "relative"] {
        let found = with(&[home, ("XDG_CONFIG_HOME", unset)]).unwrap();
        assert_eq!(found, path("/h/.config/curtail"), "{unset}");
    }
    assert!(text(with(&[])).contains("set HOME or XDG_CONFIG_HOME"));
}

#[test]
fn a_wrong_profile_lists_the_known_ones() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("curtail");
    let file = |name: &str| folder.join(name);
    let missing = text(find(&folder, "prod"));
    let expected = format!("no profile 'prod'; create {} with ", file("prod.properties").display());
    assert!(missing.starts_with(&expected), "{missing}");
    fs::create_dir(&folder).unwrap();
    for name in ["test.properties", "prod.properties", "notes.txt"] {
        fs::write(file(name), "").unwrap();
    }
    assert_eq!(find(&folder, "prod").unwrap(), file("prod.properties"));
    let shown = folder.display();
    assert_eq!(
        text(find(&folder, "prd")),
        format!("no profile 'prd' in {shown}; did you mean 'prod'? known profiles: prod, test")
    );
    assert_eq!(
        text(find(&folder, "staging")),
        format!("no profile 'staging' in {shown}; known profiles: prod, test")
    );
    for name in ["", "../prod", ".prod", "a/b"] {
        assert!(text(find(&folder, name)).contains("--command-config FILE"), "{name}");
    }
}
