package main

import (
	"context"
	"fmt"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/twmb/franz-go/pkg/kgo"
)

const groupTool = "group-consume"

// groupConsume reads a topic as a member of a group until it is terminated, and prints a line for everything that
// happens.
func groupConsume(args *options) error {
	balancers := map[string]kgo.GroupBalancer{
		"range": kgo.RangeBalancer(), "roundrobin": kgo.RoundRobinBalancer(),
		"cooperative-sticky": kgo.CooperativeStickyBalancer(),
	}
	balancer, known := balancers[args.assignor]
	if !known {
		return fmt.Errorf("unknown assignor %s", args.assignor)
	}
	kafkaOptions, err := args.kafkaOptions(consumerProperties, producerProperties)
	if err != nil {
		return err
	}
	tell := func(what string) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
			partitions := slices.Clone(topics[args.topic])
			slices.Sort(partitions)
			line := what
			for _, partition := range partitions {
				line += fmt.Sprintf(" %d", partition)
			}
			fmt.Println(line)
		}
	}
	revoked := tell("revoked")
	kafkaOptions = append(kafkaOptions,
		kgo.ConsumerGroup(args.group), kgo.ConsumeTopics(args.topic), kgo.Balancers(balancer),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.AutoCommitMarks(), kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(tell("assigned")), kgo.OnPartitionsLost(tell("lost")),
		kgo.OnPartitionsRevoked(func(ctx context.Context, client *kgo.Client, topics map[string][]int32) {
			// franz-go commits automatically at an interval and when it leaves, but not when partitions are revoked.
			if err := client.CommitMarkedOffsets(ctx); err != nil {
				fmt.Println("error", strings.ReplaceAll(err.Error(), "\n", " "))
			}
			revoked(ctx, client, topics)
		}))
	client, err := kgo.NewClient(kafkaOptions...)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		fetches.EachRecord(func(record *kgo.Record) {
			fmt.Printf("record %d %d %s\n", record.Partition, record.Offset, record.Value)
			client.MarkCommitRecords(record)
		})
		client.AllowRebalance()
	}
	client.CloseAllowingRebalance()
	return nil
}
