import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Commits two of three transactions, fences a producer, and prints the group's offset and what a reader of committed records sees, as
 * "partition:value" in the order of the offsets. Arguments: bootstrap servers, topic, partitions, transactions.
 */
public class Transactions {
    static KafkaProducer<String, String> producer(String bootstrap, String id) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", id);
        settings.put("max.block.ms", 60000);
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    static void send(KafkaProducer<String, String> producer, String topic, int partitions, String what) {
        for (int n = 0; n < 2 * partitions; n++) {
            producer.send(new ProducerRecord<>(topic, n % partitions, null, what + "-" + n));
        }
    }

    public static void main(String[] args) {
        String bootstrap = args[0];
        String topic = args[1];
        int partitions = Integer.parseInt(args[2]);
        int transactions = Integer.parseInt(args[3]);
        try (KafkaProducer<String, String> producer = producer(bootstrap, "java")) {
            producer.initTransactions();
            for (int t = 0; t < transactions; t++) {
                boolean abort = t % 3 == 2;
                producer.beginTransaction();
                send(producer, topic, partitions, (abort ? "aborted-" : "committed-") + t);
                // Offsets in the transaction: the last ones that hold are those of the last commit.
                producer.sendOffsetsToTransaction(
                        Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(t + 1)),
                        new ConsumerGroupMetadata("group"));
                if (abort) {
                    producer.flush();
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
        try (KafkaProducer<String, String> zombie = producer(bootstrap, "fenced");
                KafkaProducer<String, String> next = producer(bootstrap, "fenced")) {
            zombie.initTransactions();
            zombie.beginTransaction();
            send(zombie, topic, partitions, "zombie");
            zombie.flush();
            next.initTransactions();
            next.beginTransaction();
            send(next, topic, partitions, "next");
            next.commitTransaction();
            try {
                zombie.commitTransaction();
                throw new IllegalStateException("the zombie has committed");
            } catch (ProducerFencedException | InvalidProducerEpochException expected) {
                System.out.println("fenced");
            }
        }
        read(bootstrap, topic, partitions);
    }

    static void read(String bootstrap, String topic, int partitions) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("isolation.level", "read_committed");
        settings.put("auto.offset.reset", "earliest");
        settings.put("group.id", "group");
        settings.put("enable.auto.commit", false);
        List<TopicPartition> all = new ArrayList<>();
        for (int index = 0; index < partitions; index++) {
            all.add(new TopicPartition(topic, index));
        }
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(all);
            System.out.println("offset " + consumer.committed(Set.of(all.get(0))).get(all.get(0)).offset());
            consumer.seekToBeginning(all);
            Map<TopicPartition, Long> ends = consumer.endOffsets(all);
            while (all.stream().anyMatch(partition -> consumer.position(partition) < ends.get(partition))) {
                consumer.poll(Duration.ofMillis(100)).forEach(
                        record -> System.out.println(record.partition() + ":" + record.value()));
            }
        }
    }
}
