package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const followTool = "follow"

const (
	// Longest wait for the next record. The missing ones are a result.
	patience = 30 * time.Second
	// Period of the timer that ends the application's work, as in tokio.
	tick = time.Millisecond
)

// reading is a record that a consumer has read, with the time of the poll since the start.
type reading struct {
	partition int32
	offset    int64
	number    uint64
	at        time.Duration
}

// follower is a consumer and what it has read.
type follower struct {
	client *kgo.Client
	args   *options
	start  time.Time
	// seen are the measured records that have been read.
	seen []bool
	// left and behind are the records still expected: measured ones, and those of an earlier load.
	left, behind int
	readings     []reading
	bytes        int
}

// follow reads a topic while another process sends a load to it.
func follow(args *options) (*report, error) {
	if args.readFirst > 0 {
		first := *args
		first.records = args.readFirst
		if _, err := consume(&first); err != nil {
			return nil, err
		}
	}
	followers := make([]*follower, args.consumers)
	for i := range followers {
		client, err := consumerAtEnd(args)
		if err != nil {
			return nil, err
		}
		defer client.Close()
		followers[i] = &follower{
			client: client, args: args, seen: make([]bool, args.records), left: args.records, behind: args.backlog,
			readings: make([]reading, 0, args.records+args.backlog),
		}
	}
	begun, err := awaitStart()
	if err != nil {
		return nil, err
	}
	start := cpuNow()
	var running sync.WaitGroup
	failures := make([]error, len(followers))
	for i, f := range followers {
		f.start = begun
		running.Go(func() { failures[i] = f.read() })
	}
	running.Wait()
	end := cpuNow()
	if err := errors.Join(failures...); err != nil {
		return nil, err
	}
	if err := writeReadings(args.fates, followers); err != nil {
		return nil, err
	}
	result := &report{tool: followTool, start: start, end: end}
	for _, f := range followers {
		result.records += len(f.readings)
		result.bytes += f.bytes
		if last := len(f.readings) - 1; last >= 0 {
			result.elapsed = max(result.elapsed, f.readings[last].at)
		}
	}
	if result.records > 0 {
		result.recordSize = int(math.Round(float64(result.bytes) / float64(result.records)))
	}
	result.elapsed = max(result.elapsed, 1) // The rates divide by it.
	return result, nil
}

// read reads until everything has been read or nothing more arrives.
func (f *follower) read() error {
	if len(f.args.fromBeginning) > 0 {
		beginnings := map[int32]kgo.Offset{}
		for _, partition := range f.args.fromBeginning {
			beginnings[partition] = kgo.NewOffset().AtStart()
		}
		f.client.AddConsumePartitions(map[string]map[int32]kgo.Offset{f.args.topic: beginnings})
	}
	for f.left > 0 || f.behind > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		fetches := f.client.PollFetches(ctx)
		cancel()
		at := time.Since(f.start)
		if err := fetches.Err(); errors.Is(err, context.DeadlineExceeded) {
			return nil
		} else if err != nil {
			return err
		}
		for _, record := range fetches.Records() {
			if err := f.take(record, at); err != nil {
				return err
			}
		}
		if f.args.work > 0 && !fetches.Empty() {
			end := time.Since(f.start) + f.args.work
			sleepUntil(f.start.Add((end + tick - 1).Truncate(tick)))
		}
	}
	return nil
}

func (f *follower) take(record *kgo.Record, at time.Duration) error {
	number := uint64(math.MaxUint64)
	if len(record.Value) >= 8 {
		number = binary.BigEndian.Uint64(record.Value)
	}
	switch {
	case number == math.MaxUint64, number >= uint64(len(f.seen)) && number < earlier:
		return fmt.Errorf("partition %d, offset %d is not of this load", record.Partition, record.Offset)
	case number >= earlier:
		f.behind = max(f.behind-1, 0)
	case !f.seen[number]:
		f.seen[number] = true
		f.left--
	}
	f.bytes += len(record.Value)
	f.readings = append(f.readings, reading{record.Partition, record.Offset, number, max(at, 0)})
	return nil
}

// writeReadings writes what the consumers have read in the format of README.md; it does nothing without a path.
func writeReadings(path string, followers []*follower) error {
	return writeFile(path, func(out *bufio.Writer) {
		for consumer, f := range followers {
			for _, reading := range f.readings {
				bytes := binary.LittleEndian.AppendUint32(make([]byte, 0, 32), uint32(consumer))
				bytes = binary.LittleEndian.AppendUint32(bytes, uint32(reading.partition))
				bytes = binary.LittleEndian.AppendUint64(bytes, uint64(reading.offset))
				bytes = binary.LittleEndian.AppendUint64(bytes, reading.number)
				bytes = binary.LittleEndian.AppendUint64(bytes, uint64(reading.at))
				_, _ = out.Write(bytes)
			}
		}
	})
}
