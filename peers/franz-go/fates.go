package main

import (
	"bufio"
	"encoding/binary"
	"os"
	"time"
)

// fate is the outcome of a record, in nanoseconds since the start.
type fate struct {
	sent time.Duration
	// acknowledged is -1 if the record was not acknowledged.
	acknowledged time.Duration
	partition    int32
	// offset is -1 if it is unknown.
	offset int64
}

func newFates(records int) []fate {
	fates := make([]fate, records)
	for i := range fates {
		fates[i] = fate{acknowledged: -1, partition: -1, offset: -1}
	}
	return fates
}

// writeFates writes the fates in the format of README.md; it does nothing without a path.
func writeFates(path string, fates []fate) error {
	return writeFile(path, func(out *bufio.Writer) {
		for _, fate := range fates {
			bytes := make([]byte, 0, 28)
			bytes = binary.LittleEndian.AppendUint64(bytes, uint64(fate.sent))
			bytes = binary.LittleEndian.AppendUint64(bytes, uint64(fate.acknowledged))
			bytes = binary.LittleEndian.AppendUint32(bytes, uint32(fate.partition))
			bytes = binary.LittleEndian.AppendUint64(bytes, uint64(fate.offset))
			_, _ = out.Write(bytes)
		}
	})
}

// writeFile creates a file with what write adds, whose errors the writer keeps; it does nothing without a path.
func writeFile(path string, write func(*bufio.Writer)) error {
	if path == "" {
		return nil
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	out := bufio.NewWriter(file)
	write(out)
	return out.Flush()
}
