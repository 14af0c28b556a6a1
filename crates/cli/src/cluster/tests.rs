use clap::Parser;

use super::*;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    arguments: Arguments,
}

fn config(arguments: &[&str]) -> Result<ClusterConfig, String> {
    let all = std::iter::once("cluster").chain(arguments.iter().copied());
    let parsed = Command::try_parse_from(all).map_err(|error| error.to_string())?;
    parsed.arguments.config().map_err(|failure| match failure {
        Failure::Message(text) => text,
        _ => panic!("another failure"),
    })
}

#[test]
fn flags_secure_the_listeners() {
    let config =
        config(&["--security-protocol", "sasl_ssl", "--user", "alice:secret:SCRAM-SHA-512"]);
    let security = config.unwrap().security;
    assert_eq!(security.protocol, SecurityProtocol::SaslSsl);
    let only = [curtail_cluster::Mechanism::ScramSha512];
    assert_eq!(security.users, [User::new("alice", "secret").mechanisms(only)]);
}

#[test]
fn secrets_are_not_repeated() {
    for text in ["topsecret", ":topsecret", "topsecret:"] {
        let complaint = config(&["--user", text]).unwrap_err();
        assert_eq!(complaint, "--user: expected NAME:PASSWORD or NAME:PASSWORD:MECHANISM");
    }
    let command = Command::try_parse_from(["cluster", "--user", "alice:topsecret"]).unwrap();
    assert!(!format!("{:?}", command.arguments).contains("topsecret"));
}

#[test]
fn clients_are_told_an_address_they_can_dial() {
    let address = |arguments: &[&str]| config(arguments).map(|config| (config.bind, config.host));
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    assert_eq!(address(&[]), Ok((None, ip("127.0.0.1"))));
    assert_eq!(address(&["--listen", "10.0.0.1"]), Ok((Some(ip("10.0.0.1")), ip("10.0.0.1"))));
    assert_eq!(
        address(&["--listen", "0.0.0.0", "--advertise", "10.0.0.1"]),
        Ok((Some(ip("0.0.0.0")), ip("10.0.0.1")))
    );
    assert!(address(&["--listen", "::"]).unwrap_err().contains("--advertise"));
    assert!(address(&["--advertise", "0.0.0.0"]).is_err());
}
