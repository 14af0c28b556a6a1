package curtail.peers;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.SplittableRandom;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Latency of {@code send} calls: threads send at a rate to random partitions. The producer knows all partitions, a large
 * number. The acknowledgement time of a fate is the return of the call.
 */
final class Churn {
    /** Threads that look up the topics; the producer combines their lookups into shared requests. */
    private static final int ASKING = 500;

    private final Args args;
    private final KafkaProducer<byte[], byte[]> producer;
    private final String[] topics;
    private final Fates fates;
    private final AtomicReference<Exception> firstError = new AtomicReference<>();

    private Churn(Args args, KafkaProducer<byte[], byte[]> producer) {
        this.args = args;
        this.producer = producer;
        topics = new String[args.topics];
        for (int i = 0; i < topics.length; i++) {
            topics[i] = String.format("topic-%05d", i);
        }
        fates = new Fates((int) (args.senders * (args.records - args.warmup)));
    }

    static Report run(Args args) throws Exception {
        // Memory enough to send at once all records that a long wait has delayed; the lookup of all topics may take minutes.
        Map<String, String> defaults = Map.of("buffer.memory", String.valueOf(1 << 28), "max.block.ms", "600000");
        ByteArraySerializer serializer = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer =
                 new KafkaProducer<>(args.producer(defaults), serializer, serializer)) {
            return new Churn(args, producer).run();
        }
    }

    private Report run() throws Exception {
        everywhere(ASKING, asking -> {
            for (int i = asking; i < topics.length; i += ASKING) {
                producer.partitionsFor(topics[i]);
            }
        });
        long start = Load.awaitStart();
        Cpu cpu = Cpu.now();
        everywhere(args.senders, sender -> send(sender, start));
        producer.flush();
        Cpu end = Cpu.now();
        long nanos = System.nanoTime() - start;
        if (firstError.get() != null) {
            System.err.println("first error: " + firstError.get());
        }
        if (args.fates != null) {
            fates.write(args.fates);
        }
        Histogram latency = new Histogram();
        long records = 0;
        for (int i = 0; i < fates.size(); i++) {
            if (fates.acknowledgedAt(i) >= 0) {
                records++;
                latency.record(fates.acknowledgedAt(i) - fates.sentAt(i));
            }
        }
        return new Report("churn", records, fates.size() - records, args.recordSize, records * args.recordSize, nanos,
            cpu, end, latency, latency);
    }

    private void send(int sender, long start) {
        SplittableRandom random = new SplittableRandom(args.seed + sender);
        byte[] value = new byte[args.recordSize];
        double interval = 1e9 / args.rate;
        // Spreads the threads evenly between each other's records.
        long first = start + (long) (interval * sender / args.senders);
        long measured = args.records - args.warmup;
        long returned = start;
        for (long i = 0; i < args.records; i++) {
            String topic = topics[random.nextInt(topics.length)];
            int partition = random.nextInt(args.partitions);
            long due = first + (long) (i * interval);
            long now = Load.sleepUntil(due);
            // A late timer is not the send's fault, but a slow previous send is.
            long called = returned > due ? due : now;
            int slot = (int) (sender * measured + i - args.warmup);
            boolean counts = i >= args.warmup;
            producer.send(new ProducerRecord<>(topic, partition, null, value), (metadata, error) -> {
                if (error != null) {
                    firstError.compareAndSet(null, error);
                    if (counts) {
                        fates.failed(slot);
                    }
                }
            });
            returned = System.nanoTime();
            if (counts) {
                fates.returned(slot, called - start, returned - start, partition);
            }
        }
    }

    private interface Task {
        void run(int number) throws Exception;
    }

    /** Runs a task on this number of threads and waits for all of them. */
    private static void everywhere(int count, Task task) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(count);
        try {
            List<Callable<Void>> calls = new ArrayList<>();
            for (int i = 0; i < count; i++) {
                int number = i;
                calls.add(() -> {
                    task.run(number);
                    return null;
                });
            }
            for (Future<Void> done : threads.invokeAll(calls)) {
                done.get();
            }
        } finally {
            threads.shutdown();
        }
    }
}
