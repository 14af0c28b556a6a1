use std::path::PathBuf;

use proptest::prelude::*;

use super::{allowlist::Allowlist, *};
use crate::{ConsumerConfig, ProducerConfig};

const CLASSES: &str = "org.apache.kafka.common.config.provider.";

/// Settings with the providers `env`, `file` and `dir`.
fn config() -> ProducerConfig {
    let mut config = ProducerConfig::default();
    config.set("config.providers", "env,file,dir").unwrap();
    for (name, class) in [("env", "EnvVar"), ("file", "File"), ("dir", "Directory")] {
        let class = format!("{CLASSES}{class}ConfigProvider");
        config.set(&format!("config.providers.{name}.class"), &class).unwrap();
    }
    config
}

/// The client id that a value gives.
fn id(config: &ProducerConfig, value: &str) -> String {
    let mut config = config.clone();
    config.set("client.id", value).unwrap();
    config.common.client_id
}

fn folder(files: &[(&str, &str)]) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        std::fs::write(folder.path().join(name), content).unwrap();
    }
    let path = folder.path().canonicalize().unwrap().display().to_string();
    // On Windows without the prefix of a canonical path, and with separators that a property file does not escape.
    let path = path.trim_start_matches(r"\\?\").replace('\\', "/");
    (folder, path)
}

#[test]
fn variables_are_found_as_by_javas_expression() {
    let cases = [
        ("${env:KEY}", Some(("env", "", "KEY"))),
        ("a ${file:/a/b:key} b", Some(("file", "/a/b", "key"))),
        // Only the first two colons separate.
        ("${file:/a:b:c}", Some(("file", "/a", "b:c"))),
        ("${file::key}", Some(("file", "", "key"))),
        ("${:}", Some(("", "", ""))),
        ("${a}${env:KEY}", Some(("env", "", "KEY"))),
        ("${ ${env:KEY}", Some((" ${env", "", "KEY"))),
        ("${env:KEY", None),
        ("$env:KEY}", None),
        ("${env}", None),
        ("", None),
    ];
    for (text, expected) in cases {
        let found =
            find(text).map(|(_, _, Variable { provider, path, key })| (provider, path, key));
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn values_come_from_the_environment_a_file_or_a_directory() {
    // Cargo sets it for tests.
    let environment = std::env::var("CARGO_PKG_NAME").unwrap();
    let (_folder, path) = folder(&[
        (
            "secrets.properties",
            "# c\nuser = ann\nuser=bob\npassword=a\\u0021${env:CARGO_PKG_NAME}\n",
        ),
        ("token", "abc\n"),
    ]);
    let config = config();
    assert_eq!(id(&config, "x-${env:CARGO_PKG_NAME}-y"), format!("x-{environment}-y"));
    let file = format!("${{file:{path}/secrets.properties:user}}");
    assert_eq!(id(&config, &format!("{file}+{file}")), "bob+bob");
    // A replacement is not replaced again.
    let value = format!("${{file:{path}/secrets.properties:password}}");
    assert_eq!(id(&config, &value), "a!${env:CARGO_PKG_NAME}");
    // Java trims values after the replacement, too.
    assert_eq!(id(&config, &format!("${{dir:{path}:token}}")), "abc");
}

#[test]
fn variables_without_a_value_stay() {
    let (_folder, path) = folder(&[("a.properties", "k=v"), ("f", "x")]);
    let mut config = config();
    // A provider without a class is not a provider, as in Java.
    config.set("config.providers", "env,file,dir,none").unwrap();
    let same = [
        "${env:CURTAIL_NO_SUCH_VARIABLE}".to_owned(),
        "${vault:/a:b}".to_owned(),
        "${none:b}".to_owned(),
        format!("${{file:{path}/a.properties:missing}}"),
        "${file:k}".to_owned(),
        format!("${{dir:{path}:missing}}"),
        format!("${{dir:{path}:../f}}"),
        format!("${{dir:{path}/f:f}}"),
        "${env:A=B}".to_owned(),
        "${env}".to_owned(),
    ];
    for value in same {
        assert_eq!(id(&config, &value), value);
    }
    // Without providers nothing is looked up.
    assert_eq!(id(&ProducerConfig::default(), "${env:CARGO_PKG_NAME}"), "${env:CARGO_PKG_NAME}");
}

#[test]
fn paths_outside_the_allowed_ones_are_not_read() {
    let (_folder, path) = folder(&[("a.properties", "k=v"), ("f", "x")]);
    std::fs::create_dir(PathBuf::from(&path).join("in")).unwrap();
    std::fs::write(PathBuf::from(&path).join("in/a.properties"), "k=inner").unwrap();
    std::fs::write(PathBuf::from(&path).join("in/f"), "inner").unwrap();
    let mut config = config();
    for provider in ["file", "dir"] {
        let name = format!("config.providers.{provider}.param.allowed.paths");
        config.set(&name, &format!("{path}/in")).unwrap();
    }
    let kept = [
        format!("${{file:{path}/a.properties:k}}"),
        format!("${{file:{path}/in/../a.properties:k}}"),
        format!("${{file:{path}/inner/a.properties:k}}"),
        format!("${{dir:{path}:f}}"),
    ];
    for value in kept {
        assert_eq!(id(&config, &value), value);
    }
    assert_eq!(id(&config, &format!("${{file:{path}/in/./a.properties:k}}")), "inner");
    assert_eq!(id(&config, &format!("${{dir:{path}/x/../in:f}}")), "inner");
    let absent = format!("{path}/absent");
    for (paths, why) in [("in", "not absolute"), (&absent, "does not exist")] {
        let refused = config.set("config.providers.file.param.allowed.paths", paths).unwrap_err();
        assert!(refused.to_string().contains(why), "{refused}");
    }
}

#[test]
fn variables_outside_the_allowlist_are_not_read() {
    let mut config = config();
    let pattern = "config.providers.env.param.allowlist.pattern";
    config.set(pattern, "CARGO_PKG_.*|HOME").unwrap();
    let environment = std::env::var("CARGO_PKG_NAME").unwrap();
    assert_eq!(id(&config, "${env:CARGO_PKG_NAME}"), environment);
    config.set(pattern, "CARGO_PKG").unwrap();
    assert_eq!(id(&config, "${env:CARGO_PKG_NAME}"), "${env:CARGO_PKG_NAME}");
    let refused = config.set(pattern, "(?i)cargo.*").unwrap_err().to_string();
    assert!(refused.contains(pattern) && refused.contains("(?"), "{refused}");
}

#[test]
fn errors_name_the_variable_and_never_its_value() {
    let (folder, path) =
        folder(&[("s.properties", "p=hunter2,hunter3"), ("bad.properties", "\np=hunter2\\u00")]);
    let config = config();
    let value = format!("${{file:{path}/s.properties:p}}");
    for name in ["linger.ms", "acks", "bootstrap.servers", "security.protocol", "config.provider"] {
        let mut changed = config.clone();
        let refused = changed.set(name, &value).unwrap_err().to_string();
        assert!(!refused.contains("hunter"), "{refused}");
        assert!(refused.contains(name), "{refused}");
    }
    let refused = config.clone().set("linger.ms", &value).unwrap_err().to_string();
    assert!(refused.contains(&value) && refused.contains("milliseconds"), "{refused}");
    let missing = config.clone().set("linger.ms", "${file:/no/such:p}").unwrap_err().to_string();
    assert!(missing.contains("linger.ms") && missing.contains("${file:/no/such:p}"), "{missing}");
    let bad = format!("${{file:{path}/bad.properties:p}}");
    let refused = config.clone().set("client.id", &bad).unwrap_err().to_string();
    assert!(refused.contains("line 2") && !refused.contains("hunter"), "{refused}");
    let with_path = config.clone().set("client.id", "${env:/a:B}").unwrap_err().to_string();
    assert!(with_path.contains("${env:/a:B}"), "{with_path}");
    // In a file the order does not matter, and errors have lines.
    let file = folder.path().join("client.properties");
    let text = format!(
        "bootstrap.servers=b:1\nlinger.ms={value}\nclient.id=${{file:{path}/s.properties:q}}\n\
         config.providers.file.class={CLASSES}FileConfigProvider\nconfig.providers=file\n"
    );
    std::fs::write(&file, text).unwrap();
    let refused = ProducerConfig::from_file(&file).unwrap_err().to_string();
    assert!(refused.contains("client.properties:2: linger.ms"), "{refused}");
    assert!(refused.contains(&value) && !refused.contains("hunter"), "{refused}");
}

#[test]
fn the_order_of_properties_does_not_matter() {
    let class = format!("{CLASSES}EnvVarConfigProvider");
    let properties = [
        ("client.id", "${e:CARGO_PKG_NAME}"),
        ("bootstrap.servers", "b:1"),
        ("config.providers.e.class", &class),
        ("config.providers", "e"),
    ];
    let config = ConsumerConfig::from_properties(properties).unwrap();
    assert_eq!(config.common.client_id, std::env::var("CARGO_PKG_NAME").unwrap());
}

/// Decision 0109: the value of a setting of another client is not checked.
#[test]
fn variables_of_settings_of_other_clients_are_not_looked_up() {
    let (folder, path) = folder(&[]);
    let file = folder.path().join("shared.properties");
    let text = format!(
        "bootstrap.servers=b:1\ngroup.id=${{file:{path}/missing:group}}\n\
         config.providers=file\nconfig.providers.file.class={CLASSES}FileConfigProvider\n"
    );
    std::fs::write(&file, text).unwrap();
    ProducerConfig::from_file(&file).unwrap();
    let refused = ConsumerConfig::from_file(&file).unwrap_err().to_string();
    assert!(refused.contains("shared.properties:2: group.id"), "{refused}");
    let unknown = config().set("linger.mss", "${file:/no/such:p}").unwrap_err().to_string();
    assert!(unknown.contains("did you mean 'linger.ms'"), "{unknown}");
}

/// A provider that is not built in may have a token among its parameters.
#[test]
fn debug_output_shows_no_parameter() {
    let mut config = config();
    config.set("config.providers.vault.param.token", "hunter2").unwrap();
    let shown = format!("{config:?}");
    assert!(shown.contains("token") && !shown.contains("hunter2"), "{shown}");
}

#[test]
fn classes_that_are_not_built_in_are_refused_once_they_are_listed() {
    let mut config = ProducerConfig::default();
    config.set("config.providers.vault.class", "com.example.Vault").unwrap();
    let refused = config.set("config.providers", "vault").unwrap_err().to_string();
    assert!(refused.contains("config.providers.vault.class=com.example.Vault"), "{refused}");
    config.set("config.providers", "").unwrap();
}

#[test]
fn patterns_match_whole_names() {
    let cases: [(&str, &[&str], &[&str]); 11] = [
        ("", &[""], &["A"]),
        (".*", &["", "AB"], &["A\n"]),
        ("KAFKA_.*", &["KAFKA_", "KAFKA_A"], &["XKAFKA_A", "KAFKA"]),
        ("A|BC", &["A", "BC"], &["AC", "ABC", ""]),
        ("(A|B)+C?", &["A", "ABBC"], &["C", "ACC"]),
        ("[A-C_]+", &["A_C"], &["D", ""]),
        ("[^A-C]", &["D", "-"], &["A", ""]),
        ("[A-]", &["A", "-"], &["B"]),
        (r"\w\d\.", &["a1."], &["a1x", "-1."]),
        ("(?:AB)*", &["", "ABAB"], &["ABA"]),
        ("(A*)*B", &["B", "AAAB"], &["A"]),
    ];
    for (pattern, matching, others) in cases {
        let allowlist = Allowlist::parse(pattern).unwrap();
        for name in matching {
            assert!(allowlist.matches(name), "{pattern} {name}");
        }
        for name in others {
            assert!(!allowlist.matches(name), "{pattern} {name}");
        }
    }
    // Exponential for an engine that backtracks.
    let allowlist = Allowlist::parse("(A|A)*(A|A)*(A|AA)*B").unwrap();
    assert!(!allowlist.matches(&"A".repeat(2_000)));
}

#[test]
fn constructs_that_are_not_supported_are_refused() {
    for pattern in [
        "^A", "A$", "A{2}", "A*?", "A++", "(?i)A", "(?=A)", "(?<n>A)", r"\p{L}", r"\1", r"\b",
        "[[A]B]", "[A&&B]", "[]", "[A", "(A", "A)", "*", r"[a\W]", r"[\.-z]", r"[a-\d]", "[b-a]",
        r"A\",
    ] {
        assert!(Allowlist::parse(pattern).is_err(), "{pattern}");
    }
    assert!(Allowlist::parse(&"(".repeat(10_000)).is_err());
}

fn check_text(text: &str, name: &str) {
    if let Some((start, end, variable)) = find(text) {
        assert!(text[start..end].starts_with("${") && text[start..end].ends_with('}'));
        assert!(!variable.key.contains('}'));
    }
    if let Ok(allowlist) = Allowlist::parse(text) {
        let _ = allowlist.matches(name);
    }
    // A literal name matches itself only.
    let literal = Allowlist::parse(name).unwrap();
    assert!(literal.matches(name) && !literal.matches(&format!("{name}_")));
}

proptest! {
    #[test]
    fn any_text_is_a_value_and_any_pattern_has_an_outcome(text in ".{0,40}", name in "[A-Z_]{0,10}") {
        check_text(&text, &name);
    }
}
