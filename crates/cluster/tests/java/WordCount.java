import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/**
 * Counts the words of the topic "lines" into the topic "totals", exactly once and in a streams group. Arguments: "count", bootstrap
 * servers, application id, directory. It prints "tasks N" whenever its number of active tasks has changed, until it is killed.
 *
 * With "drive" and bootstrap servers: for each line of standard input with a number, it writes that many lines of the words a to e, waits
 * until the totals say that all have been counted, and prints "counted N". It fails if a total is not the successor of the word's last one.
 */
public class WordCount {
    static final List<String> WORDS = List.of("a", "b", "c", "d", "e");
    static final Duration PATIENCE = Duration.ofSeconds(100);

    public static void main(String[] args) throws Exception {
        if (args[0].equals("count")) {
            count(args[1], args[2], args[3]);
        } else {
            drive(args[1]);
        }
    }

    static void count(String bootstrap, String application, String directory) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("application.id", application);
        settings.put("state.dir", directory);
        settings.put("group.protocol", "streams");
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("commit.interval.ms", 100);
        settings.put("num.stream.threads", 1);
        // Every count becomes a record.
        settings.put("statestore.cache.max.bytes", 0);
        settings.put("producer.transaction.timeout.ms", 10000);
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream("lines", org.apache.kafka.streams.kstream.Consumed.with(Serdes.String(), Serdes.String()))
                .flatMapValues(line -> Arrays.asList(line.split(" ")))
                .groupBy((key, word) -> word, Grouped.with("words", Serdes.String(), Serdes.String()))
                .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts"))
                        .withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()))
                .toStream()
                .to("totals", Produced.with(Serdes.String(), Serdes.Long()));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(failure -> {
            failure.printStackTrace();
            Runtime.getRuntime().halt(1);
            return null;
        });
        streams.start();
        int known = -1;
        while (true) {
            int tasks = streams.metadataForLocalThreads().stream().mapToInt(thread -> thread.activeTasks().size()).sum();
            if (tasks != known) {
                known = tasks;
                System.out.println("tasks " + tasks);
            }
            Thread.sleep(50);
        }
    }

    static void drive(String bootstrap) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("isolation.level", "read_committed");
        settings.put("auto.offset.reset", "earliest");
        Map<String, Long> totals = new HashMap<>();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
                KafkaConsumer<String, Long> consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new LongDeserializer())) {
            List<TopicPartition> partitions = new ArrayList<>();
            consumer.partitionsFor("totals").forEach(info -> partitions.add(new TopicPartition("totals", info.partition())));
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            long lines = 0;
            for (String order = in.readLine(); order != null; order = in.readLine()) {
                int more = Integer.parseInt(order.trim());
                for (int line = 0; line < more; line++) {
                    producer.send(new ProducerRecord<>("lines", String.valueOf(lines + line), String.join(" ", WORDS)));
                }
                lines += more;
                producer.flush();
                long deadline = System.nanoTime() + PATIENCE.toNanos();
                while (new TreeSet<>(totals.values()).size() != 1 || Collections.min(totals.values()) < lines || totals.size() < WORDS.size()) {
                    if (System.nanoTime() > deadline) {
                        throw new IllegalStateException("of " + lines + " lines " + totals + " were counted");
                    }
                    for (ConsumerRecord<String, Long> record : consumer.poll(Duration.ofMillis(200))) {
                        long before = totals.getOrDefault(record.key(), 0L);
                        if (record.value() != before + 1) {
                            throw new IllegalStateException(record.key() + ": " + record.value() + " follows " + before);
                        }
                        totals.put(record.key(), record.value());
                    }
                }
                System.out.println("counted " + lines);
            }
        }
    }
}
