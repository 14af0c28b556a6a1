package curtail.peers;

import java.util.Map;
import java.util.Properties;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Sends records as fast as possible, or open loop at a rate. */
final class Produce {
    /** Outcomes of the sends. Written by the producer's one network thread, and by failing sends. */
    private static final class Acks {
        private final Histogram latency = new Histogram();
        private final Histogram sendLatency = new Histogram();
        private long errors;
        private Exception firstError;

        synchronized void done(long intended, long sent, Exception error) {
            if (error != null) {
                errors++;
                firstError = firstError == null ? error : firstError;
                return;
            }
            long now = System.nanoTime();
            latency.record(now - intended);
            sendLatency.record(now - sent);
        }
    }

    private record Ack(Acks acks, long intended, long sent) implements Callback {
        @Override
        public void onCompletion(RecordMetadata metadata, Exception error) {
            acks.done(intended, sent, error);
        }
    }

    private Produce() {
    }

    /** Sends the warm-up, waits for its acks, and then measures the rest. */
    static Report run(Args args) throws Exception {
        Properties properties = args.producer(Map.of());
        Payloads payloads = new Payloads(args.recordSize);
        ByteArraySerializer serializer = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties, serializer, serializer)) {
            Acks warmup = new Acks();
            send(producer, args, payloads, 0, args.warmup, warmup);
            if (warmup.errors > 0) {
                throw new IllegalStateException(warmup.errors + " warm-up records failed: " + warmup.firstError);
            }
            Acks acks = new Acks();
            Cpu cpu = Cpu.now();
            long begun = System.nanoTime();
            send(producer, args, payloads, args.warmup, args.records, acks);
            long nanos = System.nanoTime() - begun;
            Cpu end = Cpu.now();
            if (acks.firstError != null) {
                System.err.println("first error: " + acks.firstError);
            }
            long records = args.records - args.warmup - acks.errors;
            return new Report("produce", records, acks.errors, args.recordSize, records * args.recordSize, nanos,
                cpu, end, acks.latency, acks.sendLatency);
        }
    }

    private static void send(KafkaProducer<byte[], byte[]> producer, Args args, Payloads payloads, long from,
                             long to, Acks acks) {
        double interval = 1e9 / args.rate;
        long start = System.nanoTime();
        for (long i = from; i < to; i++) {
            long sent;
            long intended;
            if (args.rate > 0) {
                intended = start + (long) ((i - from) * interval);
                sent = sleepUntil(intended);
            } else {
                sent = System.nanoTime();
                intended = sent;
            }
            producer.send(new ProducerRecord<>(args.topic, payloads.get(i)), new Ack(acks, intended, sent));
        }
        producer.flush();
    }

    /** Sleeps until a time and returns the time afterwards; returns at once if it has passed. */
    private static long sleepUntil(long time) {
        long now = System.nanoTime();
        while (now < time) {
            LockSupport.parkNanos(time - now);
            now = System.nanoTime();
        }
        return now;
    }
}
