package curtail.peers;

import java.io.BufferedOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

/** A consumer that reads a topic while another process sends a load to it; see peers/README.md for its file. */
final class Follow implements Callable<Void> {
    /** Longest wait for the next record. The missing ones are a result. */
    private static final long PATIENCE_NANOS = 30_000_000_000L;
    private static final Duration POLL = Duration.ofSeconds(1);
    /** Period of the timer that ends the application's work, as in tokio. */
    private static final long TICK_NANOS = 1_000_000;

    /** A record that was read, with the time of the poll since the start. */
    private record Reading(int partition, long offset, long number, long nanos) {
    }

    private final Args args;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final List<Reading> readings;
    /** The measured records that have been read. */
    private final boolean[] seen;
    /** Records that are still expected: measured ones, and those of an earlier load. */
    private long left;
    private long behind;
    private long bytes;
    private long start;

    private Follow(Args args) {
        this.args = args;
        consumer = Load.consumerAtEnd(args);
        seen = new boolean[(int) args.records];
        left = args.records;
        behind = args.backlog;
        readings = new ArrayList<>((int) (args.records + args.backlog));
    }

    static Report run(Args args) throws Exception {
        if (args.readFirst > 0) {
            Consume.run(args, args.readFirst);
        }
        List<Follow> all = new ArrayList<>();
        for (int i = 0; i < args.consumers; i++) {
            all.add(new Follow(args));
        }
        ExecutorService threads = Executors.newFixedThreadPool(args.consumers);
        try {
            long start = Load.awaitStart();
            all.forEach(follow -> follow.start = start);
            Cpu cpu = Cpu.now();
            for (Future<Void> done : threads.invokeAll(all)) {
                done.get();
            }
            Cpu end = Cpu.now();
            if (args.fates != null) {
                write(args.fates, all);
            }
            return report(all, cpu, end);
        } finally {
            threads.shutdown();
        }
    }

    /** Reads until everything has been read or nothing more arrives. */
    @Override
    public Void call() {
        try (consumer) {
            if (args.fromBeginning.length > 0) {
                consumer.seekToBeginning(
                    Arrays.stream(args.fromBeginning).mapToObj(at -> new TopicPartition(args.topic, at)).toList());
            }
            long lastRecord = System.nanoTime();
            while (left > 0 || behind > 0) {
                ConsumerRecords<byte[], byte[]> polled = consumer.poll(POLL);
                long now = System.nanoTime();
                if (polled.isEmpty()) {
                    if (now - lastRecord > PATIENCE_NANOS) {
                        break;
                    }
                    continue;
                }
                lastRecord = now;
                for (ConsumerRecord<byte[], byte[]> record : polled) {
                    take(record, Math.max(0, now - start));
                }
                if (args.workMillis > 0) {
                    work();
                }
            }
        }
        return null;
    }

    private void take(ConsumerRecord<byte[], byte[]> record, long nanos) {
        byte[] value = record.value();
        long number = value == null || value.length < Long.BYTES ? -1 : ByteBuffer.wrap(value).getLong();
        if (number < 0 || number >= seen.length && number < Load.EARLIER) {
            throw new IllegalStateException(
                "partition " + record.partition() + ", offset " + record.offset() + " is not of this load");
        }
        if (number >= Load.EARLIER) {
            behind = Math.max(0, behind - 1);
        } else if (!seen[(int) number]) {
            seen[(int) number] = true;
            left--;
        }
        bytes += value.length;
        readings.add(new Reading(record.partition(), record.offset(), number, nanos));
    }

    /** The application's work, which ends on a full millisecond. */
    private void work() {
        long end = System.nanoTime() - start + args.workMillis * TICK_NANOS;
        Load.sleepUntil(start + (end + TICK_NANOS - 1) / TICK_NANOS * TICK_NANOS);
    }

    private static void write(String path, List<Follow> all) throws IOException {
        ByteBuffer one = ByteBuffer.allocate(32).order(ByteOrder.LITTLE_ENDIAN);
        try (OutputStream out = new BufferedOutputStream(Files.newOutputStream(Path.of(path)), 1 << 16)) {
            for (int i = 0; i < all.size(); i++) {
                for (Reading reading : all.get(i).readings) {
                    one.clear();
                    one.putInt(i).putInt(reading.partition).putLong(reading.offset);
                    one.putLong(reading.number).putLong(reading.nanos);
                    out.write(one.array());
                }
            }
        }
    }

    private static Report report(List<Follow> all, Cpu start, Cpu end) {
        long records = 0;
        long bytes = 0;
        // The rates divide by it.
        long nanos = 1;
        for (Follow follow : all) {
            records += follow.readings.size();
            bytes += follow.bytes;
            if (!follow.readings.isEmpty()) {
                nanos = Math.max(nanos, follow.readings.get(follow.readings.size() - 1).nanos);
            }
        }
        long size = Math.round(bytes / (double) Math.max(1, records));
        return new Report(Args.FOLLOW, records, 0, size, bytes, nanos, start, end, new Histogram(), new Histogram());
    }
}
