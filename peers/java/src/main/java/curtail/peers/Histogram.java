package curtail.peers;

import java.util.Locale;

/** Nanoseconds in 128 steps to the power of two: values are kept to within 0.8 %. */
final class Histogram {
    private static final int STEP_BITS = 7;
    private static final int STEPS = 1 << STEP_BITS;

    private final long[] counts = new long[(64 - STEP_BITS + 1) * STEPS];
    private long count;
    private long sum;
    private long max;

    void record(long nanos) {
        counts[slot(nanos)]++;
        count++;
        sum += nanos;
        max = Math.max(max, nanos);
    }

    boolean isEmpty() {
        return count == 0;
    }

    /** The largest value of the slot in which this share of the values is reached. */
    long percentile(double share) {
        long rank = Math.max(1, (long) Math.ceil(count * share));
        long seen = 0;
        for (int slot = 0; slot < counts.length; slot++) {
            seen += counts[slot];
            if (seen >= rank) {
                return Math.min(max, largestIn(slot));
            }
        }
        return max;
    }

    /** In microseconds, or null without values. */
    String json() {
        if (isEmpty()) {
            return "null";
        }
        return String.format(Locale.ROOT,
            "{\"avg\":%.3f,\"p50\":%.3f,\"p95\":%.3f,\"p99\":%.3f,\"p999\":%.3f,\"max\":%.3f}",
            sum / (double) count / 1e3, percentile(0.50) / 1e3, percentile(0.95) / 1e3,
            percentile(0.99) / 1e3, percentile(0.999) / 1e3, max / 1e3);
    }

    private static int slot(long value) {
        if (value < 2 * STEPS) {
            return (int) Math.max(0, value);
        }
        int shift = 63 - Long.numberOfLeadingZeros(value) - STEP_BITS;
        return (int) (shift * STEPS + (value >> shift));
    }

    private static long largestIn(int slot) {
        if (slot < 2 * STEPS) {
            return slot;
        }
        int shift = slot / STEPS - 1;
        long base = slot - shift * STEPS;
        return (base << shift) + (1L << shift) - 1;
    }
}
