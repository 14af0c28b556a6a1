use clap::Parser;
use curtail_cluster::User;

use super::*;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    arguments: Arguments,
}

fn config(arguments: &[&str]) -> Result<ClusterConfig, String> {
    let all = std::iter::once("cluster").chain(arguments.iter().copied());
    let parsed = Command::try_parse_from(all).map_err(|error| error.to_string())?;
    let prepared = parsed.arguments.prepare().map_err(|failure| match failure {
        Failure::Message(text) => text,
        _ => panic!("another failure"),
    });
    prepared.map(|prepared| prepared.config)
}

/// Returns the values of `listeners` and `advertised.listeners`.
fn placed(arguments: &[&str]) -> Result<(String, String), String> {
    let config = config(arguments)?;
    let value = |name| config.properties().find(|(known, _)| *known == name).unwrap().1;
    Ok((value("listeners"), value("advertised.listeners")))
}

#[test]
fn flags_secure_the_listeners() {
    let config =
        config(&["--security-protocol", "sasl_ssl", "--user", "alice:secret:SCRAM-SHA-512"]);
    let config = config.unwrap();
    assert_eq!(config.listeners_of(1).unwrap()[0].protocol, SecurityProtocol::SaslSsl);
    let security = config.security;
    let only = [curtail_cluster::Mechanism::ScramSha512];
    assert_eq!(security.users, [User::new("alice", "secret").mechanisms(only)]);
}

#[test]
fn secrets_are_not_repeated() {
    for text in ["topsecret", ":topsecret", "topsecret:"] {
        let complaint = config(&["--user", text]).unwrap_err();
        assert_eq!(complaint, "--user: expected NAME:PASSWORD or NAME:PASSWORD:MECHANISM");
    }
    let complaint = config(&["--user", "alice:topsecret:SCRAM-SHA256"]).unwrap_err();
    assert_eq!(
        complaint,
        "--user: no mechanism has the name after the last colon; did you mean SCRAM-SHA-256? A password with such \
         an end needs a mechanism after it"
    );
    let command = Command::try_parse_from(["cluster", "--user", "alice:topsecret"]).unwrap();
    assert!(!format!("{:?}", command.arguments).contains("topsecret"));
}

#[test]
fn the_advertised_address_is_reachable() {
    let address = |arguments: &[&str]| placed(&[arguments, &["--insecure"]].concat());
    let expected = |listeners: &str, advertised: &str| {
        Ok::<_, String>((format!("PLAINTEXT://{listeners}"), advertised.to_owned()))
    };
    assert_eq!(address(&[]), expected("127.0.0.1:9092", ""));
    assert_eq!(address(&["--ephemeral"]), expected("127.0.0.1:0", ""));
    assert_eq!(address(&["--listen", "10.0.0.1"]), expected("10.0.0.1:9092", ""));
    assert_eq!(address(&["--listen", "::1", "--port", "1"]), expected("[::1]:1", ""));
    assert_eq!(
        address(&["--listen", "0.0.0.0", "--advertise", "kafka.example"]),
        expected("0.0.0.0:9092", "PLAINTEXT://kafka.example:0")
    );
    assert_eq!(
        address(&["--advertise", "10.0.0.1"]),
        expected("10.0.0.1:9092", "PLAINTEXT://10.0.0.1:0")
    );
    assert!(address(&["--listen", "::"]).unwrap_err().contains("--advertise"));
    assert!(address(&["--advertise", "0.0.0.0"]).is_err());
    assert!(address(&["--advertise", ""]).unwrap_err().contains("expected a host name"));
    assert!(address(&["--listen", "a b"]).unwrap_err().contains("expected a host name"));
}

/// The defaults of an image give way to every setting of its user.
#[test]
fn a_container_listens_on_every_address_unless_told_otherwise() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    std::fs::write(path, "listeners=A://:1\nadvertised.listeners=A://h:1\nlistener.security.protocol.map=A:PLAINTEXT\n")
        .unwrap();
    let placed = |flags: &[&str]| {
        let image = ["--env", "--container", "--insecure"];
        let (listeners, advertised) = placed(&[&image[..], flags].concat()).unwrap();
        format!("{listeners} {advertised}")
    };
    assert_eq!(placed(&[]), "PLAINTEXT://:9092 PLAINTEXT://localhost:0");
    assert_eq!(placed(&["--port", "1"]), "PLAINTEXT://:1 PLAINTEXT://localhost:0");
    assert_eq!(placed(&["--security-protocol", "SSL"]), "SSL://:9092 SSL://localhost:0");
    assert_eq!(placed(&["--advertise", "h"]), "PLAINTEXT://:9092 PLAINTEXT://h:0");
    assert_eq!(placed(&["--listen", "h"]), "PLAINTEXT://h:9092 ");
    assert_eq!(placed(&["--config", path]), "A://:1 A://h:1");
    let advertised = ["--property", "advertised.listeners=PLAINTEXT://h:7"];
    assert_eq!(placed(&advertised), "PLAINTEXT://:7 PLAINTEXT://h:7");
}

#[test]
fn a_flag_takes_a_value_that_the_cluster_has_anyway() {
    config(&["--property", "delete.topic.enable=true"]).unwrap();
    let error = config(&["--property", "num.io.threads=8"]).unwrap_err();
    assert!(error.contains("it would have no effect"), "{error}");
}

#[test]
fn properties_of_the_flags_override_those_of_a_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    std::fs::write(path, "num.partitions=4\nmin.insync.replicas=2\nlog.segment.bytes=2097152\n")
        .unwrap();
    let read = |flags: &[&str]| {
        let config = config(&[&["--config", path][..], flags].concat()).unwrap();
        (config.num_partitions, config.min_insync_replicas, config.log_segment_bytes)
    };
    assert_eq!(read(&[]), (4, 2, 2_097_152));
    assert_eq!(read(&["--partitions", "5"]), (5, 2, 2_097_152));
    let more = ["--partitions", "5", "--property", "num.partitions=6"];
    assert_eq!(read(&[&more[..], &["--property", "min.insync.replicas=1"]].concat()).0, 6);
}

#[test]
fn a_file_opens_listeners_that_flags_must_not_contradict() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let listeners = "PLAINTEXT://localhost:9092;PLAINTEXT://localhost:9192";
    std::fs::write(path, format!("listeners={listeners}\n")).unwrap();
    let brokers = config(&["--config", path]).unwrap();
    assert_eq!((brokers.brokers, brokers.default_replication_factor), (2, 2));
    brokers.validate().unwrap();
    for flags in [["--port", "1"], ["--listen", "::1"], ["--security-protocol", "SSL"]] {
        let error = config(&[&["--config", path][..], &flags].concat()).unwrap_err();
        let said = format!("{} and listeners in {path} both say where clients connect", flags[0]);
        assert!(error.starts_with(&said), "{error}");
    }
    let error = config(&["--port", "1", "--property", "listeners=PLAINTEXT://localhost:1"]);
    assert!(error.unwrap_err().contains("--property listeners"));
    std::fs::write(path, "listeners=PLAINTEXT://:9092\nadvertised.listeners=PLAINTEXT://h:1\n")
        .unwrap();
    let error = config(&["--config", path]).unwrap_err();
    assert!(error.starts_with("listening on every address with PLAINTEXT"), "{error}");
    assert!(!error.contains("--security-protocol"), "{error}");
    std::fs::write(path, "advertised.listeners=PLAINTEXT://h:1\n").unwrap();
    let expected = ("PLAINTEXT://127.0.0.1:9092".to_owned(), "PLAINTEXT://h:1".to_owned());
    assert_eq!(placed(&["--config", path]), Ok(expected));
    let with_sasl =
        ["--property", "listeners=PLAINTEXT://localhost:1,SASL_PLAINTEXT://10.0.0.1:11"];
    let with_sasl = [&with_sasl[..], &["--user", "alice:secret"]].concat();
    let error = config(&with_sasl).unwrap_err();
    assert!(error.starts_with("listening on 10.0.0.1 with SASL_PLAINTEXT"), "{error}");
}

#[test]
fn listening_beyond_this_machine_needs_encryption_and_authentication_or_a_flag() {
    let sasl_ssl = ["--security-protocol", "SASL_SSL", "--user", "a:b"];
    let sasl = ["--security-protocol", "SASL_PLAINTEXT", "--user", "a:b"];
    let ssl = ["--security-protocol", "SSL"];
    let certificates =
        ["--property", "ssl.client.auth=required", "--property", "ssl.truststore.location=x"];
    let with_certificates = [&ssl[..], &certificates].concat();
    for (arguments, safe) in [
        (&[][..], false),
        (&ssl[..], false),
        (&sasl[..], false),
        (&sasl_ssl[..], true),
        (&with_certificates[..], true),
    ] {
        config(arguments).unwrap();
        let open = [arguments, &["--listen", "10.0.0.1"]].concat();
        match config(&open) {
            Ok(_) => assert!(safe, "{arguments:?}"),
            Err(error) => {
                assert!(!safe && error.contains("10.0.0.1"), "{arguments:?}: {error}");
                assert!(error.contains("add --insecure"), "{error}");
            }
        }
        config(&[&open[..], &["--insecure"]].concat()).unwrap();
    }
    assert!(config(&["--advertise", "10.0.0.1"]).unwrap_err().contains("--insecure"));
}

#[test]
fn users_come_from_a_file_without_being_repeated() {
    use std::os::unix::fs::PermissionsExt as _;
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let with_file = |text: &str| {
        std::fs::write(path, text).unwrap();
        config(&["--security-protocol", "SASL_PLAINTEXT", "--user-file", path])
    };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let users = with_file("# admins\nalice:topsecret\n\nbob:x:PLAIN\n").unwrap().security.users;
    let bob = User::new("bob", "x").mechanisms([curtail_cluster::Mechanism::Plain]);
    assert_eq!(users, [User::new("alice", "topsecret"), bob]);
    let error = with_file("alice:a\ntopsecret\n").unwrap_err();
    assert!(error.contains("line 2: expected NAME:PASSWORD"), "{error}");
    assert!(error.contains(path) && !error.contains("topsecret"), "{error}");
    let error = config(&["--user-file", "/no/such/file"]).unwrap_err();
    assert!(error.contains("cannot read /no/such/file"), "{error}");
}

#[test]
fn a_directory_made_with_some_brokers_is_used_with_as_many() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    assert_eq!(config(&["--data", path]).unwrap().brokers, 3);
    let line = "{\"cluster\":{\"id\":\"x\",\"brokers\":2}}\n";
    std::fs::write(dir.path().join("cluster-metadata.jsonl"), line).unwrap();
    let used = config(&["--data", path]).unwrap();
    assert_eq!((used.brokers, used.default_replication_factor), (2, 2));
    assert_eq!(config(&["--data", path, "--brokers", "5"]).unwrap().brokers, 5);
    assert!(config(&["--data", path, "--resize"]).unwrap_err().contains("--brokers"));
}
