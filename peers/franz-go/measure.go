package main

import (
	"encoding/json"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"runtime/debug"
	"syscall"
	"time"
)

const (
	stepBits     = 7
	steps        = 1 << stepBits
	payloadCount = 1024
	quietLimit   = 60 * time.Second
)

// histogram counts nanoseconds in 128 steps to the power of two: values are kept to within 0.8 %.
type histogram struct {
	counts [(64 - stepBits + 1) * steps]uint64
	count  uint64
	sum    uint64
	max    uint64
}

func (h *histogram) record(latency time.Duration) {
	nanos := uint64(max(latency, 0))
	h.counts[slot(nanos)]++
	h.count++
	h.sum += nanos
	h.max = max(h.max, nanos)
}

// percentile is the largest value of the slot in which this share of the values is reached.
func (h *histogram) percentile(share float64) uint64 {
	rank := max(uint64(math.Ceil(float64(h.count)*share)), 1)
	seen := uint64(0)
	for slot, count := range h.counts {
		seen += count
		if seen >= rank {
			return min(largestIn(slot), h.max)
		}
	}
	return h.max
}

func slot(value uint64) int {
	if value < 2*steps {
		return int(value)
	}
	shift := 63 - bits.LeadingZeros64(value) - stepBits
	return shift*steps + int(value>>shift)
}

func largestIn(slot int) uint64 {
	if slot < 2*steps {
		return uint64(slot)
	}
	shift := slot/steps - 1
	base := uint64(slot - shift*steps)
	return base<<shift + 1<<shift - 1
}

// percentiles are in microseconds.
type percentiles struct {
	Avg  float64 `json:"avg"`
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

// micros is nil without values.
func (h *histogram) micros() *percentiles {
	if h == nil || h.count == 0 {
		return nil
	}
	at := func(share float64) float64 { return float64(h.percentile(share)) / 1e3 }
	avg := float64(h.sum) / float64(h.count) / 1e3
	return &percentiles{avg, at(0.50), at(0.95), at(0.99), at(0.999), float64(h.max) / 1e3}
}

// cpu is the user and system time of this process.
type cpu struct{ user, system time.Duration }

func cpuNow() cpu {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err) // It cannot fail for these arguments.
	}
	return cpu{time.Duration(usage.Utime.Nano()), time.Duration(usage.Stime.Nano())}
}

// sleepUntil sleeps in the kernel, for the runtime's own timers are only as fine as a millisecond. It returns the
// time at its end.
func sleepUntil(target time.Time) time.Time {
	for {
		now := time.Now()
		left := target.Sub(now)
		if left <= 0 {
			return now
		}
		duration := syscall.NsecToTimespec(int64(left))
		_ = syscall.Nanosleep(&duration, nil) // Interrupted: the loop sleeps the rest.
	}
}

// payloads are random values, generated before the run.
func payloads(size int) [][]byte {
	random := rand.NewChaCha8([32]byte{1})
	pool := make([][]byte, payloadCount)
	for i := range pool {
		pool[i] = make([]byte, size)
		_, _ = random.Read(pool[i]) // It never fails.
	}
	return pool
}

// report is the measured part of a run.
type report struct {
	tool        string
	records     int
	errors      int
	recordSize  int
	bytes       int
	elapsed     time.Duration
	start, end  cpu
	latency     *histogram
	sendLatency *histogram
}

func (r *report) rate() float64 { return float64(r.records) / r.elapsed.Seconds() }

func (r *report) megabytesASecond() float64 {
	return float64(r.bytes) / 1024 / 1024 / r.elapsed.Seconds()
}

func (r *report) cpuPerRecord() float64 {
	used := r.end.user - r.start.user + r.end.system - r.start.system
	return float64(used.Nanoseconds()) / 1e3 / float64(max(r.records, 1))
}

func (r *report) json() string {
	text, err := json.Marshal(struct {
		Tool        string       `json:"tool"`
		Client      string       `json:"client"`
		Version     string       `json:"version"`
		Records     int          `json:"records"`
		Errors      int          `json:"errors"`
		RecordSize  int          `json:"record_size"`
		Seconds     float64      `json:"seconds"`
		Rate        float64      `json:"throughput_rps"`
		Megabytes   float64      `json:"throughput_mbps"`
		Cpu         float64      `json:"cpu_us_per_record"`
		CpuUser     int64        `json:"cpu_user_us"`
		CpuSystem   int64        `json:"cpu_system_us"`
		Latency     *percentiles `json:"latency_us"`
		SendLatency *percentiles `json:"send_latency_us"`
	}{
		r.tool, "franz-go", version(), r.records, r.errors, r.recordSize, r.elapsed.Seconds(), r.rate(),
		r.megabytesASecond(), r.cpuPerRecord(), (r.end.user - r.start.user).Microseconds(),
		(r.end.system - r.start.system).Microseconds(), r.latency.micros(), r.sendLatency.micros(),
	})
	if err != nil {
		panic(err) // Only an infinity cannot be written, and no run takes no time.
	}
	return string(text)
}

func (r *report) summary() string {
	text := fmt.Sprintf("franz-go %s: %d records, %d errors, %.1f records/sec (%.2f MB/sec), %.3f us CPU per record",
		r.tool, r.records, r.errors, r.rate(), r.megabytesASecond(), r.cpuPerRecord())
	if p := r.latency.micros(); p != nil {
		text += fmt.Sprintf(", latency ms p50 %.3f p99 %.3f p99.9 %.3f", p.P50/1e3, p.P99/1e3, p.P999/1e3)
	}
	return text
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == "github.com/twmb/franz-go" {
				return module.Version
			}
		}
	}
	return "unknown"
}
