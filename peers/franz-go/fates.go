package main

import (
	"bufio"
	"encoding/binary"
	"os"
	"time"
)

// fate is what became of a record, in nanoseconds since the start.
type fate struct {
	sent time.Duration
	// acknowledged is -1 if it was not.
	acknowledged time.Duration
	partition    int32
	// offset is -1 if it is not known.
	offset int64
}

func newFates(records int) []fate {
	fates := make([]fate, records)
	for i := range fates {
		fates[i] = fate{acknowledged: -1, partition: -1, offset: -1}
	}
	return fates
}

// writeFates writes them as README.md says; nowhere without a path.
func writeFates(path string, fates []fate) error {
	if path == "" {
		return nil
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	out := bufio.NewWriter(file)
	for _, fate := range fates {
		bytes := make([]byte, 0, 28)
		bytes = binary.LittleEndian.AppendUint64(bytes, uint64(fate.sent))
		bytes = binary.LittleEndian.AppendUint64(bytes, uint64(fate.acknowledged))
		bytes = binary.LittleEndian.AppendUint32(bytes, uint32(fate.partition))
		bytes = binary.LittleEndian.AppendUint64(bytes, uint64(fate.offset))
		// An error stays until the flush.
		_, _ = out.Write(bytes)
	}
	return out.Flush()
}
