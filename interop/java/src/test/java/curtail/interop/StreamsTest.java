package curtail.interop;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.ThreadMetadata;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;
import org.apache.kafka.streams.state.ReadOnlyWindowStore;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;

import static curtail.interop.Cluster.await;
import static curtail.interop.Cluster.config;
import static curtail.interop.Cluster.consumer;
import static curtail.interop.Cluster.produce;
import static curtail.interop.Cluster.producer;
import static curtail.interop.Cluster.take;
import static curtail.interop.Cluster.topic;
import static curtail.interop.Cluster.unique;
import static curtail.interop.Cluster.values;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

/** Kafka Streams with default settings. */
class StreamsTest {
    @TempDir
    private Path folder;

    private KafkaStreams start(StreamsBuilder builder, String application, String protocol, String... pairs) throws Exception {
        Properties properties = new Properties();
        properties.putAll(config(StreamsConfig.APPLICATION_ID_CONFIG, application, StreamsConfig.GROUP_PROTOCOL_CONFIG, protocol,
            StreamsConfig.STATE_DIR_CONFIG, folder.resolve(unique("state")).toString(),
            StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class,
            StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class));
        for (int i = 0; i < pairs.length; i += 2) {
            properties.put(pairs[i], pairs[i + 1]);
        }
        return new KafkaStreams(builder.build(properties), properties);
    }

    private static void awaitRunning(KafkaStreams streams) throws Exception {
        await("running streams", () -> streams.state() == KafkaStreams.State.RUNNING);
    }

    /** Counts the words of lines. The words pass through a repartition topic to a store with a changelog. */
    private static StreamsBuilder wordCount(String lines, String counts) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(lines)
            .flatMapValues(line -> List.of(line.split(" ")))
            .groupBy((key, word) -> word)
            .count(Materialized.as("counts"))
            .toStream()
            .to(counts, Produced.with(Serdes.String(), Serdes.Long()));
        return builder;
    }

    private static Map<String, Long> stored(KafkaStreams... instances) {
        Map<String, Long> counts = new HashMap<>();
        for (KafkaStreams streams : instances) {
            try {
                ReadOnlyKeyValueStore<String, Long> store = streams.store(
                    StoreQueryParameters.fromNameAndType("counts", QueryableStoreTypes.keyValueStore()));
                try (KeyValueIterator<String, Long> all = store.all()) {
                    all.forEachRemaining(entry -> counts.put(entry.key, entry.value));
                }
            } catch (InvalidStateStoreException rebalancing) {
                return Map.of();
            }
        }
        return counts;
    }

    /** Reads a topic of counts until its last values are these. */
    private static void awaitCounts(String topic, String isolation, Map<String, Long> wanted) throws Exception {
        Map<String, Object> config = config("isolation.level", isolation, "auto.offset.reset", "earliest",
            "group.id", unique("counts"));
        try (KafkaConsumer<String, Long> consumer = new KafkaConsumer<>(config, new StringDeserializer(), new LongDeserializer())) {
            consumer.subscribe(List.of(topic));
            Map<String, Long> counts = new HashMap<>();
            await("the counts " + wanted, () -> {
                consumer.poll(Duration.ofMillis(100)).forEach(record -> counts.put(record.key(), record.value()));
                return counts.equals(wanted);
            });
        }
    }

    @ParameterizedTest
    @CsvSource({"classic,at_least_once", "classic,exactly_once_v2", "streams,at_least_once", "streams,exactly_once_v2"})
    void countsAreRestoredFromTheChangelog(String protocol, String guarantee) throws Exception {
        String lines = topic("lines", 3);
        String counts = topic("counts", 3);
        String application = unique("restored");
        String isolation = guarantee.equals("at_least_once") ? "read_uncommitted" : "read_committed";
        produce(lines, "a b a", "b c");
        Map<String, Long> before = Map.of("a", 2L, "b", 2L, "c", 1L);
        try (KafkaStreams streams = start(wordCount(lines, counts), application, protocol, "processing.guarantee", guarantee)) {
            streams.start();
            await("the counts " + before, () -> stored(streams).equals(before));
        }
        awaitCounts(counts, isolation, before);
        produce(lines, "c d");
        Map<String, Long> after = Map.of("a", 2L, "b", 2L, "c", 2L, "d", 1L);
        AtomicLong restored = new AtomicLong();
        // Each instance has its own state folder.
        try (KafkaStreams streams = start(wordCount(lines, counts), application, protocol, "processing.guarantee", guarantee)) {
            streams.setGlobalStateRestoreListener(new StateRestoreListener() {
                @Override
                public void onRestoreStart(TopicPartition partition, String store, long start, long end) {
                }

                @Override
                public void onBatchRestored(TopicPartition partition, String store, long end, long number) {
                }

                @Override
                public void onRestoreEnd(TopicPartition partition, String store, long total) {
                    restored.addAndGet(total);
                }
            });
            streams.start();
            await("the counts " + after, () -> stored(streams).equals(after));
            assertTrue(restored.get() >= 3, "restored " + restored);
        }
        awaitCounts(counts, isolation, after);
    }

    @ParameterizedTest
    @ValueSource(strings = {"classic", "streams"})
    void twoInstancesShareThePartitionsAndOneLeaves(String protocol) throws Exception {
        String lines = topic("lines", 4);
        String counts = topic("counts", 4);
        String application = unique("shared");
        produce(lines, "a b", "c d", "e f", "g h");
        try (KafkaStreams stays = start(wordCount(lines, counts), application, protocol)) {
            stays.start();
            await("all tasks", () -> tasks(stays) == 8);
            KafkaStreams leaves = start(wordCount(lines, counts), application, protocol);
            leaves.start();
            await("tasks for both", () -> tasks(stays) > 0 && tasks(leaves) > 0 && tasks(stays) + tasks(leaves) == 8);
            await("the counts", () -> stored(stays, leaves).size() == 8);
            leaves.close(new KafkaStreams.CloseOptions().leaveGroup(true).timeout(Duration.ofSeconds(60)));
            await("all tasks", () -> tasks(stays) == 8);
            produce(lines, "a h");
            await("the counts", () -> {
                Map<String, Long> all = stored(stays);
                return all.size() == 8 && all.get("a") == 2 && all.get("h") == 2;
            });
        }
    }

    private static int tasks(KafkaStreams streams) {
        return streams.metadataForLocalThreads().stream().map(ThreadMetadata::activeTasks).mapToInt(java.util.Set::size).sum();
    }

    @ParameterizedTest
    @ValueSource(strings = {"classic", "streams"})
    void streamsJoinTablesGlobalTablesAndStreams(String protocol) throws Exception {
        String orders = topic("orders", 2);
        String payments = topic("payments", 2);
        String users = topic("users", 2, Map.of("cleanup.policy", "compact"));
        String cities = topic("cities", 1, Map.of("cleanup.policy", "compact"));
        String joined = topic("joined", 2);
        StreamsBuilder builder = new StreamsBuilder();
        KTable<String, String> table = builder.table(users);
        KStream<String, String> stream = builder.stream(orders);
        stream.join(builder.<String, String>stream(payments), (order, payment) -> order + "+" + payment,
                JoinWindows.ofTimeDifferenceWithNoGrace(Duration.ofHours(1)))
            .join(table, (both, user) -> both + "+" + user)
            .join(builder.globalTable(cities), (key, all) -> all.substring(all.lastIndexOf('+') + 1), (all, city) -> all + "@" + city)
            .to(joined);
        try (KafkaProducer<String, String> producer = producer()) {
            producer.send(new ProducerRecord<>(cities, "ann", "Bern"));
            producer.send(new ProducerRecord<>(users, "1", "ann"));
            producer.flush();
            producer.send(new ProducerRecord<>(orders, "1", "order"));
            producer.send(new ProducerRecord<>(payments, "1", "payment"));
        }
        try (KafkaStreams streams = start(builder, unique("joins"), protocol);
             KafkaConsumer<String, String> consumer = consumer("group.id", unique("joins"))) {
            streams.start();
            consumer.subscribe(List.of(joined));
            List<ConsumerRecord<String, String>> records = take(consumer, 1);
            assertEquals(List.of("order+payment+ann@Bern"), values(records));
            awaitRunning(streams);
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"classic", "streams"})
    void windowsAggregateByTime(String protocol) throws Exception {
        String events = topic("events", 2);
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(events, Consumed.with(Serdes.String(), Serdes.String()))
            .groupByKey()
            .windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofMinutes(1)))
            .aggregate(() -> "", (key, value, all) -> all + value, Materialized.as("windows"));
        Instant begin = Instant.ofEpochMilli(1_700_000_040_000L);
        try (KafkaProducer<String, String> producer = producer()) {
            for (int second : List.of(1, 20, 59, 61, 70)) {
                producer.send(new ProducerRecord<>(events, 0, begin.plusSeconds(second).toEpochMilli(), "k", second + ";"));
            }
        }
        try (KafkaStreams streams = start(builder, unique("windows"), protocol)) {
            streams.start();
            awaitRunning(streams);
            await("two windows", () -> {
                ReadOnlyWindowStore<String, String> store = streams.store(
                    StoreQueryParameters.fromNameAndType("windows", QueryableStoreTypes.windowStore()));
                List<KeyValue<Long, String>> windows = new ArrayList<>();
                try (var found = store.fetch("k", begin.minusSeconds(600), begin.plusSeconds(600))) {
                    found.forEachRemaining(windows::add);
                }
                long first = begin.toEpochMilli() / 60_000 * 60_000;
                return windows.equals(List.of(KeyValue.pair(first, "1;20;59;"), KeyValue.pair(first + 60_000, "61;70;")));
            });
        }
    }
}
