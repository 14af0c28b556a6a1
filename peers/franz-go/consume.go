package main

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// The smallest wait that franz-go accepts. Brokers still respond to a fetch as soon as there is a record.
const shortestFetchWait = 10 * time.Millisecond

const newTopicPause = 50 * time.Millisecond

// consume reads a topic from its beginning, all partitions, without a group. The time begins with the assignment.
func consume(args *options) (*report, error) {
	partitions, err := endOffsets(args)
	if err != nil {
		return nil, err
	}
	for partition := range partitions {
		partitions[partition] = kgo.NewOffset().AtStart()
	}
	kafkaOptions, err := args.kafkaOptions(consumerProperties, producerProperties)
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(kafkaOptions...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	start, begun := cpuNow(), time.Now()
	client.AddConsumePartitions(map[string]map[int32]kgo.Offset{args.topic: partitions})
	records, size := 0, 0
	for records < args.records {
		fetches, err := poll(client)
		if err != nil {
			return nil, fmt.Errorf("%w; %d of %d records came", err, records, args.records)
		}
		fetches.EachRecord(func(record *kgo.Record) {
			records++
			size += len(record.Key) + len(record.Value)
		})
	}
	elapsed, end := time.Since(begun), cpuNow()
	return &report{
		tool: "consume", records: records, recordSize: int(math.Round(float64(size) / float64(records))), bytes: size,
		elapsed: elapsed, start: start, end: end,
	}, nil
}

// poll waits a limited time for records.
func poll(client *kgo.Client) (kgo.Fetches, error) {
	ctx, cancel := context.WithTimeout(context.Background(), quietLimit)
	defer cancel()
	fetches := client.PollFetches(ctx)
	return fetches, fetches.Err()
}

// endOffsets are the topic's partitions and their ends.
func endOffsets(args *options) (map[int32]kgo.Offset, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(args.bootstrap, ",")...))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), quietLimit)
	defer cancel()
	admin := kadm.NewClient(client)
	listed, err := listEnds(ctx, admin, args.topic)
	// The leader of a new topic may not know about it yet.
	for err != nil && kerr.IsRetriable(err) && ctx.Err() == nil {
		time.Sleep(newTopicPause)
		listed, err = listEnds(ctx, admin, args.topic)
	}
	if err != nil {
		return nil, fmt.Errorf("topic %s: %w", args.topic, err)
	}
	offsets := map[int32]kgo.Offset{}
	listed.Each(func(end kadm.ListedOffset) { offsets[end.Partition] = kgo.NewOffset().At(end.Offset) })
	if len(offsets) == 0 {
		return nil, fmt.Errorf("topic %s has no partitions; create it first", args.topic)
	}
	return offsets, nil
}

func listEnds(ctx context.Context, admin *kadm.Client, topic string) (kadm.ListedOffsets, error) {
	listed, err := admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	return listed, listed.Error()
}

// endToEnd sends one record at a time. Its latency is from just before its send until it has been read, with its
// acknowledgement awaited in between, as in Kafka's own tool.
func endToEnd(args *options) (*report, error) {
	producer, consumer, err := endToEndClients(args)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	defer consumer.Close()
	pool := payloads(args.recordSize)
	latency, fates := &histogram{}, newFates(args.records-args.warmup)
	start, begun := cpuNow(), time.Now()
	for i := range args.records {
		if i == args.warmup && i > 0 {
			latency = &histogram{}
			start, begun = cpuNow(), time.Now()
		}
		payload := pool[i%payloadCount]
		sent := time.Now()
		if err := producer.ProduceSync(context.Background(), &kgo.Record{Value: payload}).FirstErr(); err != nil {
			return nil, fmt.Errorf("record %d was not accepted: %w", i, err)
		}
		fetches, err := poll(consumer)
		read := time.Now()
		latency.record(read.Sub(sent))
		if err != nil {
			return nil, fmt.Errorf("record %d did not come back: %w", i, err)
		}
		records := fetches.Records()
		if len(records) != 1 || !bytes.Equal(records[0].Value, payload) {
			return nil, fmt.Errorf("record %d came back changed or out of turn", i)
		}
		if i >= args.warmup {
			fates[i-args.warmup] = fate{sent.Sub(begun), read.Sub(begun), records[0].Partition, records[0].Offset}
		}
	}
	elapsed, end := time.Since(begun), cpuNow()
	if err := writeFates(args.fates, fates); err != nil {
		return nil, err
	}
	records := args.records - args.warmup
	return &report{
		tool: "e2e", records: records, recordSize: args.recordSize, bytes: records * args.recordSize, elapsed: elapsed,
		start: start, end: end, latency: latency, sendLatency: latency,
	}, nil
}

// endToEndClients are a producer without linger and a consumer at the end of every partition.
func endToEndClients(args *options) (producer, consumer *kgo.Client, err error) {
	sending, err := args.kafkaOptions(producerProperties, consumerProperties)
	if err != nil {
		return nil, nil, err
	}
	acks, err := acksOption(args.acks)
	if err != nil {
		return nil, nil, err
	}
	defaults := append([]kgo.Opt{kgo.ProducerLinger(0), kgo.DefaultProduceTopic(args.topic)}, acks...)
	consumer, err = consumerAtEnd(args, kgo.FetchMaxWait(shortestFetchWait))
	if err != nil {
		return nil, nil, err
	}
	producer, err = kgo.NewClient(append(defaults, sending...)...)
	if err != nil {
		consumer.Close()
	}
	return producer, consumer, err
}

// consumerAtEnd is a consumer at the end of every partition, without those that the tool follow reads from their beginning:
// SetOffsets is for partitions that polls have returned. The properties take precedence.
func consumerAtEnd(args *options, defaults ...kgo.Opt) (*kgo.Client, error) {
	ends, err := endOffsets(args)
	if err != nil {
		return nil, err
	}
	for _, partition := range args.fromBeginning {
		delete(ends, partition)
	}
	reading, err := args.kafkaOptions(consumerProperties, producerProperties)
	if err != nil {
		return nil, err
	}
	from := kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{args.topic: ends})
	return kgo.NewClient(append(append(defaults, from), reading...)...)
}
