package curtail.peers;

import java.util.Locale;
import org.apache.kafka.common.utils.AppInfoParser;

/** The measured part of a run. */
record Report(String tool, long records, long errors, long recordSize, long bytes, long nanos, Cpu start, Cpu end,
              Histogram latency, Histogram sendLatency) {
    private double seconds() {
        return nanos / 1e9;
    }

    private double megabytesASecond() {
        return bytes / 1024.0 / 1024.0 / seconds();
    }

    private double cpuPerRecord() {
        long micros = end.userMicros() - start.userMicros() + end.systemMicros() - start.systemMicros();
        return micros / (double) Math.max(1, records);
    }

    String json() {
        return String.format(Locale.ROOT,
            "{\"tool\":\"%s\",\"client\":\"java\",\"version\":\"%s\",\"records\":%d,\"errors\":%d,"
                + "\"record_size\":%d,\"seconds\":%.6f,\"throughput_rps\":%.3f,\"throughput_mbps\":%.4f,"
                + "\"cpu_us_per_record\":%.4f,\"cpu_user_us\":%d,\"cpu_system_us\":%d,"
                + "\"latency_us\":%s,\"send_latency_us\":%s}",
            tool, AppInfoParser.getVersion(), records, errors, recordSize, seconds(), records / seconds(),
            megabytesASecond(), cpuPerRecord(), end.userMicros() - start.userMicros(),
            end.systemMicros() - start.systemMicros(), latency.json(), sendLatency.json());
    }

    String summary() {
        String text = String.format(Locale.ROOT,
            "java %s: %d records, %d errors, %.1f records/sec (%.2f MB/sec), %.3f us CPU per record",
            tool, records, errors, records / seconds(), megabytesASecond(), cpuPerRecord());
        if (latency.isEmpty()) {
            return text;
        }
        return text + String.format(Locale.ROOT, ", latency ms p50 %.3f p99 %.3f p99.9 %.3f",
            latency.percentile(0.5) / 1e6, latency.percentile(0.99) / 1e6, latency.percentile(0.999) / 1e6);
    }
}
