package curtail.peers;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Reads a topic as a member of a group until it is terminated, and prints a line for everything that happens. */
final class GroupConsume {
    private GroupConsume() {
    }

    static void run(Args args) {
        Class<?> assignor = switch (args.assignor) {
            case "range" -> RangeAssignor.class;
            case "roundrobin" -> RoundRobinAssignor.class;
            case "cooperative-sticky" -> CooperativeStickyAssignor.class;
            default -> throw new IllegalArgumentException("unknown assignor " + args.assignor);
        };
        Map<String, String> defaults = Map.of("group.id", args.group, "auto.offset.reset", "earliest",
            "partition.assignment.strategy", assignor.getName());
        ByteArrayDeserializer deserializer = new ByteArrayDeserializer();
        KafkaConsumer<byte[], byte[]> consumer =
            new KafkaConsumer<>(args.consumer(defaults), deserializer, deserializer);
        Thread reader = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            consumer.wakeup();
            try {
                reader.join();
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }));
        consumer.subscribe(List.of(args.topic), new Witness());
        try {
            while (true) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    String value = new String(record.value(), StandardCharsets.UTF_8);
                    say("record " + record.partition() + " " + record.offset() + " " + value);
                }
            }
        } catch (WakeupException e) {
            // Terminated: it leaves the group.
        } finally {
            consumer.close();
        }
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private static final class Witness implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            tell("assigned", partitions);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            tell("revoked", partitions);
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            tell("lost", partitions);
        }

        private static void tell(String what, Collection<TopicPartition> partitions) {
            say(partitions.stream().map(TopicPartition::partition).sorted().map(String::valueOf)
                .collect(Collectors.joining(" ", what + " ", "")).strip());
        }
    }
}
