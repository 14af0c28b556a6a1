package curtail.peers;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Reads a topic from its beginning, all partitions, without a group. */
final class Consume {
    static final long QUIET_LIMIT_NANOS = 60_000_000_000L;

    private Consume() {
    }

    /** Reads at least {@code --num-records} records; the time begins with the assignment. */
    static Report run(Args args) throws Exception {
        return run(args, args.records);
    }

    /** Reads at least this number of records. */
    static Report run(Args args, long wanted) throws Exception {
        ByteArrayDeserializer deserializer = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(args.consumer(Map.of()), deserializer, deserializer)) {
            List<TopicPartition> partitions = partitions(consumer, args.topic);
            Cpu cpu = Cpu.now();
            long begun = System.nanoTime();
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            long records = 0;
            long bytes = 0;
            long lastRecord = begun;
            while (records < wanted) {
                ConsumerRecords<byte[], byte[]> batch = consumer.poll(Duration.ofSeconds(1));
                for (ConsumerRecord<byte[], byte[]> record : batch) {
                    records++;
                    bytes += (record.key() == null ? 0 : record.key().length)
                        + (record.value() == null ? 0 : record.value().length);
                }
                long now = System.nanoTime();
                if (!batch.isEmpty()) {
                    lastRecord = now;
                } else if (now - lastRecord > QUIET_LIMIT_NANOS) {
                    throw new IllegalStateException("no record for 60 s; " + records + " of " + wanted + " came");
                }
            }
            long nanos = System.nanoTime() - begun;
            return new Report("consume", records, 0, Math.round(bytes / (double) records), bytes, nanos, cpu,
                Cpu.now(), new Histogram(), new Histogram());
        }
    }

    /** Places a consumer at the current end of every partition. */
    static void assignAtEnd(KafkaConsumer<byte[], byte[]> consumer, String topic) {
        List<TopicPartition> partitions = partitions(consumer, topic);
        consumer.assign(partitions);
        consumer.seekToEnd(partitions);
        partitions.forEach(consumer::position);
    }

    static List<TopicPartition> partitions(KafkaConsumer<byte[], byte[]> consumer, String topic) {
        List<TopicPartition> partitions = consumer.partitionsFor(topic).stream()
            .map(info -> new TopicPartition(topic, info.partition())).toList();
        if (partitions.isEmpty()) {
            throw new IllegalStateException("topic " + topic + " has no partitions; create it first");
        }
        return partitions;
    }
}
