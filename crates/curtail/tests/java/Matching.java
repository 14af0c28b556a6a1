import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A static member of the consumer protocol that subscribes to an expression, which the coordinator resolves. Reads until it has
 * this many records, commits, and prints the values in order and then what it was assigned, as "topic-partition". Arguments:
 * bootstrap servers, group, expression, records.
 */
public class Matching {
    public static void main(String[] args) {
        int records = Integer.parseInt(args[3]);
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", args[0]);
        settings.put("group.id", args[1]);
        settings.put("group.protocol", "consumer");
        settings.put("group.instance.id", "matching");
        settings.put("group.remote.assignor", "range");
        settings.put("auto.offset.reset", "earliest");
        StringDeserializer strings = new StringDeserializer();
        TreeSet<String> values = new TreeSet<>();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings, strings, strings)) {
            consumer.subscribe(new SubscriptionPattern(args[2]));
            while (values.size() < records) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                    values.add(record.value());
                }
            }
            consumer.commitSync();
            values.forEach(System.out::println);
            TreeSet<String> assigned = new TreeSet<>();
            for (TopicPartition partition : consumer.assignment()) {
                assigned.add(partition.toString());
            }
            System.out.println(String.join(" ", assigned));
        }
    }
}
