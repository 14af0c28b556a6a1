package curtail.interop;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.fail;

/** The cluster under test, which INTEROP_BOOTSTRAP names, and clients with default settings. */
final class Cluster {
    static final String BOOTSTRAP = System.getenv().getOrDefault("INTEROP_BOOTSTRAP", "127.0.0.1:9092");
    private static final Duration PATIENCE = Duration.ofSeconds(100);

    private Cluster() {
    }

    static String unique(String what) {
        return what + "-" + UUID.randomUUID().toString().substring(0, 8);
    }

    /** The bootstrap servers and these pairs of setting and value. */
    static Map<String, Object> config(Object... pairs) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", BOOTSTRAP);
        for (int i = 0; i < pairs.length; i += 2) {
            config.put((String) pairs[i], pairs[i + 1]);
        }
        return config;
    }

    static Admin admin() {
        return Admin.create(config());
    }

    static KafkaProducer<String, String> producer(Object... pairs) {
        return new KafkaProducer<>(config(pairs), new StringSerializer(), new StringSerializer());
    }

    /** A consumer that begins with the first record of a partition. */
    static KafkaConsumer<String, String> consumer(Object... pairs) {
        Map<String, Object> config = config(pairs);
        config.putIfAbsent("auto.offset.reset", "earliest");
        return new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
    }

    /** Creates a topic with a unique name, three replicas and this number of partitions. */
    static String topic(String what, int partitions) throws Exception {
        return topic(what, partitions, Map.of());
    }

    static String topic(String what, int partitions, Map<String, String> configs) throws Exception {
        String name = unique(what);
        try (Admin admin = admin()) {
            get(admin.createTopics(List.of(new NewTopic(name, Optional.of(partitions), Optional.of((short) 3)).configs(configs)))
                .all());
        }
        return name;
    }

    static void produce(String topic, String... values) throws Exception {
        try (KafkaProducer<String, String> producer = producer()) {
            for (String value : values) {
                producer.send(new ProducerRecord<>(topic, value, value));
            }
        }
    }

    /** Polls until this number of records has arrived. */
    static List<ConsumerRecord<String, String>> take(Consumer<String, String> consumer, int number) throws Exception {
        List<ConsumerRecord<String, String>> records = new ArrayList<>();
        await("record " + number, () -> {
            consumer.poll(Duration.ofMillis(100)).forEach(records::add);
            return records.size() >= number;
        });
        return records;
    }

    static List<String> values(Collection<ConsumerRecord<String, String>> records) {
        return records.stream().map(ConsumerRecord::value).toList();
    }

    static <T> T get(KafkaFuture<T> future) throws Exception {
        return future.get(PATIENCE.toSeconds(), TimeUnit.SECONDS);
    }

    /** The cause of a request's failure, which has this class. */
    static <E extends Throwable> E failure(Class<E> type, KafkaFuture<?> future) {
        ExecutionException thrown = assertThrows(ExecutionException.class, () -> get(future));
        return assertInstanceOf(type, thrown.getCause());
    }

    static void await(String what, Callable<Boolean> condition) throws Exception {
        long end = System.nanoTime() + PATIENCE.toNanos();
        while (!condition.call()) {
            if (System.nanoTime() > end) {
                fail("timed out: " + what);
            }
            LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(20));
        }
    }
}
