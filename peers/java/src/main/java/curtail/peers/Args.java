package curtail.peers;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.stream.Stream;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;

/** The command line, the same as that of {@code curtail perf}. */
final class Args {
    private static final String USAGE = """
        usage: produce --bootstrap-server B --topic T --num-records N --record-size S --throughput R
                       [--warmup-records N] [--command-property k=v]... [--json FILE]
               consume --bootstrap-server B --topic T --num-records N [--command-property k=v]... [--json FILE]
               e2e     --bootstrap-server B --topic T --num-records N --producer-acks 1|all --record-size S
                       [--warmup-records N] [--command-property k=v]... [--json FILE] [--fates FILE]
               load    --bootstrap-server B --topic T --num-records N --record-size S --throughput R
                       [--until acknowledged|read] [--warmup-records N] [--keys K] [--seed N]
                       [--producers N] [--to-partitions P,P...] [--burst N]
                       [--command-property k=v]... [--json FILE] [--fates FILE]; waits for the line 'go' on
                       standard input
               churn   --bootstrap-server B --topics N --partitions N --senders N --num-records N --record-size S
                       --throughput R [--warmup-records N] [--seed N] [--command-property k=v]... [--json FILE]
                       [--fates FILE]; records and rate of each sender; waits for the line 'go' on standard input
               follow  --bootstrap-server B --topic T --num-records N [--consumers N] [--backlog N]
                       [--from-beginning P,P...] [--read-first N] [--work-ms MS] [--command-property k=v]...
                       [--json FILE] [--fates FILE]; waits for the line 'go' on standard input
               group-consume --bootstrap-server B --topic T --group G --assignor range|roundrobin|cooperative-sticky
                       [--command-property k=v]...
               drive   --bootstrap-server B --topic T --role producer|consumer [--command-property k=v]...;
                       obeys commands on standard input""";

    static final String GROUP_CONSUME = "group-consume";
    static final String CHURN = "churn";
    static final String DRIVE = "drive";
    static final String FOLLOW = "follow";

    String tool;
    String bootstrap;
    String topic;
    /** All records, the warm-up's included. */
    long records;
    long warmup;
    int recordSize;
    /** Records a second; not positive is as fast as possible. */
    double rate = -1;
    String acks = "1";
    String json;
    /** Where the fates of the records are written. */
    String fates;
    /** How many different keys; 0 for records without one. */
    long keys;
    /** Whether a load is read back, and latencies end with the poll that returned the record. */
    boolean untilRead;
    long seed = 1;
    /** Producers of a load, which send in turn. */
    int producers = 1;
    /** Partitions of a load's records, in turn; empty if the client chooses. */
    int[] toPartitions = {};
    /** Records of a load that are due at the same time. */
    long burst = 1;
    /** Of the tool churn: topics, partitions of each, threads. */
    int topics;
    int partitions;
    int senders;
    /** Of the tool follow: consumers, each of which reads everything. */
    int consumers = 1;
    /** Of the tool follow: records of an earlier load that each consumer reads too. */
    long backlog;
    /** Of the tool follow: the partitions that are read from their beginning; the others are read from their end. */
    int[] fromBeginning = {};
    /** Of the tool follow: records that one consumer reads from the topic's beginning before the driver is ready. */
    long readFirst;
    /** Of the tool follow: the application's work after each poll that has returned records. */
    long workMillis;
    String group;
    String assignor;
    /** Of the tool drive: producer or consumer. */
    String role;
    private final Map<String, String> properties = new LinkedHashMap<>();

    static Args parse(String[] arguments) {
        Args args = new Args();
        if (arguments.length == 0 || !List.of("produce", "consume", "e2e", "load", FOLLOW, CHURN, GROUP_CONSUME, DRIVE).contains(arguments[0])) {
            throw new IllegalArgumentException(USAGE);
        }
        args.tool = arguments[0];
        for (int i = 1; i < arguments.length; i += 2) {
            if (i + 1 == arguments.length) {
                throw new IllegalArgumentException(arguments[i] + " needs a value\n" + USAGE);
            }
            args.set(arguments[i], arguments[i + 1]);
        }
        args.check();
        return args;
    }

    private void set(String flag, String value) {
        try {
            switch (flag) {
                case "--bootstrap-server" -> bootstrap = value;
                case "--topic" -> topic = value;
                case "--num-records" -> records = Long.parseLong(value);
                case "--warmup-records" -> warmup = Long.parseLong(value);
                case "--record-size" -> recordSize = Integer.parseInt(value);
                case "--throughput" -> rate = Double.parseDouble(value);
                case "--producer-acks" -> acks = value;
                case "--json" -> json = value;
                case "--fates" -> fates = value;
                case "--until" -> untilRead = untilRead(value);
                case "--keys" -> keys = Long.parseLong(value);
                case "--seed" -> seed = Long.parseLong(value);
                case "--producers" -> producers = Integer.parseInt(value);
                case "--to-partitions" -> toPartitions = numbers(value);
                case "--burst" -> burst = Long.parseLong(value);
                case "--topics" -> topics = Integer.parseInt(value);
                case "--partitions" -> partitions = Integer.parseInt(value);
                case "--senders" -> senders = Integer.parseInt(value);
                case "--consumers" -> consumers = Integer.parseInt(value);
                case "--backlog" -> backlog = Long.parseLong(value);
                case "--from-beginning" -> fromBeginning = numbers(value);
                case "--read-first" -> readFirst = Long.parseLong(value);
                case "--work-ms" -> workMillis = Long.parseLong(value);
                case "--group" -> group = value;
                case "--assignor" -> assignor = value;
                case "--role" -> role = value;
                case "--command-property" -> {
                    int equals = value.indexOf('=');
                    if (equals < 1) {
                        throw new IllegalArgumentException("--command-property needs k=v");
                    }
                    properties.put(value.substring(0, equals), value.substring(equals + 1));
                }
                default -> throw new IllegalArgumentException("unknown flag " + flag + "\n" + USAGE);
            }
        } catch (NumberFormatException e) {
            throw new IllegalArgumentException(flag + " needs a number, not " + value);
        }
    }

    private static int[] numbers(String list) {
        return Stream.of(list.split(",")).mapToInt(Integer::parseInt).toArray();
    }

    private static boolean untilRead(String value) {
        return switch (value) {
            case "acknowledged" -> false;
            case "read" -> true;
            default -> throw new IllegalArgumentException("--until is acknowledged or read, not " + value);
        };
    }

    private void check() {
        if (tool.equals(DRIVE)) {
            if (bootstrap == null || topic == null || !List.of("producer", "consumer").contains(role)) {
                throw new IllegalArgumentException("--bootstrap-server, --topic and --role are needed\n" + USAGE);
            }
            return;
        }
        if (tool.equals(GROUP_CONSUME)) {
            if (bootstrap == null || topic == null || group == null || assignor == null) {
                throw new IllegalArgumentException(
                    "--bootstrap-server, --topic, --group and --assignor are needed\n" + USAGE);
            }
            return;
        }
        if (tool.equals(CHURN)) {
            topic = "";
            if (topics < 1 || partitions < 1 || senders < 1 || rate <= 0) {
                throw new IllegalArgumentException(
                    "--topics, --partitions, --senders and --throughput are needed\n" + USAGE);
            }
        }
        boolean sized = !tool.equals("consume") && !tool.equals(FOLLOW);
        if (bootstrap == null || topic == null || records < 1 || recordSize < 1 && sized) {
            throw new IllegalArgumentException(
                "--bootstrap-server, --topic, --num-records and --record-size are needed\n" + USAGE);
        }
        if (producers < 1 || burst < 1 || consumers < 1) {
            throw new IllegalArgumentException("--producers, --burst and --consumers are at least 1");
        }
        if (warmup >= records) {
            throw new IllegalArgumentException("--warmup-records must be fewer than --num-records");
        }
        if (tool.equals("load") && (rate <= 0 || recordSize < 8)) {
            throw new IllegalArgumentException("load needs a --throughput above 0 and records of 8 bytes at least");
        }
    }

    /** The given defaults, overridden by the command line's properties that are a producer's. */
    Properties producer(Map<String, String> defaults) {
        return apply(defaults, ProducerConfig.configNames(), ConsumerConfig.configNames());
    }

    /** The given defaults, overridden by the command line's properties that are a consumer's. */
    Properties consumer(Map<String, String> defaults) {
        return apply(defaults, ConsumerConfig.configNames(), ProducerConfig.configNames());
    }

    /** The command line's properties that are the role's. Others are passed over. */
    Properties driven(boolean producer) {
        Set<String> own = producer ? ProducerConfig.configNames() : ConsumerConfig.configNames();
        Properties result = new Properties();
        properties.forEach((key, value) -> {
            if (own.contains(key)) {
                result.put(key, value);
            }
        });
        result.put("bootstrap.servers", bootstrap);
        if ("consumer".equals(result.get("group.protocol"))) {
            // The brokers' settings, with that protocol.
            result.remove("heartbeat.interval.ms");
            result.remove("session.timeout.ms");
        }
        return result;
    }

    private Properties apply(Map<String, String> defaults, Set<String> own, Set<String> other) {
        boolean hasBoth = tool.equals("e2e") || untilRead;
        Properties result = new Properties();
        result.putAll(defaults);
        result.put("bootstrap.servers", bootstrap);
        properties.forEach((key, value) -> {
            if (own.contains(key)) {
                result.put(key, value);
            } else if (!hasBoth || !other.contains(key)) {
                throw new IllegalArgumentException("unknown property " + key);
            }
        });
        return result;
    }
}
