use clap::Parser as _;

use super::*;

#[derive(Debug, clap::Parser)]
struct Command {
    #[command(flatten)]
    arguments: Arguments,
}

fn config(arguments: &[&str]) -> Result<ProxyConfig, String> {
    let all = ["proxy", "--to", "kafka:9092"].iter().chain(arguments);
    let command = Command::try_parse_from(all).map_err(|error| error.to_string())?;
    command.arguments.config().map_err(|failure| match failure {
        Failure::Message(text) => text,
        other => panic!("{other:?}"),
    })
}

#[test]
fn loopback_is_the_default() {
    assert_eq!(config(&[]).unwrap().listen, loopback(DEFAULT_PORT));
    assert_eq!(config(&["--ephemeral"]).unwrap().listen, loopback(0));
    assert_eq!(config(&["--listen", "7000"]).unwrap().listen, loopback(7000));
}

#[test]
fn addresses_beyond_loopback_need_consent() {
    let error = config(&["--listen", "10.0.0.1:9092"]).unwrap_err();
    assert!(error.contains("unencrypted") && error.contains("--insecure"), "{error}");
    assert!(config(&["--listen", "10.0.0.1:9092", "--insecure"]).is_ok());
    let error = config(&["--control", "10.0.0.1:8642"]).unwrap_err();
    assert!(error.contains("inject faults"), "{error}");
    let error = config(&["--listen", "0.0.0.0:9092", "--insecure"]).unwrap_err();
    assert!(error.contains("--advertise"), "{error}");
    let all = ["--listen", "0.0.0.0:9092", "--insecure", "--advertise", "proxy.test"];
    assert_eq!(config(&all).unwrap().advertise.as_deref(), Some("proxy.test"));
}

#[test]
fn an_advertised_host_has_no_port() {
    for host in ["", "proxy:9092", "http://proxy"] {
        let error = config(&["--advertise", host]).unwrap_err();
        assert!(error.contains("without a port"), "{error}");
    }
    assert!(config(&["--advertise", "::1"]).is_ok());
}

#[test]
fn tls_is_used_if_the_properties_ask_for_it() {
    assert!(config(&[]).unwrap().secure.is_none());
    assert!(config(&["--property", "security.protocol=PLAINTEXT"]).unwrap().secure.is_none());
    assert!(config(&["--property", "security.protocol=SSL"]).unwrap().secure.is_some());
}
