//! Kafka's own tools on an embedded cluster with authentication over TLS: permissions and quotas.

use std::{path::Path, time::Duration};

use curtail_apache::{Output, Toolchain};
use curtail_cluster::{Listeners, SecurityProtocol, User};

use crate::common::Backend;

const LIMIT: Duration = Duration::from_secs(180);

struct Tools<'a> {
    toolchain: Toolchain,
    bootstrap: String,
    directory: &'a Path,
}

impl Tools<'_> {
    /// Runs a tool as a user, possibly with a wrong password.
    fn run(
        &self,
        class: &str,
        (user, password): (&str, &str),
        args: &[&str],
        stdin: &str,
    ) -> Output {
        let login = "org.apache.kafka.common.security.scram.ScramLoginModule";
        let properties = format!(
            "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nssl.truststore.type=PEM\n\
             ssl.truststore.location={}\n\
             sasl.jaas.config={login} required username=\"{user}\" password=\"{password}\";\n",
            self.directory.join("ca.pem").display(),
        );
        let file = self.directory.join("client.properties");
        std::fs::write(&file, properties).unwrap();
        let file = file.display().to_string();
        let at = ["--bootstrap-server", &self.bootstrap, "--command-config", &file];
        let args = [&at[..], args].concat();
        let tool = self.toolchain.tool(class).short_lived().args(&args).stdin(stdin);
        tool.run().unwrap()
    }

    /// Returns a tool's output; it must succeed.
    #[track_caller]
    fn good(&self, class: &str, user: &str, args: &[&str], stdin: &str) -> String {
        let output = self.run(class, (user, "secret"), args, stdin);
        assert!(output.success(), "{class}: {}{}", output.stdout, output.stderr);
        for bad in ["ERROR", "Exception"] {
            assert!(!output.stderr.contains(bad), "{class}: {}", output.stderr);
        }
        output.stdout
    }
}

const ACLS: &str = "org.apache.kafka.tools.AclCommand";
const CONFIGS: &str = "kafka.admin.ConfigCommand";
const PRODUCER: &str = "org.apache.kafka.tools.ConsoleProducer";
const CONSUMER: &str = "org.apache.kafka.tools.consumer.ConsoleConsumer";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kafkas_tools_authenticate_and_are_limited_by_acls_and_quotas() {
    let Some(toolchain) = curtail_apache::require_or_skip(
        "kafkas_tools_authenticate_and_are_limited_by_acls_and_quotas",
    ) else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let backend = Backend::embedded_with(3, |config| {
        config.storage = curtail_cluster::Storage::Dir(directory.path().to_owned());
        config.broker_session_timeout = Duration::from_secs(30);
        config.listeners = Listeners::local(SecurityProtocol::SaslSsl);
        config.security.users = vec![User::new("admin", "secret"), User::new("alice", "secret")];
        config.set("super.users", "User:admin").unwrap();
        let authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";
        config.set("authorizer.class.name", authorizer).unwrap();
    });
    let backend = backend.await;
    backend.create_topic("t", 1, 3).await;
    let bootstrap = backend.bootstrap();
    let directory = directory.path().to_owned();
    let run = tokio::task::spawn_blocking(move || {
        bounds(&Tools { toolchain, bootstrap, directory: &directory });
    });
    tokio::time::timeout(LIMIT, run).await.expect("it ends in time").unwrap();
}

fn bounds(tools: &Tools<'_>) {
    let refused = tools.run(ACLS, ("admin", "sesame"), &["--list"], "");
    assert!(!refused.success());
    let told = format!("{}{}", refused.stdout, refused.stderr);
    assert!(told.contains("invalid credentials with SASL mechanism SCRAM-SHA-512"), "{told}");

    let both = ["--producer", "--consumer", "--topic", "t", "--group", "g"];
    let allow = [&["--add", "--allow-principal", "User:alice"][..], &both].concat();
    tools.good(ACLS, "admin", &allow, "");
    let bob = ["--entity-type", "users", "--entity-name", "bob"];
    let password = "SCRAM-SHA-512=[iterations=8192,password=secret]";
    let change = [&["--alter", "--add-config", password][..], &bob].concat();
    tools.good(CONFIGS, "admin", &change, "");
    let told = tools.good(CONFIGS, "admin", &["--describe", "--entity-type", "users"], "");
    assert!(told.contains("'bob' are SCRAM-SHA-512=iterations=8192"), "{told}");
    // An authenticated user is admitted, but has no permissions.
    let denied = tools.run(ACLS, ("bob", "secret"), &["--list"], "");
    let told = format!("{}{}", denied.stdout, denied.stderr);
    assert!(told.contains("ClusterAuthorizationException"), "{told}");

    tools.good(PRODUCER, "alice", &["--topic", "t"], "one\ntwo\nthree\n");
    let read = ["--topic", "t", "--group", "g", "--from-beginning", "--max-messages", "3"];
    assert_eq!(tools.good(CONSUMER, "alice", &read, ""), "one\ntwo\nthree\n");

    let of_clients = ["--entity-type", "clients", "--entity-name", "teller"];
    let limits = "producer_byte_rate=1048576,consumer_byte_rate=2097152";
    let alter = [&["--alter", "--add-config", limits][..], &of_clients].concat();
    tools.good(CONFIGS, "admin", &alter, "");
    let told = tools.good(CONFIGS, "admin", &[&["--describe"][..], &of_clients].concat(), "");
    assert!(told.contains("producer_byte_rate=1048576"), "{told}");
    assert!(told.contains("consumer_byte_rate=2097152"), "{told}");
}
