package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sys/unix"
)

const (
	// First record number of the warm-up.
	earlier = 1 << 40
	// Letters that values are cut from, beyond the length of one value. With fewer, values repeat within a batch, and a
	// codec compresses the repetitions.
	letterPool = 1 << 22
	// Longest time from now to a start; a larger one belongs to another clock.
	longestLead = time.Minute
)

// loader sends records open loop and records their outcomes.
type loader struct {
	// clients send in turn.
	clients []*kgo.Client
	// consumer is nil if the acknowledgement ends a latency and not the poll.
	consumer *kgo.Client
	args     *options
	letters  []byte
	mutex    sync.Mutex
	failure  error
}

// load begins at a given start time.
func load(args *options) (*report, error) {
	kafkaOptions, err := args.kafkaOptions(producerProperties, consumerProperties)
	if err != nil {
		return nil, err
	}
	kafkaOptions = append(kafkaOptions, kgo.DefaultProduceTopic(args.topic))
	if len(args.toPartitions) > 0 {
		kafkaOptions = append(kafkaOptions, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	var clients []*kgo.Client
	for range args.producers {
		client, err := kgo.NewClient(kafkaOptions...)
		if err != nil {
			return nil, err
		}
		defer client.Close()
		clients = append(clients, client)
	}
	l := &loader{clients: clients, args: args, letters: letters(args.seed, letterPool+args.recordSize)}
	if args.until == untilRead {
		if l.consumer, err = consumerAtEnd(args); err != nil {
			return nil, err
		}
		defer l.consumer.Close()
	}
	if args.warmup > 0 {
		if err := l.send(earlier, newFates(args.warmup), time.Now()); err != nil {
			return nil, err
		}
		if l.failure != nil {
			return nil, fmt.Errorf("the warm-up failed: %w", l.failure)
		}
	}
	begun, err := awaitStart()
	if err != nil {
		return nil, err
	}
	fates := newFates(args.records - args.warmup)
	start := cpuNow()
	if err := l.send(0, fates, begun); err != nil {
		return nil, err
	}
	end, elapsed := cpuNow(), time.Since(begun)
	if l.failure != nil {
		fmt.Fprintln(os.Stderr, "first error:", strings.ReplaceAll(l.failure.Error(), "\n", " "))
	}
	if err := writeFates(args.fates, fates); err != nil {
		return nil, err
	}
	return l.report(fates, elapsed, start, end), nil
}

// awaitStart prints "ready" and waits for the line "go", with or without a start time.
func awaitStart() (time.Time, error) {
	fmt.Println("ready")
	line, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return time.Time{}, err
	}
	now := time.Now()
	line = strings.TrimSpace(line)
	if line == "go" {
		return now, nil
	}
	nanos, told := strings.CutPrefix(line, "go ")
	at, err := strconv.ParseInt(nanos, 10, 64)
	if !told || err != nil {
		return time.Time{}, fmt.Errorf(`expected "go" or "go NANOSECONDS" on standard input, not %q`, line)
	}
	var clock unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &clock); err != nil {
		return time.Time{}, err
	}
	lead := time.Duration(at - clock.Nano())
	if lead.Abs() > longestLead {
		return time.Time{}, fmt.Errorf("the start is at %d ns; this process's clock is at %d", at, clock.Nano())
	}
	return time.Now().Add(lead), nil
}

// due is the due time of a record, since the start: that of the first record of its burst.
func (l *loader) due(index int) time.Duration {
	return time.Duration(float64(index-index%l.args.burst) * 1e9 / l.args.rate)
}

// send sends one record per fate and waits until each fate is known.
func (l *loader) send(first uint64, fates []fate, start time.Time) error {
	ctx, read := context.Background(), make(chan error, 1)
	if l.consumer != nil {
		go func() { read <- readBack(l.consumer, first, fates, start) }()
	} else {
		read <- nil
	}
	for i := range fates {
		fate := &fates[i]
		fate.sent = max(0, sleepUntil(start.Add(l.due(i))).Sub(start))
		l.clients[i%len(l.clients)].Produce(ctx, l.record(first, i), func(record *kgo.Record, err error) {
			if err != nil {
				l.mutex.Lock()
				defer l.mutex.Unlock()
				if l.failure == nil {
					l.failure = err
				}
				return
			}
			if l.consumer != nil {
				return
			}
			fate.acknowledged = max(fate.sent, time.Since(start))
			fate.partition, fate.offset = record.Partition, record.Offset
		})
	}
	for _, client := range l.clients {
		if err := client.Flush(ctx); err != nil {
			return err
		}
	}
	return <-read
}

// record allocates a new record: the client keeps it until it is written.
func (l *loader) record(first uint64, index int) *kgo.Record {
	value := binary.BigEndian.AppendUint64(make([]byte, 0, l.args.recordSize), first+uint64(index))
	at := index * 40_503 % letterPool
	value = append(value, l.letters[at:at+l.args.recordSize-len(value)]...)
	record := &kgo.Record{Value: value}
	if chosen := l.args.toPartitions; len(chosen) > 0 {
		record.Partition = chosen[index%len(chosen)]
	}
	if l.args.keys > 0 {
		record.Key = binary.BigEndian.AppendUint64(nil, uint64(index%l.args.keys))
	}
	return record
}

func letters(seed uint64, count int) []byte {
	random := rand.New(rand.NewPCG(seed, 0))
	pool := make([]byte, count)
	for i := range pool {
		pool[i] = 'A' + byte(random.IntN(26))
	}
	return pool
}

// report counts latencies from when a record was due, and from when it was sent.
func (l *loader) report(fates []fate, elapsed time.Duration, start, end cpu) *report {
	latency, sendLatency, records := &histogram{}, &histogram{}, 0
	for i, fate := range fates {
		if fate.acknowledged >= 0 {
			records++
			latency.record(fate.acknowledged - l.due(i))
			sendLatency.record(fate.acknowledged - fate.sent)
		}
	}
	return &report{
		tool: "load", records: records, errors: len(fates) - records, recordSize: l.args.recordSize,
		bytes: records * l.args.recordSize, elapsed: elapsed, start: start, end: end,
		latency: latency, sendLatency: sendLatency,
	}
}
