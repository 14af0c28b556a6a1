package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const driveTool = "drive"

// maxPollRecords limits the records of one poll, unless max.poll.records is set, as in the Java client.
const maxPollRecords = 500

var output sync.Mutex

func say(format string, values ...any) {
	output.Lock()
	defer output.Unlock()
	fmt.Println(strings.ReplaceAll(fmt.Sprintf(format, values...), "\n", " "))
}

func reply(err error) {
	if err != nil {
		say("error %v", err)
		return
	}
	say("done")
}

// drive executes commands from standard input and prints every result, for cases that script the network (see museum/).
func drive(args *options) error {
	say("version franz-go %s", version())
	if args.properties["group.protocol"] == "consumer" {
		say("unsupported no option offers the consumer protocol (KIP-848)")
		return nil
	}
	if args.properties["max.poll.interval.ms"] != "" {
		say("unsupported no option limits the time between polls")
		return nil
	}
	if args.role == "producer" {
		return driveProducer(args)
	}
	return driveConsumer(args)
}

// milliseconds is the property's value, raised to the smallest one that franz-go accepts.
func (args *options) milliseconds(name string, least time.Duration) (time.Duration, bool) {
	n, err := strconv.Atoi(args.properties[name])
	if err != nil {
		return 0, false
	}
	return max(time.Duration(n)*time.Millisecond, least), true
}

// common are the options of producers and consumers. Properties that franz-go lacks are ignored.
func (args *options) common() []kgo.Opt {
	result := []kgo.Opt{kgo.SeedBrokers(strings.Split(args.bootstrap, ",")...)}
	// Cases reject the same request repeatedly: a backoff of seconds would exceed the delivery timeout.
	least := 250 * time.Millisecond
	if age, set := args.milliseconds("metadata.max.age.ms", 10*time.Millisecond); set {
		least = min(age, least)
		result = append(result, kgo.MetadataMaxAge(age))
	}
	result = append(result, kgo.MetadataMinAge(least))
	if timeout, set := args.milliseconds("request.timeout.ms", 100*time.Millisecond); set {
		result = append(result, kgo.RequestTimeoutOverhead(timeout))
	}
	if first, set := args.milliseconds("retry.backoff.ms", 0); set {
		most, _ := args.milliseconds("retry.backoff.max.ms", first)
		result = append(result, kgo.RetryBackoffFn(func(failures int) time.Duration {
			doubled := float64(first) * math.Pow(2, float64(failures-1))
			return min(time.Duration(doubled), most)
		}))
	}
	return result
}

func commands() func(yield func(string) bool) {
	return func(yield func(string) bool) {
		lines := bufio.NewReader(os.Stdin)
		for {
			line, err := lines.ReadString('\n')
			if err != nil || !yield(strings.TrimSuffix(line, "\n")) {
				return
			}
		}
	}
}

// chosen is the partitioner for records that name their partition, or -1 for round robin.
func chosen() kgo.Partitioner {
	var turn int
	return kgo.BasicConsistentPartitioner(func(string) func(*kgo.Record, int) int {
		return func(record *kgo.Record, partitions int) int {
			if record.Partition >= 0 {
				return int(record.Partition)
			}
			turn++
			return turn % partitions
		}
	})
}

func driveProducer(args *options) error {
	kafkaOptions := append(args.common(), kgo.DefaultProduceTopic(args.topic), kgo.RecordPartitioner(chosen()),
		kgo.ProducerBatchCompression(kgo.NoCompression()))
	for _, name := range []string{"acks", "linger.ms", "max.in.flight.requests.per.connection", "enable.idempotence"} {
		if value, set := args.properties[name]; set {
			opts, err := producerProperties[name](value)
			if err != nil {
				return err
			}
			kafkaOptions = append(kafkaOptions, opts...)
		}
	}
	if size, err := strconv.Atoi(args.properties["batch.size"]); err == nil {
		// In the other clients a batch may hold one larger record.
		kafkaOptions = append(kafkaOptions, kgo.ProducerBatchMaxBytes(int32(max(size, 1_000_000))))
	}
	if timeout, set := args.milliseconds("delivery.timeout.ms", time.Second); set {
		kafkaOptions = append(kafkaOptions, kgo.RecordDeliveryTimeout(timeout))
	}
	if timeout, set := args.milliseconds("request.timeout.ms", 100*time.Millisecond); set {
		kafkaOptions = append(kafkaOptions, kgo.ProduceRequestTimeout(timeout))
	}
	if id := args.properties["transactional.id"]; id != "" {
		kafkaOptions = append(kafkaOptions, kgo.TransactionalID(id))
	} else if args.properties["enable.idempotence"] != "false" {
		// Without this, the delivery timeout does not apply to a record that may have been written.
		kafkaOptions = append(kafkaOptions, kgo.AllowIdempotentProduceCancellation())
	}
	client, err := kgo.NewClient(kafkaOptions...)
	if err != nil {
		return err
	}
	ctx := context.Background()
	sent := 0
	for command := range commands() {
		word, rest, _ := strings.Cut(command, " ")
		switch word {
		case "send":
			index, value, _ := strings.Cut(rest, " ")
			partition, err := strconv.ParseInt(index, 10, 32)
			if err != nil {
				return err
			}
			number := sent
			sent++
			record := &kgo.Record{Partition: int32(partition), Value: []byte(value)}
			client.Produce(ctx, record, func(record *kgo.Record, err error) {
				if err != nil {
					say("failed %d %v", number, err)
					return
				}
				say("acknowledged %d %d %d", number, record.Partition, record.Offset)
			})
		case "flush":
			reply(client.Flush(ctx))
		case "init":
			say("done")
		case "begin":
			reply(client.BeginTransaction())
		case "commit":
			reply(endTransaction(ctx, client, kgo.TryCommit))
		case "abort":
			reply(endTransaction(ctx, client, kgo.TryAbort))
		case "close":
			err := client.Flush(ctx)
			client.Close()
			reply(err)
			return nil
		default:
			return fmt.Errorf("unknown command %s", word)
		}
	}
	return nil
}

func endTransaction(ctx context.Context, client *kgo.Client, try kgo.TransactionEndTry) error {
	if err := client.Flush(ctx); err != nil {
		return err
	}
	return client.EndTransaction(ctx, try)
}

// driven is a consumer whose client is created when its topics or partitions are known.
type driven struct {
	args   *options
	client *kgo.Client
	max    int
	mutex  sync.Mutex
	owned  map[int32]bool
}

func driveConsumer(args *options) error {
	consumer := &driven{args: args, max: maxPollRecords, owned: map[int32]bool{}}
	if n, err := strconv.Atoi(args.properties["max.poll.records"]); err == nil {
		consumer.max = n
	}
	for command := range commands() {
		words := strings.Split(command, " ")
		if words[0] == "close" {
			if consumer.client != nil {
				consumer.client.CloseAllowingRebalance()
			}
			say("done")
			return nil
		}
		numbers := make([]int64, 0, 2)
		for _, word := range words[1:] {
			n, err := strconv.ParseInt(word, 10, 64)
			if err != nil {
				return err
			}
			numbers = append(numbers, n)
		}
		reply(consumer.obey(words[0], numbers))
	}
	return nil
}

func (c *driven) obey(word string, numbers []int64) error {
	switch word {
	case "subscribe":
		return c.start(c.group()...)
	case "unsubscribe":
		c.client.CloseAllowingRebalance()
		c.client = nil
		return nil
	case "assign":
		partitions := map[int32]kgo.Offset{}
		for index := range numbers[0] {
			partitions[int32(index)] = kgo.NewOffset().AtStart()
			c.owned[int32(index)] = true
		}
		return c.start(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{c.args.topic: partitions}))
	case "seek":
		c.client.SetOffsets(map[string]map[int32]kgo.EpochOffset{
			c.args.topic: {int32(numbers[0]): {Epoch: -1, Offset: numbers[1]}},
		})
		return nil
	case "pause":
		c.client.PauseFetchPartitions(map[string][]int32{c.args.topic: {int32(numbers[0])}})
		return nil
	case "resume":
		c.client.ResumeFetchPartitions(map[string][]int32{c.args.topic: {int32(numbers[0])}})
		return nil
	case "poll":
		c.poll(time.Duration(numbers[0]) * time.Millisecond)
		return nil
	case "commit":
		return c.client.CommitUncommittedOffsets(context.Background())
	}
	return fmt.Errorf("unknown command %s", word)
}

func (c *driven) start(subject ...kgo.Opt) error {
	kafkaOptions := append(c.args.common(), subject...)
	if wait, set := c.args.milliseconds("fetch.max.wait.ms", 10*time.Millisecond); set {
		kafkaOptions = append(kafkaOptions, kgo.FetchMaxWait(wait))
	}
	if size, err := strconv.Atoi(c.args.properties["max.partition.fetch.bytes"]); err == nil {
		kafkaOptions = append(kafkaOptions, kgo.FetchMaxPartitionBytes(int32(size)))
	}
	if c.args.properties["isolation.level"] == "read_committed" {
		kafkaOptions = append(kafkaOptions, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	if rack := c.args.properties["client.rack"]; rack != "" {
		kafkaOptions = append(kafkaOptions, kgo.Rack(rack))
	}
	kafkaOptions = append(kafkaOptions, kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	var err error
	c.client, err = kgo.NewClient(kafkaOptions...)
	return err
}

func (c *driven) group() []kgo.Opt {
	own := func(owned bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
			c.mutex.Lock()
			defer c.mutex.Unlock()
			for _, index := range topics[c.args.topic] {
				if owned {
					c.owned[index] = true
				} else {
					delete(c.owned, index)
				}
			}
		}
	}
	automatic := c.args.properties["enable.auto.commit"] == "true"
	revoke := own(false)
	result := []kgo.Opt{
		kgo.ConsumerGroup(c.args.properties["group.id"]), kgo.ConsumeTopics(c.args.topic), kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(own(true)), kgo.OnPartitionsLost(own(false)),
		kgo.OnPartitionsRevoked(func(ctx context.Context, client *kgo.Client, topics map[string][]int32) {
			if automatic {
				// The documented way to revoke partitions without duplicates.
				if err := client.CommitUncommittedOffsets(ctx); err != nil {
					fmt.Fprintln(os.Stderr, "commit:", err)
				}
			}
			revoke(ctx, client, topics)
		}),
	}
	if !automatic {
		result = append(result, kgo.DisableAutoCommit())
	} else if interval, set := c.args.milliseconds("auto.commit.interval.ms", 100*time.Millisecond); set {
		result = append(result, kgo.AutoCommitInterval(interval))
	}
	if interval, set := c.args.milliseconds("heartbeat.interval.ms", time.Millisecond); set {
		result = append(result, kgo.HeartbeatInterval(interval))
	}
	return result
}

// poll prints the records of one poll. The records of the previous poll have been processed, so it allows rebalances first.
func (c *driven) poll(wait time.Duration) {
	c.client.AllowRebalance()
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	fetches := c.client.PollRecords(ctx, c.max)
	fetches.EachError(func(_ string, index int32, err error) {
		if !errors.Is(err, context.DeadlineExceeded) {
			fmt.Fprintf(os.Stderr, "poll: partition %d: %v\n", index, err)
		}
	})
	fetches.EachRecord(func(record *kgo.Record) {
		say("record %d %d %s", record.Partition, record.Offset, record.Value)
	})
	c.mutex.Lock()
	indexes := make([]int, 0, len(c.owned))
	for index := range c.owned {
		indexes = append(indexes, int(index))
	}
	c.mutex.Unlock()
	slices.Sort(indexes)
	line := "assignment"
	for _, index := range indexes {
		line += fmt.Sprintf(" %d", index)
	}
	say("%s", line)
}
