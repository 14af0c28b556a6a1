package curtail.peers;

import java.time.Duration;
import java.util.Arrays;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** One record at a time: sent, acknowledged, read back. */
final class EndToEnd {
    private static final Duration LIMIT = Duration.ofSeconds(60);

    private EndToEnd() {
    }

    /**
     * The latency of a record is from just before its send until it has been read, with its acknowledgement awaited in
     * between, as in Kafka's own tool.
     */
    static Report run(Args args) throws Exception {
        ByteArraySerializer serializer = new ByteArraySerializer();
        ByteArrayDeserializer deserializer = new ByteArrayDeserializer();
        Map<String, String> sending = Map.of("acks", args.acks, "linger.ms", "0");
        Map<String, String> reading = Map.of("fetch.max.wait.ms", "0");
        try (KafkaConsumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(args.consumer(reading), deserializer, deserializer);
             KafkaProducer<byte[], byte[]> producer =
                 new KafkaProducer<>(args.producer(sending), serializer, serializer)) {
            Consume.assignAtEnd(consumer, args.topic);
            return measure(args, producer, consumer);
        }
    }

    private static Report measure(Args args, KafkaProducer<byte[], byte[]> producer,
                                  KafkaConsumer<byte[], byte[]> consumer) throws Exception {
        Payloads payloads = new Payloads(args.recordSize);
        Histogram latency = new Histogram();
        Fates fates = new Fates((int) (args.records - args.warmup));
        Cpu cpu = Cpu.now();
        long begun = System.nanoTime();
        for (long i = 0; i < args.records; i++) {
            if (i == args.warmup && i > 0) {
                latency = new Histogram();
                cpu = Cpu.now();
                begun = System.nanoTime();
            }
            byte[] payload = payloads.get(i);
            long sent = System.nanoTime();
            producer.send(new ProducerRecord<>(args.topic, payload)).get();
            ConsumerRecords<byte[], byte[]> records = consumer.poll(LIMIT);
            long read = System.nanoTime();
            latency.record(read - sent);
            if (records.isEmpty()) {
                throw new IllegalStateException("record " + i + " did not come back in 60 s");
            }
            ConsumerRecord<byte[], byte[]> record = records.iterator().next();
            if (records.count() != 1 || !Arrays.equals(record.value(), payload)) {
                throw new IllegalStateException("record " + i + " came back changed or out of turn");
            }
            if (i >= args.warmup) {
                int index = (int) (i - args.warmup);
                fates.sent(index, sent - begun);
                fates.acknowledged(index, read - begun, record.partition(), record.offset());
            }
        }
        long nanos = System.nanoTime() - begun;
        if (args.fates != null) {
            fates.write(args.fates);
        }
        long records = args.records - args.warmup;
        return new Report("e2e", records, 0, args.recordSize, records * args.recordSize, nanos, cpu, Cpu.now(),
            latency, latency);
    }
}
