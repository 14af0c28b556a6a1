use super::*;

fn peers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../peers")
}

#[test]
fn every_driver_has_its_sources_in_the_checkout() {
    for peer in Peer::ALL {
        let recipe = Recipe::of(peer, &peers());
        let folder = peers().join(recipe.folder);
        let sources = ["Cargo.toml", "pom.xml", "go.mod"];
        assert!(sources.iter().any(|file| folder.join(file).is_file()), "{peer:?}");
        assert!(recipe.made.starts_with(&folder), "{recipe:?}");
    }
    let found = Checkout::find(None).unwrap();
    assert_eq!(found.folder.canonicalize().unwrap(), peers().canonicalize().unwrap());
}

#[test]
fn releases_of_java_have_separate_build_folders() {
    let of = |peer| Recipe::of(peer, Path::new("p"));
    assert_eq!(of(Peer::Java).build, words(["mvn", "-q", "-B", "package"]));
    assert_eq!(of(Peer::Java).made, Path::new("p/java/target/curtail-peer-java.jar"));
    let old = of(Peer::Java36);
    let given = words(["-Dkafka.version=3.6.2", "-Dpeer.directory=p/java/target/3.6.2"]);
    assert_eq!(old.build[4..], given);
    assert_eq!(old.made, Path::new("p/java/target/3.6.2/curtail-peer-java.jar"));
    let classes = "p/java/target/3.6.2/curtail-peer-java.jar:p/java/target/3.6.2/jars/*";
    assert_eq!(old.run[7..], words([classes, "curtail.peers.Main"]));
}

#[test]
fn a_missing_tool_is_named_with_what_to_do() {
    let needs = [CARGO, ("no-such-program", "install it")];
    let error = require(Peer::Librdkafka, needs.iter()).unwrap_err().to_string();
    assert_eq!(error, "librdkafka cannot be built: `no-such-program` is missing: install it");
    let error = Checkout::find(Some(Path::new("/nowhere"))).unwrap_err().to_string();
    assert_eq!(error, "/nowhere is not the directory `peers` of the project's checkout");
}

#[test]
fn a_driver_is_current_until_a_source_changes() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str, seconds: u64| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let file = fs::File::create(&path).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds))
            .unwrap();
        path
    };
    let made = at("target/driver.jar", 20);
    assert!(!is_current(&folder.path().join("target/none.jar"), folder.path()));
    at("src/main/Main.java", 10);
    at("target/jars/other.jar", 30);
    assert!(is_current(&made, folder.path()));
    at("src/main/Main.java", 21);
    assert!(!is_current(&made, folder.path()));
}
