package curtail.interop;

import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.regex.Pattern;

import static curtail.interop.Cluster.await;
import static curtail.interop.Cluster.consumer;
import static curtail.interop.Cluster.produce;
import static curtail.interop.Cluster.producer;
import static curtail.interop.Cluster.take;
import static curtail.interop.Cluster.topic;
import static curtail.interop.Cluster.unique;
import static curtail.interop.Cluster.values;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

/** The Java producer and consumer. */
class ClientTest {
    @ParameterizedTest
    @ValueSource(strings = {"none", "gzip", "snappy", "lz4", "zstd"})
    void recordsKeepKeysHeadersAndTimestamps(String codec) throws Exception {
        String topic = topic("codec", 3);
        int number = 500;
        try (KafkaProducer<String, String> producer = producer("compression.type", codec)) {
            for (int i = 0; i < number; i++) {
                byte[] header = ("h" + i).getBytes(StandardCharsets.UTF_8);
                producer.send(new ProducerRecord<>(topic, null, 1_700_000_000_000L + i, "key-" + i,
                    i % 10 == 0 ? null : "value-" + i, List.of(new RecordHeader("name", header), new RecordHeader("none", null))));
            }
        }
        try (KafkaConsumer<String, String> consumer = consumer("group.id", unique("codec"))) {
            consumer.subscribe(List.of(topic));
            List<ConsumerRecord<String, String>> records = take(consumer, number);
            assertEquals(number, records.size());
            Set<String> keys = new HashSet<>();
            for (ConsumerRecord<String, String> record : records) {
                int i = Integer.parseInt(record.key().substring(4));
                keys.add(record.key());
                assertEquals(i % 10 == 0 ? null : "value-" + i, record.value());
                assertEquals(1_700_000_000_000L + i, record.timestamp());
                assertArrayEquals(("h" + i).getBytes(StandardCharsets.UTF_8), record.headers().lastHeader("name").value());
                assertNull(record.headers().lastHeader("none").value());
            }
            assertEquals(number, keys.size());
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"0", "1", "all"})
    void acknowledgementsHaveOffsets(String acks) throws Exception {
        String topic = topic("acks", 1);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<String, String> producer = producer("acks", acks, "enable.idempotence", acks.equals("all"))) {
            for (int i = 0; i < 100; i++) {
                sent.add(producer.send(new ProducerRecord<>(topic, "v" + i)));
            }
        }
        for (int i = 0; i < sent.size(); i++) {
            assertEquals(acks.equals("0") ? -1 : i, sent.get(i).get().offset());
        }
        try (KafkaConsumer<String, String> consumer = consumer()) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            assertEquals("v99", take(consumer, 100).get(99).value());
        }
    }

    @Test
    void tooLargeRecordIsRefusedByTheBroker() throws Exception {
        String topic = topic("large", 1, Map.of("max.message.bytes", "1000"));
        try (KafkaProducer<String, String> producer = producer()) {
            Future<RecordMetadata> large = producer.send(new ProducerRecord<>(topic, "x".repeat(5000)));
            assertInstanceOf(RecordTooLargeException.class, assertThrows(ExecutionException.class, large::get).getCause());
            assertEquals(0, producer.send(new ProducerRecord<>(topic, "small")).get().offset());
        }
    }

    @Test
    void producerCreatesTopicAutomatically() throws Exception {
        String topic = unique("automatic");
        produce(topic, "first");
        try (KafkaConsumer<String, String> consumer = consumer("group.id", unique("automatic"))) {
            consumer.subscribe(List.of(topic));
            assertEquals(List.of("first"), values(take(consumer, 1)));
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"classic", "consumer"})
    void twoMembersShareTheTopicAndOneTakesOver(String protocol) throws Exception {
        String topic = topic("members", 4);
        String group = unique("members");
        try (KafkaConsumer<String, String> stays = consumer("group.id", group, "group.protocol", protocol)) {
            stays.subscribe(List.of(topic));
            await("the only member has all partitions", () -> polled(stays).size() == 4);
            try (KafkaConsumer<String, String> leaves = consumer("group.id", group, "group.protocol", protocol)) {
                leaves.subscribe(List.of(topic));
                await("both have half", () -> polled(stays).size() == 2 & polled(leaves).size() == 2);
                Set<TopicPartition> all = new HashSet<>(stays.assignment());
                all.addAll(leaves.assignment());
                assertEquals(4, all.size());
            }
            await("the remaining member has all", () -> polled(stays).size() == 4);
        }
    }

    private static Set<TopicPartition> polled(KafkaConsumer<String, String> consumer) {
        consumer.poll(Duration.ofMillis(100));
        return consumer.assignment();
    }

    @ParameterizedTest
    @ValueSource(strings = {"classic", "consumer"})
    void restartedMemberContinuesAfterTheCommit(String protocol) throws Exception {
        String topic = topic("commits", 1);
        String group = unique("commits");
        TopicPartition partition = new TopicPartition(topic, 0);
        produce(topic, "a", "b", "c", "d");
        try (KafkaConsumer<String, String> first = consumer("group.id", group, "group.protocol", protocol,
                "enable.auto.commit", false)) {
            first.subscribe(List.of(topic));
            take(first, 4);
            first.commitSync(Map.of(partition, new OffsetAndMetadata(2, "two")));
            assertEquals(new OffsetAndMetadata(2, "two"), first.committed(Set.of(partition)).get(partition));
        }
        try (KafkaConsumer<String, String> second = consumer("group.id", group, "group.protocol", protocol)) {
            second.subscribe(List.of(topic));
            assertEquals(List.of("c", "d"), values(take(second, 2)));
            assertEquals(4, second.position(partition));
        }
        // The second member committed automatically with its close.
        try (KafkaConsumer<String, String> third = consumer("group.id", group, "group.protocol", protocol)) {
            assertEquals(4, third.committed(Set.of(partition)).get(partition).offset());
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"classic", "consumer"})
    void seekPauseAndOffsets(String protocol) throws Exception {
        String topic = topic("seek", 1);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaProducer<String, String> producer = producer()) {
            for (int i = 0; i < 10; i++) {
                producer.send(new ProducerRecord<>(topic, 0, 1_700_000_000_000L + 1000 * i, "k", "v" + i));
            }
        }
        try (KafkaConsumer<String, String> consumer = consumer("group.id", unique("seek"), "group.protocol", protocol)) {
            consumer.assign(List.of(partition));
            assertEquals(Map.of(partition, 0L), consumer.beginningOffsets(List.of(partition)));
            assertEquals(Map.of(partition, 10L), consumer.endOffsets(List.of(partition)));
            OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(partition, 1_700_000_003_500L)).get(partition);
            assertEquals(4, found.offset());
            assertEquals(1_700_000_004_000L, found.timestamp());
            consumer.seek(partition, found.offset());
            assertEquals("v4", take(consumer, 6).get(0).value());
            consumer.seekToBeginning(List.of(partition));
            consumer.pause(List.of(partition));
            assertTrue(consumer.poll(Duration.ofMillis(300)).isEmpty());
            consumer.resume(List.of(partition));
            assertEquals("v0", take(consumer, 10).get(0).value());
            consumer.seekToEnd(List.of(partition));
            assertEquals(10, consumer.position(partition));
            assertEquals(0, consumer.currentLag(partition).orElse(0));
            assertEquals(3, consumer.partitionsFor(topic).get(0).replicas().length);
            assertTrue(consumer.listTopics().containsKey(topic));
        }
    }

    @Test
    void patternsMatchNewTopicsWithBothProtocols() throws Exception {
        String prefix = unique("pattern");
        try (KafkaConsumer<String, String> client = consumer("group.id", unique("client"), "metadata.max.age.ms", 1000);
             KafkaConsumer<String, String> broker = consumer("group.id", unique("broker"), "group.protocol", "consumer")) {
            client.subscribe(Pattern.compile(prefix + ".*"));
            broker.subscribe(new SubscriptionPattern(prefix + ".*"));
            polled(client);
            polled(broker);
            String one = topic(prefix, 1);
            String two = topic(prefix, 1);
            produce(one, "x");
            produce(two, "x");
            assertEquals(2, take(client, 2).size());
            assertEquals(2, take(broker, 2).size());
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"classic", "consumer"})
    void staticMemberKeepsItsPartitionsOverARestart(String protocol) throws Exception {
        String topic = topic("static", 2);
        String group = unique("static");
        List<TopicPartition> revoked = new ArrayList<>();
        try (KafkaConsumer<String, String> other = consumer("group.id", group, "group.protocol", protocol,
                "group.instance.id", "other")) {
            other.subscribe(List.of(topic), new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                    revoked.addAll(partitions);
                }

                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                }
            });
            Set<TopicPartition> before;
            try (KafkaConsumer<String, String> restarted = consumer("group.id", group, "group.protocol", protocol,
                    "group.instance.id", "restarted")) {
                restarted.subscribe(List.of(topic));
                await("each has one", () -> polled(other).size() == 1 & polled(restarted).size() == 1);
                before = Set.copyOf(restarted.assignment());
            }
            revoked.clear();
            try (KafkaConsumer<String, String> restarted = consumer("group.id", group, "group.protocol", protocol,
                    "group.instance.id", "restarted")) {
                restarted.subscribe(List.of(topic));
                await("the partition is back", () -> {
                    polled(other);
                    return polled(restarted).equals(before);
                });
            }
            assertEquals(List.of(), revoked);
        }
    }

    @Test
    void offsetResetByDurationSkipsOldRecords() throws Exception {
        String topic = topic("duration", 1);
        long now = System.currentTimeMillis();
        try (KafkaProducer<String, String> producer = producer()) {
            producer.send(new ProducerRecord<>(topic, 0, now - Duration.ofHours(5).toMillis(), "k", "old"));
            producer.send(new ProducerRecord<>(topic, 0, now, "k", "recent"));
        }
        try (KafkaConsumer<String, String> consumer = consumer("group.id", unique("duration"),
                "auto.offset.reset", "by_duration:PT1H")) {
            consumer.subscribe(List.of(topic));
            List<String> values = values(take(consumer, 1));
            assertFalse(values.contains("old"));
            assertEquals("recent", values.get(0));
        }
    }
}
