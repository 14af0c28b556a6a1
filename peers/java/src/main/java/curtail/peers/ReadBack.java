package curtail.peers;

import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.concurrent.Callable;
import java.util.concurrent.FutureTask;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;

/** Reads a load back in a separate thread, until every record has arrived once. */
final class ReadBack implements Callable<Void> {
    private static final Duration POLL = Duration.ofSeconds(1);

    private final KafkaConsumer<byte[], byte[]> consumer;
    /** Number of the load's first record. */
    private final long first;
    private final Fates fates;
    private final long start;

    private ReadBack(KafkaConsumer<byte[], byte[]> consumer, long first, Fates fates, long start) {
        this.consumer = consumer;
        this.first = first;
        this.fates = fates;
        this.start = start;
    }

    /** Starts to read with a consumer that is positioned at the beginning of the load. */
    static FutureTask<Void> start(KafkaConsumer<byte[], byte[]> consumer, long first, Fates fates, long start) {
        FutureTask<Void> reading = new FutureTask<>(new ReadBack(consumer, first, fates, start));
        Thread thread = new Thread(reading, "read-back");
        thread.setDaemon(true);
        thread.start();
        return reading;
    }

    @Override
    public Void call() {
        int left = fates.size();
        long lastRecord = System.nanoTime();
        while (left > 0) {
            ConsumerRecords<byte[], byte[]> records = consumer.poll(POLL);
            long now = System.nanoTime();
            if (!records.isEmpty()) {
                lastRecord = now;
            } else if (now - lastRecord > Consume.QUIET_LIMIT_NANOS) {
                throw new IllegalStateException(left + " records did not come back");
            }
            for (ConsumerRecord<byte[], byte[]> record : records) {
                take(record, now - start);
                left--;
            }
        }
        return null;
    }

    private void take(ConsumerRecord<byte[], byte[]> record, long nanos) {
        byte[] value = record.value();
        long index = value == null || value.length < Long.BYTES ? -1 : ByteBuffer.wrap(value).getLong() - first;
        if (index < 0 || index >= fates.size() || fates.acknowledgedAt((int) index) >= 0) {
            throw new IllegalStateException("partition " + record.partition() + ", offset " + record.offset()
                + " came twice or is not of this load");
        }
        fates.acknowledged((int) index, nanos, record.partition(), record.offset());
    }
}
