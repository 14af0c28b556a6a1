use clap::Parser as _;

use super::explain;
use crate::failure::Failure;

/// The one line for a command line that is a mistake.
fn line(command: &str) -> String {
    let given: Vec<String> = command.split(' ').map(str::to_owned).collect();
    let all = std::iter::once("curtail".to_owned()).chain(given.iter().cloned());
    let error = crate::Arguments::try_parse_from(all).unwrap_err();
    match explain(&error, &given) {
        Err(Failure::Message(text)) => text,
        other => panic!("{command}: {other:?}"),
    }
}

#[test]
fn mistakes_in_arguments_are_one_line() {
    for (command, expected) in [
        (
            "nonsense",
            "unknown command 'nonsense'; expected cluster, proxy, fault, perf, lab, doctor, produce, consume, topics, groups, configs, acls, reassign, elect, metadata, get-offsets, transactions, log-dirs, quorum, features, brokers, dump-log, completions or man",
        ),
        ("topcis list", "unknown command 'topcis'; did you mean 'topics'?"),
        ("perf producer", "unknown command 'producer'; did you mean 'produce'?"),
        ("topics lsit", "unknown command 'lsit'; did you mean 'list'?"),
        (
            "topics create t --partition 3",
            "unexpected argument '--partition'; did you mean '--partitions'?",
        ),
        (
            "topics create t --partitions x",
            "invalid value 'x' for --partitions: expected a whole number",
        ),
        (
            "topics create t --partitions 3000000000",
            "invalid value '3000000000' for --partitions: expected a number, at most 2147483647",
        ),
        ("consume -t t -c x", "invalid value 'x' for --count: expected a whole number"),
        (
            "consume -t t --count=-1",
            "invalid value '-1' for --count: expected a whole number, at least 0",
        ),
        ("consume -t t -c -1", "invalid value '-1' for -c: expected a number, at least 0"),
        (
            "cluster --port 99999",
            "invalid value '99999' for --port: expected a number, at most 65535",
        ),
        ("cluster --brokers", "a value is required for '--brokers <N>' but none was supplied"),
        (
            "perf e2e --num-records 1.5",
            "invalid value '1.5' for --num-records: expected a whole number",
        ),
        (
            "perf e2e --num-records 99999999999999999999",
            "invalid value '99999999999999999999' for --num-records: expected a smaller number",
        ),
        (
            "perf produce --num-records -1",
            "invalid value '-1' for --num-records: expected a number, at least 0",
        ),
        (
            "perf produce --throughput fast",
            "invalid value 'fast' for --throughput: expected records per second above 0, or -1 for no limit",
        ),
        (
            "perf produce --throughput -2",
            "invalid value '-2' for --throughput: expected records per second above 0, or -1 for no limit",
        ),
        ("lab run e2e --scale x", "invalid value 'x' for --scale: expected a number"),
        (
            "elect -t t --election-type best",
            "invalid value 'best' for --election-type: expected preferred or unclean",
        ),
        (
            "doctor --target-p99 50 --throughput 1MB/s",
            "invalid value '50' for --target-p99: expected a time above 0 such as 50ms, 1.5s or 800us",
        ),
        (
            "configs alter --user a --add SCRAM-SHA-512=[password=hunter2",
            "invalid value for --add: expected a closing square bracket",
        ),
        (
            "configs alter --user a --add-config hunter2",
            "invalid value for --add: expected name=value, several separated by commas",
        ),
        ("topics alter t", "missing --partitions <N>"),
        ("produce t u", "unexpected argument 'u'"),
        ("produce", "missing <TOPIC>"),
        ("cluster start", "unexpected argument 'start'"),
        ("lab run", "missing <NAME>..."),
        ("acls add --topic t", "missing --principal <PRINCIPAL>, --operation <OPERATION>"),
        (
            "groups offsets reset -g g --to-earliest",
            "missing --topic <TOPIC[:0,1]>, --all-topics or --from-file <FILE>",
        ),
        (
            "perf produce --print-metrics=x",
            "invalid value 'x' for --print-metrics: expected kafka or prometheus",
        ),
    ] {
        let advice = if expected.ends_with('?') { "" } else { "; --help shows the usage" };
        assert_eq!(line(command), format!("{expected}{advice}"), "{command}");
    }
}

#[test]
fn habits_of_kafkas_tools_have_an_equivalent() {
    for (command, expected) in [
        ("topics --list", "use `curtail topics list`: the action is a word here, not --list"),
        (
            "topics --bootstrap-server h:1 --create --topic t",
            "use `curtail topics create`: the action is a word here, not --create",
        ),
        (
            "groups --reset-offsets --group g",
            "use `curtail groups offsets reset`: the action is a word here, not --reset-offsets",
        ),
        (
            "reassign --verify",
            "use `curtail reassign list`: the action is a word here, not --verify",
        ),
        (
            "topics --topic t",
            "unexpected argument '--topic'; `curtail topics` needs an action first: create, list, describe, alter, delete or delete-records",
        ),
        (
            "--bootstrap-server h:1 topics list",
            "unexpected argument '--bootstrap-server'; the command comes first, for example `curtail topics list --bootstrap-server HOST:PORT`",
        ),
        (
            "consume --topic t --max-messages 5",
            "unexpected argument '--max-messages'; use --count N",
        ),
        (
            "cluster --bootstrap-server h:1",
            "unexpected argument '--bootstrap-server'; use --port N, or `curtail cluster describe` for a running cluster",
        ),
        (
            "topics list --zookeeper h:1",
            "unexpected argument '--zookeeper'; use --bootstrap-server HOST:PORT",
        ),
        (
            "perf produce --broker-list h:1",
            "unexpected argument '--broker-list'; use --bootstrap-server HOST:PORT",
        ),
        (
            "perf e2e h:1 t 10 all 128",
            "unexpected argument 'h:1'; values are given with their flags, such as --bootstrap-server HOST:PORT and --topic NAME",
        ),
        (
            "configs describe --entity-type topics",
            "unexpected argument '--entity-type'; use --topic NAME, --broker ID, --all-brokers, --group NAME, --client-metrics NAME, --user NAME, --client ID or --ip ADDRESS",
        ),
        (
            "topics alter t --config retention.ms=1",
            "`curtail topics alter` changes no settings; use `curtail configs alter --topic NAME --add retention.ms=1`",
        ),
        (
            "topics list --config client.properties",
            "unexpected argument '--config'; a file of client properties is --command-config FILE; one property is --command-property NAME=VALUE",
        ),
        (
            "topics create t --config client.properties",
            "invalid value 'client.properties' for --config: expected name=value, a setting of the topic; a file of client properties is --command-config FILE; --help shows the usage",
        ),
        (
            "log-dirs --describe",
            "use `curtail log-dirs describe`: the action is a word here, not --describe",
        ),
        (
            "features upgrade --metadata 4.0",
            "unexpected argument '--metadata'; use --feature metadata.version=LEVEL; `curtail features describe` prints the levels",
        ),
        (
            "cluster list-endpoints",
            "unexpected argument 'list-endpoints'; this command starts a cluster; use `curtail brokers list`",
        ),
        (
            "-Q --zookeeper h:1",
            "unexpected argument '--zookeeper'; use --bootstrap-server HOST:PORT",
        ),
        (
            "kafka-metadata-quorum.sh describe",
            "unknown command 'kafka-metadata-quorum.sh'; use `curtail quorum`",
        ),
        ("kafka-cluster cluster-id", "unknown command 'kafka-cluster'; use `curtail brokers`"),
        (
            "kafka-console-consumer.sh --topic t",
            "unknown command 'kafka-console-consumer.sh'; use `curtail consume`",
        ),
    ] {
        assert_eq!(line(command), expected, "{command}");
    }
}

/// The advice for a flag that its command accepts is never printed. `lab bench` has the flag that `lab run` lacks.
#[test]
fn no_habit_is_a_flag_of_its_command() {
    use clap::CommandFactory as _;
    fn accepts(command: &clap::Command, flag: &str) -> bool {
        let name = flag.trim_start_matches('-');
        let is_argument = |argument: &clap::Arg| argument.get_long() == Some(name);
        if command.is_subcommand_required_set() {
            command.get_subcommands().any(|below| accepts(below, flag))
        } else {
            command.get_arguments().any(is_argument)
        }
    }
    for (of, flag, _) in super::habits::FLAGS.iter().filter(|(of, _, _)| !of.is_empty()) {
        let all = crate::Arguments::command();
        let command = all.find_subcommand(of).unwrap_or_else(|| panic!("{of}"));
        assert!(*of == "lab" || !accepts(command, flag), "{of} {flag}");
    }
}
