package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// acks are the outcomes that the callbacks received.
type acks struct {
	mutex                sync.Mutex
	latency, sendLatency histogram
	errors               int
	firstError           error
}

func (a *acks) done(intended, sent time.Time, err error) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if err != nil {
		a.errors++
		if a.firstError == nil {
			a.firstError = err
		}
		return
	}
	now := time.Now()
	a.latency.record(now.Sub(intended))
	a.sendLatency.record(now.Sub(sent))
}

// produce sends the warm-up, waits for its acks, and then measures the rest.
func produce(args *options) (*report, error) {
	kafkaOptions, err := args.kafkaOptions(producerProperties, consumerProperties)
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(append(kafkaOptions, kgo.DefaultProduceTopic(args.topic))...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	pool := payloads(args.recordSize)
	warmup := &acks{}
	if err := send(client, args, pool, 0, args.warmup, warmup); err != nil {
		return nil, err
	}
	if warmup.errors > 0 {
		return nil, fmt.Errorf("%d warm-up records failed: %w", warmup.errors, warmup.firstError)
	}
	measured := &acks{}
	start, begun := cpuNow(), time.Now()
	if err := send(client, args, pool, args.warmup, args.records, measured); err != nil {
		return nil, err
	}
	elapsed, end := time.Since(begun), cpuNow()
	if measured.firstError != nil {
		fmt.Fprintln(os.Stderr, "first error:", measured.firstError)
	}
	records := args.records - args.warmup - measured.errors
	return &report{
		tool: "produce", records: records, errors: measured.errors, recordSize: args.recordSize,
		bytes: records * args.recordSize, elapsed: elapsed, start: start, end: end,
		latency: &measured.latency, sendLatency: &measured.sendLatency,
	}, nil
}

// send sends the records from..to, as fast as possible or open loop, and waits for their acks.
func send(client *kgo.Client, args *options, pool [][]byte, from, to int, acks *acks) error {
	ctx := context.Background()
	start := time.Now()
	for i := from; i < to; i++ {
		var intended, sent time.Time
		if args.rate > 0 {
			intended = start.Add(time.Duration(float64(i-from) * 1e9 / args.rate))
			sent = sleepUntil(intended)
		} else {
			sent = time.Now()
			intended = sent
		}
		record := &kgo.Record{Value: pool[i%payloadCount]}
		client.Produce(ctx, record, func(_ *kgo.Record, err error) { acks.done(intended, sent, err) })
	}
	return client.Flush(ctx)
}
