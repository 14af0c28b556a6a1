package main

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const usage = `usage: produce --bootstrap-server B --topic T --num-records N --record-size S --throughput R
               [--warmup-records N] [--command-property k=v]... [--json FILE]
       consume --bootstrap-server B --topic T --num-records N [--command-property k=v]... [--json FILE]
       e2e     --bootstrap-server B --topic T --num-records N --producer-acks 1|all --record-size S
               [--warmup-records N] [--command-property k=v]... [--json FILE] [--fates FILE]
       load    --bootstrap-server B --topic T --num-records N --record-size S --throughput R
               [--until acknowledged|read] [--warmup-records N] [--keys K] [--seed N]
               [--producers N] [--to-partitions P,P...] [--burst N]
               [--command-property k=v]... [--json FILE] [--fates FILE]; waits for the line "go" on standard input
       follow  --bootstrap-server B --topic T --num-records N [--consumers N] [--backlog N] [--from-beginning P,P...]
               [--read-first N] [--work-ms MS] [--command-property k=v]... [--json FILE] [--fates FILE]; waits for the
               line "go" on standard input
       group-consume --bootstrap-server B --topic T --group G --assignor range|roundrobin|cooperative-sticky
               [--command-property k=v]...
       drive   --bootstrap-server B --topic T --role producer|consumer [--command-property k=v]...;
               obeys commands on standard input`

// Ends of a latency.
const (
	untilAcknowledged = "acknowledged"
	untilRead         = "read"
)

// options is the command line, the same as that of "curtail perf".
type options struct {
	tool      string
	bootstrap string
	topic     string
	// records counts all records, warm-up included.
	records    int
	warmup     int
	recordSize int
	// rate is in records per second; zero or less is as fast as possible.
	rate float64
	acks string
	// until is the end of the latencies of a load.
	until string
	json  string
	// fates is the file for the fates of the records.
	fates string
	// keys is the number of different keys; 0 for keyless records.
	keys int
	seed uint64
	// producers send the records of a load in turn.
	producers int
	// toPartitions are the partitions of a load's records, in turn; empty if the client chooses.
	toPartitions []int32
	// burst is the number of records of a load that are due at the same time.
	burst int
	// consumers of the tool follow each read everything.
	consumers int
	// backlog is the number of an earlier load's records that each consumer of the tool follow reads too.
	backlog int
	// fromBeginning are the partitions that the tool follow reads from their beginning; the others from their end.
	fromBeginning []int32
	// readFirst is the number of records that one consumer reads from the topic's beginning before the tool follow is ready.
	readFirst int
	// work is the application's, after each poll of the tool follow that has returned records.
	work     time.Duration
	group    string
	assignor string
	// role is the role of the tool drive, producer or consumer.
	role       string
	properties map[string]string
}

func parse(arguments []string) (*options, error) {
	if len(arguments) == 0 || !slices.Contains([]string{"produce", "consume", "e2e", "load", followTool, groupTool, driveTool}, arguments[0]) {
		return nil, errors.New(usage)
	}
	args := &options{tool: arguments[0], rate: -1, acks: "1", until: untilAcknowledged, seed: 1, producers: 1, burst: 1, consumers: 1, properties: map[string]string{}}
	for rest := arguments[1:]; len(rest) > 0; rest = rest[2:] {
		if len(rest) == 1 {
			return nil, fmt.Errorf("%s needs a value\n%s", rest[0], usage)
		}
		if err := args.set(rest[0], rest[1]); err != nil {
			return nil, err
		}
	}
	if args.tool == driveTool {
		if args.bootstrap == "" || args.topic == "" || args.role != "producer" && args.role != "consumer" {
			return nil, fmt.Errorf("--bootstrap-server, --topic and --role are needed\n%s", usage)
		}
		return args, nil
	}
	if args.tool == groupTool {
		if args.bootstrap == "" || args.topic == "" || args.group == "" || args.assignor == "" {
			return nil, fmt.Errorf("--bootstrap-server, --topic, --group and --assignor are needed\n%s", usage)
		}
		return args, nil
	}
	if args.bootstrap == "" || args.topic == "" || args.records < 1 || args.recordSize < 1 && args.tool != "consume" && args.tool != followTool {
		return nil, fmt.Errorf("--bootstrap-server, --topic, --num-records and --record-size are needed\n%s", usage)
	}
	if args.producers < 1 || args.burst < 1 || args.consumers < 1 {
		return nil, errors.New("--producers, --burst and --consumers are at least 1")
	}
	if args.warmup >= args.records {
		return nil, errors.New("--warmup-records must be fewer than --num-records")
	}
	if args.tool == "load" && (args.rate <= 0 || args.recordSize < 8) {
		return nil, errors.New("load needs a --throughput above 0 and records of 8 bytes at least")
	}
	if args.until != untilAcknowledged && args.until != untilRead {
		return nil, fmt.Errorf("--until is acknowledged or read, not %q", args.until)
	}
	return args, nil
}

func partitionList(value string) ([]int32, error) {
	var partitions []int32
	for word := range strings.SplitSeq(value, ",") {
		partition, err := strconv.ParseInt(word, 10, 32)
		if err != nil {
			return nil, err
		}
		partitions = append(partitions, int32(partition))
	}
	return partitions, nil
}

func (args *options) set(flag, value string) error {
	var err error
	switch flag {
	case "--bootstrap-server":
		args.bootstrap = value
	case "--topic":
		args.topic = value
	case "--num-records":
		args.records, err = strconv.Atoi(value)
	case "--warmup-records":
		args.warmup, err = strconv.Atoi(value)
	case "--record-size":
		args.recordSize, err = strconv.Atoi(value)
	case "--throughput":
		args.rate, err = strconv.ParseFloat(value, 64)
	case "--producer-acks":
		args.acks = value
	case "--until":
		args.until = value
	case "--json":
		args.json = value
	case "--fates":
		args.fates = value
	case "--keys":
		args.keys, err = strconv.Atoi(value)
	case "--seed":
		args.seed, err = strconv.ParseUint(value, 10, 64)
	case "--producers":
		args.producers, err = strconv.Atoi(value)
	case "--to-partitions":
		args.toPartitions, err = partitionList(value)
	case "--burst":
		args.burst, err = strconv.Atoi(value)
	case "--consumers":
		args.consumers, err = strconv.Atoi(value)
	case "--backlog":
		args.backlog, err = strconv.Atoi(value)
	case "--from-beginning":
		args.fromBeginning, err = partitionList(value)
	case "--read-first":
		args.readFirst, err = strconv.Atoi(value)
	case "--work-ms":
		var ms int
		ms, err = strconv.Atoi(value)
		args.work = time.Duration(ms) * time.Millisecond
	case "--group":
		args.group = value
	case "--role":
		args.role = value
	case "--assignor":
		args.assignor = value
	case "--command-property":
		key, value, found := strings.Cut(value, "=")
		if !found {
			return errors.New("--command-property needs k=v")
		}
		args.properties[key] = value
	default:
		return fmt.Errorf("unknown flag %s\n%s", flag, usage)
	}
	if err != nil {
		return fmt.Errorf("%s needs a number, not %q", flag, value)
	}
	return nil
}

// setter converts the value of one of Kafka's properties to franz-go's options.
type setter func(value string) ([]kgo.Opt, error)

var producerProperties = map[string]setter{
	"acks": acksOption,
	"linger.ms": number(func(n int) kgo.Opt {
		return kgo.ProducerLinger(time.Duration(n) * time.Millisecond)
	}),
	"batch.size": number(func(n int) kgo.Opt { return kgo.ProducerBatchMaxBytes(int32(n)) }),
	"max.in.flight.requests.per.connection": number(func(n int) kgo.Opt {
		return kgo.MaxProduceRequestsInflightPerBroker(n)
	}),
	"compression.type":   compressionOption,
	"enable.idempotence": idempotenceOption,
	"delivery.timeout.ms": number(func(n int) kgo.Opt {
		return kgo.RecordDeliveryTimeout(time.Duration(n) * time.Millisecond)
	}),
	"client.id": clientID,
}

var consumerProperties = map[string]setter{
	"fetch.max.wait.ms": number(func(n int) kgo.Opt {
		return kgo.FetchMaxWait(time.Duration(n) * time.Millisecond)
	}),
	"fetch.min.bytes":           number(func(n int) kgo.Opt { return kgo.FetchMinBytes(int32(n)) }),
	"fetch.max.bytes":           number(func(n int) kgo.Opt { return kgo.FetchMaxBytes(int32(n)) }),
	"max.partition.fetch.bytes": number(func(n int) kgo.Opt { return kgo.FetchMaxPartitionBytes(int32(n)) }),
	"session.timeout.ms": number(func(n int) kgo.Opt {
		return kgo.SessionTimeout(time.Duration(n) * time.Millisecond)
	}),
	"heartbeat.interval.ms": number(func(n int) kgo.Opt {
		return kgo.HeartbeatInterval(time.Duration(n) * time.Millisecond)
	}),
	"max.poll.interval.ms": number(func(n int) kgo.Opt {
		return kgo.RebalanceTimeout(time.Duration(n) * time.Millisecond)
	}),
	"auto.commit.interval.ms": number(func(n int) kgo.Opt {
		return kgo.AutoCommitInterval(time.Duration(n) * time.Millisecond)
	}),
	"client.id":      clientID,
	"group.protocol": classicOnly,
}

// kafkaOptions maps the properties of one role. Properties of the other role are ignored only in a tool that has both.
func (args *options) kafkaOptions(own, other map[string]setter) ([]kgo.Opt, error) {
	result := []kgo.Opt{kgo.SeedBrokers(strings.Split(args.bootstrap, ",")...)}
	keys := make([]string, 0, len(args.properties))
	for key := range args.properties {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	for _, key := range keys {
		set, known := own[key]
		if !known {
			if _, others := other[key]; others && (args.tool == "e2e" || args.until == untilRead) {
				continue
			}
			return nil, fmt.Errorf("property %s is not mapped to franz-go; known: %s", key, names(own))
		}
		opts, err := set(args.properties[key])
		if err != nil {
			return nil, fmt.Errorf("property %s: %w", key, err)
		}
		result = append(result, opts...)
	}
	return result, nil
}

func names(setters map[string]setter) string {
	result := make([]string, 0, len(setters))
	for name := range setters {
		result = append(result, name)
	}
	sort.Strings(result)
	return strings.Join(result, ", ")
}

func number(option func(int) kgo.Opt) setter {
	return func(value string) ([]kgo.Opt, error) {
		n, err := strconv.Atoi(value)
		if err != nil {
			return nil, fmt.Errorf("%q is not a number", value)
		}
		return []kgo.Opt{option(n)}, nil
	}
}

// Fewer acks than all exclude idempotence, which is on by default.
func acksOption(value string) ([]kgo.Opt, error) {
	switch value {
	case "all", "-1":
		return []kgo.Opt{kgo.RequiredAcks(kgo.AllISRAcks())}, nil
	case "1":
		return []kgo.Opt{kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite()}, nil
	case "0":
		return []kgo.Opt{kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite()}, nil
	}
	return nil, fmt.Errorf("%q is not 0, 1 or all", value)
}

func compressionOption(value string) ([]kgo.Opt, error) {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	codec, known := codecs[value]
	if !known {
		return nil, fmt.Errorf("%q is not a compression", value)
	}
	return []kgo.Opt{kgo.ProducerBatchCompression(codec)}, nil
}

func idempotenceOption(value string) ([]kgo.Opt, error) {
	switch value {
	case "true":
		return nil, nil
	case "false":
		return []kgo.Opt{kgo.DisableIdempotentWrite()}, nil
	}
	return nil, fmt.Errorf("%q is not true or false", value)
}

// classicOnly rejects the protocol of KIP-848, for which franz-go has no option.
func classicOnly(value string) ([]kgo.Opt, error) {
	if value != "classic" {
		return nil, fmt.Errorf("%q is not classic", value)
	}
	return nil, nil
}

func clientID(value string) ([]kgo.Opt, error) {
	return []kgo.Opt{kgo.ClientID(value)}, nil
}
