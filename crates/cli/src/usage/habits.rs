//! Habits of Kafka's own tools, and the equivalents here.

use super::{Mistake, one_of};

/// A flag that is an action in Kafka's tool and a word here: command, flag, equivalent.
const ACTIONS: &[(&str, &str, &str)] = &[
    ("topics", "--list", "topics list"),
    ("topics", "--create", "topics create"),
    ("topics", "--describe", "topics describe"),
    ("topics", "--alter", "topics alter"),
    ("topics", "--delete", "topics delete"),
    ("groups", "--list", "groups list"),
    ("groups", "--reset-offsets", "groups offsets reset"),
    ("groups", "--delete-offsets", "groups offsets delete"),
    ("groups", "--describe", "groups describe"),
    ("groups", "--delete", "groups delete"),
    ("configs", "--describe", "configs describe"),
    ("configs", "--alter", "configs alter"),
    ("acls", "--list", "acls list"),
    ("acls", "--add", "acls add"),
    ("acls", "--remove", "acls remove"),
    ("reassign", "--list", "reassign list"),
    ("reassign", "--verify", "reassign list"),
    ("reassign", "--execute", "reassign execute"),
    ("reassign", "--cancel", "reassign cancel"),
    ("log-dirs", "--describe", "log-dirs describe"),
];

const NO_GENERATE: &str = "reassign has no --generate: write the file, see `curtail reassign execute --help`, \
                           and start it with `curtail reassign execute`";
const AS_BYTES: &str = "leave it out: keys and values are printed as they are";
const NO_PATTERN: &str = "name each topic with --topic";
const PROPERTIES: &str = "a file of client properties is --command-config FILE; one property is --command-property NAME=VALUE";
const RESOURCE: &str = "use --topic NAME, --broker ID, --all-brokers, --group NAME, --client-metrics NAME, --user NAME, --client ID or --ip ADDRESS";
const REPLICAS_AND_ISR: &str = "use `curtail topics describe`, which prints replicas and ISR";
const FEATURE_LEVEL: &str =
    "use --feature metadata.version=LEVEL; `curtail features describe` prints the levels";
const NO_DECODER: &str = "leave it out: keys and values are printed as text";
const ONE_READER: &str = "leave it out: one consumer reads all partitions";

/// A flag of Kafka's tools, by the command here that lacks it; an empty command stands for all.
pub(super) const FLAGS: &[(&str, &str, &str)] = &[
    ("consume", "--max-messages", "use --count N"),
    ("consume", "--timeout-ms", "use --exit, which ends at the last record of every partition"),
    ("consume", "--formatter", "use --format, for example -f '%k %s\\n'"),
    ("consume", "--formatter-property", "use --format, for example -f '%k %s\\n'"),
    ("consume", "--isolation-level", "use -X isolation.level=read_committed"),
    ("consume", "--consumer-property", "use -X NAME=VALUE"),
    ("consume", "--consumer.config", "use --command-config FILE"),
    ("consume", "--consumer-config", "use --command-config FILE"),
    ("consume", "--include", NO_PATTERN),
    ("consume", "--whitelist", NO_PATTERN),
    (
        "consume",
        "--skip-message-on-error",
        "leave it out: keys and values are printed without being decoded",
    ),
    ("consume", "--key-deserializer", AS_BYTES),
    ("consume", "--value-deserializer", AS_BYTES),
    ("produce", "--producer-property", "use -X NAME=VALUE"),
    ("produce", "--producer.config", "use --command-config FILE"),
    ("produce", "--producer-config", "use --command-config FILE"),
    (
        "produce",
        "--reader-property",
        "use --key-delimiter TEXT for keys and --header NAME=VALUE for headers",
    ),
    (
        "produce",
        "--reader-config",
        "use --key-delimiter TEXT for keys and --header NAME=VALUE for headers",
    ),
    ("produce", "--request-required-acks", "use -X acks=all, 1 or 0"),
    ("produce", "--compression-codec", "use --compression CODEC"),
    ("produce", "--batch-size", "use -X batch.size=BYTES"),
    ("produce", "--max-block-ms", "use -X max.block.ms=MS"),
    ("produce", "--message-send-max-retries", "use -X retries=N"),
    ("produce", "--request-timeout-ms", "use -X request.timeout.ms=MS"),
    ("produce", "--timeout", "use -X linger.ms=MS"),
    ("produce", "--sync", "use -X linger.ms=0; each record is acknowledged in any case"),
    ("topics", "--exclude-internal", "list prints internal topics too; their names begin with __"),
    ("topics", "--replica-assignment", "create the topic, then use `curtail reassign execute`"),
    ("topics", "--delete-config", "use `curtail configs alter --topic NAME --delete SETTING`"),
    ("topics", "--under-min-isr-partitions", REPLICAS_AND_ISR),
    ("topics", "--at-min-isr-partitions", REPLICAS_AND_ISR),
    (
        "topics",
        "--topics-with-overrides",
        "use `curtail topics describe`, which prints the settings",
    ),
    ("groups", "--offsets", "leave it out: describe prints the offsets"),
    ("groups", "--verbose", "use --members or --state"),
    ("groups", "--export", "use --json, or write the file of --from-file by hand"),
    ("configs", "--entity-type", RESOURCE),
    ("configs", "--entity-name", RESOURCE),
    ("configs", "--entity-default", RESOURCE),
    ("configs", "--add-config-file", "use --add NAME=VALUE,NAME=VALUE"),
    ("acls", "--deny-principal", "use --principal NAME with --deny"),
    ("acls", "--deny-host", "use --host ADDRESS with --deny"),
    ("acls", "--force", "leave it out: remove asks no question"),
    ("acls", "--authorizer-properties", "use --bootstrap-server HOST:PORT"),
    ("reassign", "--generate", NO_GENERATE),
    ("reassign", "--topics-to-move-json-file", NO_GENERATE),
    (
        "reassign",
        "--throttle",
        "leave it out: replication throttles are settings, see `curtail configs alter`",
    ),
    ("elect", "--partition", "use --topic NAME:0,1"),
    ("elect", "--path-to-json-file", "use --topic NAME:0,1 for each topic"),
    ("transactions", "--transactional-id-pattern", "leave it out, and filter the output of list"),
    ("quorum", "--human-readable", "leave it out: times are milliseconds since 1970-01-01 UTC"),
    ("features", "--metadata", FEATURE_LEVEL),
    ("features", "--release-version", FEATURE_LEVEL),
    ("brokers", "--include-fenced-brokers", "leave it out: only live brokers are listed"),
    ("dump-log", "--offsets-decoder", NO_DECODER),
    ("dump-log", "--transaction-log-decoder", NO_DECODER),
    ("dump-log", "--cluster-metadata-decoder", NO_DECODER),
    ("dump-log", "--remote-log-metadata-decoder", NO_DECODER),
    ("dump-log", "--share-group-state-decoder", NO_DECODER),
    ("dump-log", "--key-decoder-class", NO_DECODER),
    ("dump-log", "--value-decoder-class", NO_DECODER),
    ("dump-log", "--max-message-size", "leave it out: batches of any size are read"),
    ("perf", "--threads", ONE_READER),
    ("perf", "--num-fetch-threads", ONE_READER),
    ("lab", "--bootstrap-server", "use --cluster HOST:PORT"),
    (
        "cluster",
        "--bootstrap-server",
        "use --port N, or `curtail cluster describe` for a running cluster",
    ),
    ("cluster", "--override", "use --property NAME=VALUE"),
    ("lab", "--config", "use --variant NAME:PROPERTY=VALUE for client properties"),
    ("", "--config", PROPERTIES),
    ("", "--zookeeper", "use --bootstrap-server HOST:PORT"),
    ("", "--bootstrap-controller", "use --bootstrap-server HOST:PORT: requests go through brokers"),
    ("", "--bootstrap-servers", "use --bootstrap-server HOST:PORT"),
    ("", "--broker-list", "use --bootstrap-server HOST:PORT"),
];

/// Kafka's tools without `kafka-` and `.sh`, where the command here has another name.
const TOOLS: &[(&str, &str)] = &[
    ("console-consumer", "consume"),
    ("consumer", "consume"),
    ("console-producer", "produce"),
    ("producer", "produce"),
    ("consumer-groups", "groups"),
    ("delete-records", "topics delete-records"),
    ("leader-election", "elect"),
    ("reassign-partitions", "reassign"),
    #[cfg(feature = "perf")]
    ("producer-perf-test", "perf produce"),
    #[cfg(feature = "perf")]
    ("consumer-perf-test", "perf consume"),
    #[cfg(feature = "perf")]
    ("e2e-latency", "perf e2e"),
    ("server-start", "cluster"),
    ("metadata-quorum", "quorum"),
    ("cluster", "brokers"),
    ("get-offsets", "get-offsets"),
    ("transactions", "transactions"),
    ("log-dirs", "log-dirs"),
    ("features", "features"),
    ("dump-log", "dump-log"),
    ("topics", "topics"),
    ("configs", "configs"),
    ("acls", "acls"),
];

/// The command here for a tool of Kafka.
pub(super) fn tool(word: &str) -> Option<String> {
    let name = word.strip_prefix("kafka-").unwrap_or(word);
    let name = name.strip_suffix(".sh").or(name.strip_suffix(".bat")).unwrap_or(name);
    let (_, command) = TOOLS.iter().find(|(tool, _)| *tool == name)?;
    Some(format!("unknown command '{word}'; use `curtail {command}`"))
}

/// What to write instead of an unexpected argument, if Kafka's tools accept it.
pub(super) fn argument(mistake: &Mistake<'_>, argument: &str) -> Option<String> {
    let unexpected = format!("unexpected argument '{argument}'");
    let words = mistake.words();
    let [command, ..] = words.as_slice() else {
        let example = "curtail topics list --bootstrap-server HOST:PORT";
        let first = argument.starts_with('-').then_some("the command comes first");
        return first.map(|first| format!("{unexpected}; {first}, for example `{example}`"));
    };
    if !mistake.next.is_empty() {
        return Some(action(mistake, command, &unexpected));
    }
    if !argument.starts_with('-') {
        return value(mistake, argument).map(|text| format!("{unexpected}; {text}"));
    }
    if argument == "--config"
        && let Some(text) = setting(mistake)
    {
        return Some(text);
    }
    let (_, _, instead) =
        FLAGS.iter().find(|(of, flag, _)| *flag == argument && (of.is_empty() || of == command))?;
    Some(format!("{unexpected}; {instead}"))
}

/// The action belongs before this argument.
fn action(mistake: &Mistake<'_>, command: &str, unexpected: &str) -> String {
    let has = |flag: &str| mistake.given.iter().any(|given| given == flag);
    if has("--generate") && command == "reassign" {
        return NO_GENERATE.to_owned();
    }
    let is_first = mistake.words.len() == 1;
    match ACTIONS.iter().find(|(of, flag, _)| is_first && *of == command && has(flag)) {
        Some((_, flag, equivalent)) => {
            format!("use `curtail {equivalent}`: the action is a word here, not {flag}")
        }
        None => {
            let words = mistake.words.join(" ");
            format!(
                "{unexpected}; `curtail {words}` needs an action first: {}",
                one_of(&mistake.next)
            )
        }
    }
}

/// The flag for a value without one.
fn value(mistake: &Mistake<'_>, value: &str) -> Option<String> {
    match mistake.words().as_slice() {
        ["cluster"] => Some(format!(
            "this command starts a cluster; use `curtail brokers {}`",
            if value == "list-endpoints" { "list" } else { value }
        ))
        .filter(|_| ["cluster-id", "unregister", "list-endpoints"].contains(&value)),
        ["perf", _] => Some(
            "values are given with their flags, such as --bootstrap-server HOST:PORT and --topic NAME"
                .to_owned(),
        ),
        _ => None,
    }
}

/// Kafka's older tools alter settings with `topics --alter --config`.
fn setting(mistake: &Mistake<'_>) -> Option<String> {
    let at = mistake.given.iter().position(|given| given == "--config")?;
    let setting = mistake.given.get(at + 1).filter(|setting| setting.contains('='))?;
    (mistake.words() == ["topics", "alter"]).then(|| {
        format!("`curtail topics alter` changes no settings; use `curtail configs alter --topic NAME --add {setting}`")
    })
}
