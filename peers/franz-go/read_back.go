package main

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// readBack reads a load that begins with this record number, until every record has arrived once.
func readBack(consumer *kgo.Client, first uint64, fates []fate, start time.Time) error {
	for left := len(fates); left > 0; {
		fetches, err := poll(consumer)
		if err != nil {
			return fmt.Errorf("%d records did not come back: %w", left, err)
		}
		now := time.Since(start)
		for _, record := range fetches.Records() {
			fate := fateOf(record, first, fates)
			if fate == nil || fate.acknowledged >= 0 {
				return fmt.Errorf("partition %d, offset %d came twice or is not of this load", record.Partition, record.Offset)
			}
			fate.acknowledged, fate.partition, fate.offset = max(0, now), record.Partition, record.Offset
			left--
		}
	}
	return nil
}

// fateOf is nil for a foreign record.
func fateOf(record *kgo.Record, first uint64, fates []fate) *fate {
	if len(record.Value) < 8 {
		return nil
	}
	index := binary.BigEndian.Uint64(record.Value) - first
	if index >= uint64(len(fates)) {
		return nil
	}
	return &fates[index]
}
