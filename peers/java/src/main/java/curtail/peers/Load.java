package curtail.peers;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.SplittableRandom;
import java.util.concurrent.FutureTask;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Sends records open loop from a given start time, reads them back if asked to, and writes the outcome of each. */
final class Load {
    /** First record number of the warm-up, or of an earlier load. */
    static final long EARLIER = 1L << 40;
    /** Letters that values are cut from. With fewer, values repeat within a batch, and a codec compresses the repetitions. */
    private static final int POOL = 1 << 22;
    /** Longest time from now to a start; a larger one belongs to another clock. */
    private static final long LONGEST_NANOS = 60_000_000_000L;

    private final Args args;
    private final List<KafkaProducer<byte[], byte[]>> producers;
    /** Reads the load back; null if latencies end with the acknowledgement. */
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final byte[] letters;
    private final AtomicReference<Exception> firstError = new AtomicReference<>();

    private Load(Args args, List<KafkaProducer<byte[], byte[]>> producers, KafkaConsumer<byte[], byte[]> consumer) {
        this.args = args;
        this.producers = producers;
        this.consumer = consumer;
        letters = letters(args.seed, POOL + args.recordSize);
    }

    static Report run(Args args) throws Exception {
        ByteArraySerializer serializer = new ByteArraySerializer();
        List<KafkaProducer<byte[], byte[]>> producers = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer = args.untilRead ? consumerAtEnd(args) : null) {
            for (int i = 0; i < args.producers; i++) {
                producers.add(new KafkaProducer<>(args.producer(Map.of()), serializer, serializer));
            }
            return new Load(args, producers, consumer).run();
        } finally {
            producers.forEach(KafkaProducer::close);
        }
    }

    static KafkaConsumer<byte[], byte[]> consumerAtEnd(Args args) {
        ByteArrayDeserializer deserializer = new ByteArrayDeserializer();
        KafkaConsumer<byte[], byte[]> consumer =
            new KafkaConsumer<>(args.consumer(Map.of()), deserializer, deserializer);
        Consume.assignAtEnd(consumer, args.topic);
        return consumer;
    }

    private Report run() throws Exception {
        if (args.warmup > 0) {
            producers.forEach(producer -> producer.partitionsFor(args.topic));
            send(EARLIER, new Fates((int) args.warmup), System.nanoTime());
            if (firstError.get() != null) {
                throw new IllegalStateException("the warm-up failed: " + firstError.get());
            }
        }
        long start = awaitStart();
        Fates fates = new Fates((int) (args.records - args.warmup));
        Cpu cpu = Cpu.now();
        send(0, fates, start);
        Cpu end = Cpu.now();
        long nanos = System.nanoTime() - start;
        if (firstError.get() != null) {
            System.err.println("first error: " + firstError.get());
        }
        if (args.fates != null) {
            fates.write(args.fates);
        }
        return report(fates, nanos, cpu, end);
    }

    /** Prints {@code ready} and waits for the line {@code go}, with or without a start time. */
    static long awaitStart() throws Exception {
        System.out.println("ready");
        System.out.flush();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        String line = in.readLine();
        long now = System.nanoTime();
        if (line != null && line.equals("go")) {
            return now;
        }
        if (line == null || !line.startsWith("go ")) {
            throw new IllegalStateException("expected \"go\" or \"go NANOSECONDS\" on standard input, not " + line);
        }
        long start = Long.parseLong(line.substring(3));
        if (Math.abs(start - now) > LONGEST_NANOS) {
            throw new IllegalStateException("the start is at " + start + " ns; this process's clock is at " + now);
        }
        return start;
    }

    /** Sends one record per fate and waits until each fate is known. */
    private void send(long first, Fates fates, long start) throws Exception {
        FutureTask<Void> reading = consumer == null ? null : ReadBack.start(consumer, first, fates, start);
        byte[] value = new byte[args.recordSize];
        for (int i = 0; i < fates.size(); i++) {
            int index = i;
            fates.sent(index, sleepUntil(start + due(i)) - start);
            fill(value, first, i);
            byte[] key = args.keys == 0 ? null : ByteBuffer.allocate(8).putLong(i % args.keys).array();
            // The producer copies key and value before it returns.
            Integer partition = args.toPartitions.length == 0 ? null : args.toPartitions[i % args.toPartitions.length];
            ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(args.topic, partition, key, value);
            producers.get(i % args.producers).send(record, (metadata, error) -> {
                if (error != null) {
                    firstError.compareAndSet(null, error);
                } else if (reading == null) {
                    fates.acknowledged(index, System.nanoTime() - start, metadata.partition(), metadata.offset());
                }
            });
        }
        producers.forEach(KafkaProducer::flush);
        if (reading != null) {
            reading.get();
        }
    }

    /** When a record is due, in nanoseconds since the start: with the first record of its burst. */
    private long due(long index) {
        return (long) ((index - index % args.burst) * (1e9 / args.rate));
    }

    /** Fills a value with the record's number, then letters. */
    private void fill(byte[] value, long first, long index) {
        ByteBuffer.wrap(value).putLong(first + index);
        int at = (int) (index * 40_503 % POOL);
        System.arraycopy(letters, at, value, 8, value.length - 8);
    }

    private static byte[] letters(long seed, int count) {
        SplittableRandom random = new SplittableRandom(seed);
        byte[] letters = new byte[count];
        for (int i = 0; i < count; i++) {
            letters[i] = (byte) random.nextInt('A', 'Z' + 1);
        }
        return letters;
    }

    /** Sleeps until a time and returns the time afterwards; returns at once if it has passed. */
    static long sleepUntil(long time) {
        long now = System.nanoTime();
        while (now < time) {
            LockSupport.parkNanos(time - now);
            now = System.nanoTime();
        }
        return now;
    }

    /** Latencies count from when a record was due, and from when it was sent. */
    private Report report(Fates fates, long nanos, Cpu start, Cpu end) {
        Histogram latency = new Histogram();
        Histogram sendLatency = new Histogram();
        long records = 0;
        for (int i = 0; i < fates.size(); i++) {
            long acknowledged = fates.acknowledgedAt(i);
            if (acknowledged >= 0) {
                records++;
                latency.record(acknowledged - due(i));
                sendLatency.record(acknowledged - fates.sentAt(i));
            }
        }
        return new Report("load", records, fates.size() - records, args.recordSize, records * args.recordSize, nanos,
            start, end, latency, sendLatency);
    }
}
