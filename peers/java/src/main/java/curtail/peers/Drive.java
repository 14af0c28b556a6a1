package curtail.peers;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.AppInfoParser;

/** Executes commands from standard input and prints every result, for cases that script the network (see museum/). */
final class Drive {
    private final BufferedReader commands =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    private final String topic;

    private Drive(Args args) {
        topic = args.topic;
    }

    static void run(Args args) throws IOException {
        say("version java " + AppInfoParser.getVersion());
        Drive drive = new Drive(args);
        if (args.role.equals("producer")) {
            drive.produce(args);
        } else {
            drive.consume(args);
        }
    }

    private static synchronized void say(String line) {
        System.out.println(line.replace('\n', ' '));
        System.out.flush();
    }

    private interface Call {
        void run();
    }

    private static void reply(Call call) {
        try {
            call.run();
            say("done");
        } catch (KafkaException | IllegalStateException e) {
            say("error " + e);
        }
    }

    private void produce(Args args) throws IOException {
        ByteArraySerializer serializer = new ByteArraySerializer();
        KafkaProducer<byte[], byte[]> producer =
            new KafkaProducer<>(args.driven(true), serializer, serializer);
        long sent = 0;
        for (String command = commands.readLine(); command != null; command = commands.readLine()) {
            String[] words = command.split(" ", 3);
            switch (words[0]) {
                case "send" -> send(producer, sent++, Integer.parseInt(words[1]), words[2]);
                case "flush" -> reply(producer::flush);
                case "init" -> reply(producer::initTransactions);
                case "begin" -> reply(producer::beginTransaction);
                case "commit" -> reply(producer::commitTransaction);
                case "abort" -> reply(producer::abortTransaction);
                case "close" -> {
                    reply(producer::close);
                    return;
                }
                default -> throw new IllegalArgumentException("unknown command " + words[0]);
            }
        }
        producer.close(Duration.ZERO);
    }

    private void send(KafkaProducer<byte[], byte[]> producer, long number, int partition, String value) {
        Integer chosen = partition < 0 ? null : partition;
        byte[] bytes = value.getBytes(StandardCharsets.UTF_8);
        try {
            producer.send(new ProducerRecord<>(topic, chosen, null, bytes), (written, error) ->
                say(error == null ? acknowledged(number, written) : "failed " + number + " " + error));
        } catch (KafkaException | IllegalStateException e) {
            say("failed " + number + " " + e);
        }
    }

    private static String acknowledged(long number, RecordMetadata written) {
        return "acknowledged " + number + " " + written.partition() + " " + written.offset();
    }

    private void consume(Args args) throws IOException {
        ByteArrayDeserializer deserializer = new ByteArrayDeserializer();
        KafkaConsumer<byte[], byte[]> consumer =
            new KafkaConsumer<>(args.driven(false), deserializer, deserializer);
        for (String command = commands.readLine(); command != null; command = commands.readLine()) {
            String[] words = command.split(" ");
            if (words[0].equals("close")) {
                reply(consumer::close);
                return;
            }
            reply(() -> obey(consumer, words));
        }
        consumer.close();
    }

    private void obey(KafkaConsumer<byte[], byte[]> consumer, String[] words) {
        switch (words[0]) {
            case "subscribe" -> consumer.subscribe(List.of(topic));
            case "unsubscribe" -> consumer.unsubscribe();
            case "assign" -> {
                List<TopicPartition> all =
                    IntStream.range(0, Integer.parseInt(words[1])).mapToObj(this::partition).toList();
                consumer.assign(all);
                consumer.seekToBeginning(all);
            }
            case "seek" -> consumer.seek(partition(Integer.parseInt(words[1])), Long.parseLong(words[2]));
            case "pause" -> consumer.pause(List.of(partition(Integer.parseInt(words[1]))));
            case "resume" -> consumer.resume(List.of(partition(Integer.parseInt(words[1]))));
            case "poll" -> poll(consumer, Duration.ofMillis(Long.parseLong(words[1])));
            case "commit" -> consumer.commitSync();
            default -> throw new IllegalArgumentException("unknown command " + words[0]);
        }
    }

    private void poll(KafkaConsumer<byte[], byte[]> consumer, Duration wait) {
        for (ConsumerRecord<byte[], byte[]> record : consumer.poll(wait)) {
            String value = new String(record.value(), StandardCharsets.UTF_8);
            say("record " + record.partition() + " " + record.offset() + " " + value);
        }
        say(consumer.assignment().stream().map(TopicPartition::partition).sorted().map(String::valueOf)
            .collect(Collectors.joining(" ", "assignment ", "")).strip());
    }

    private TopicPartition partition(int index) {
        return new TopicPartition(topic, index);
    }
}
