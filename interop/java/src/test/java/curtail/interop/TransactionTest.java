package curtail.interop;

import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.util.List;
import java.util.Map;
import java.util.Set;

import static curtail.interop.Cluster.consumer;
import static curtail.interop.Cluster.produce;
import static curtail.interop.Cluster.producer;
import static curtail.interop.Cluster.take;
import static curtail.interop.Cluster.topic;
import static curtail.interop.Cluster.unique;
import static curtail.interop.Cluster.values;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

/** The Java client's transactions. */
class TransactionTest {
    private static KafkaProducer<String, String> transactional(String id) {
        KafkaProducer<String, String> producer = producer("transactional.id", id);
        producer.initTransactions();
        return producer;
    }

    private static KafkaConsumer<String, String> reader(String isolation, String topic) {
        KafkaConsumer<String, String> consumer = consumer("isolation.level", isolation);
        consumer.assign(List.of(new TopicPartition(topic, 0)));
        return consumer;
    }

    @Test
    void readCommittedSeesCommittedTransactionsOnly() throws Exception {
        String topic = topic("isolation", 1);
        try (KafkaProducer<String, String> producer = transactional(unique("isolation"))) {
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "aborted"));
            producer.flush();
            producer.abortTransaction();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "committed"));
            producer.commitTransaction();
        }
        try (KafkaConsumer<String, String> all = reader("read_uncommitted", topic);
             KafkaConsumer<String, String> committed = reader("read_committed", topic)) {
            assertEquals(List.of("aborted", "committed"), values(take(all, 2)));
            assertEquals(List.of("committed"), values(take(committed, 1)));
            assertEquals(4, committed.position(new TopicPartition(topic, 0)));
        }
    }

    @Test
    void openTransactionHoldsTheLastStableOffset() throws Exception {
        String topic = topic("stable", 1);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaProducer<String, String> producer = transactional(unique("stable"));
             KafkaConsumer<String, String> all = reader("read_uncommitted", topic);
             KafkaConsumer<String, String> committed = reader("read_committed", topic)) {
            produce(topic, "before");
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "open")).get();
            produce(topic, "after");
            assertEquals(3, take(all, 3).size());
            assertEquals(3, all.endOffsets(Set.of(partition)).get(partition));
            assertEquals(1, committed.endOffsets(Set.of(partition)).get(partition));
            assertEquals(List.of("before"), values(take(committed, 1)));
            producer.commitTransaction();
            assertEquals(List.of("open", "after"), values(take(committed, 2)));
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"classic", "consumer"})
    void offsetsCommitWithTheTransaction(String protocol) throws Exception {
        String input = topic("input", 1);
        String output = topic("output", 1);
        String group = unique("offsets");
        TopicPartition partition = new TopicPartition(input, 0);
        produce(input, "a", "b");
        try (KafkaConsumer<String, String> consumer = consumer("group.id", group, "group.protocol", protocol,
                 "enable.auto.commit", false, "isolation.level", "read_committed");
             KafkaProducer<String, String> producer = transactional(unique("offsets"))) {
            consumer.subscribe(List.of(input));
            take(consumer, 2);
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(output, "aborted"));
            producer.sendOffsetsToTransaction(Map.of(partition, new OffsetAndMetadata(1)), consumer.groupMetadata());
            producer.abortTransaction();
            assertNull(consumer.committed(Set.of(partition)).get(partition));
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(output, "committed"));
            producer.sendOffsetsToTransaction(Map.of(partition, new OffsetAndMetadata(2)), consumer.groupMetadata());
            producer.commitTransaction();
            assertEquals(2, consumer.committed(Set.of(partition)).get(partition).offset());
        }
        try (KafkaConsumer<String, String> reader = reader("read_committed", output)) {
            assertEquals(List.of("committed"), values(take(reader, 1)));
        }
    }

    @Test
    void laterProducerFencesTheEarlierOne() throws Exception {
        String topic = topic("fenced", 1);
        String id = unique("fenced");
        try (KafkaProducer<String, String> earlier = transactional(id)) {
            earlier.beginTransaction();
            earlier.send(new ProducerRecord<>(topic, "earlier")).get();
            try (KafkaProducer<String, String> later = transactional(id)) {
                later.beginTransaction();
                later.send(new ProducerRecord<>(topic, "later"));
                later.commitTransaction();
            }
            assertInstanceOf(ProducerFencedException.class, assertThrows(KafkaException.class, earlier::commitTransaction));
        }
        try (KafkaConsumer<String, String> committed = reader("read_committed", topic)) {
            assertEquals(List.of("later"), values(take(committed, 1)));
        }
    }

    @Test
    void coordinatorAbortsAnExpiredTransaction() throws Exception {
        String topic = topic("expired", 1);
        try (KafkaProducer<String, String> producer = producer("transactional.id", unique("expired"),
                 "transaction.timeout.ms", 1000);
             KafkaConsumer<String, String> committed = reader("read_committed", topic)) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "expired")).get();
            produce(topic, "after");
            // Arrives only once the coordinator has aborted.
            assertEquals(List.of("after"), values(take(committed, 1)));
            assertThrows(KafkaException.class, producer::commitTransaction);
        }
    }
}
