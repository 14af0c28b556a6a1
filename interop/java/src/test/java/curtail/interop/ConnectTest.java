package curtail.interop;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.connect.util.clusters.WorkerHandle;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;

import static curtail.interop.Cluster.BOOTSTRAP;
import static curtail.interop.Cluster.await;
import static curtail.interop.Cluster.consumer;
import static curtail.interop.Cluster.get;
import static curtail.interop.Cluster.take;
import static curtail.interop.Cluster.topic;
import static curtail.interop.Cluster.unique;
import static curtail.interop.Cluster.values;
import static org.junit.jupiter.api.Assertions.assertEquals;

/** Distributed workers of Kafka Connect with the file connectors. Connect creates its internal topics. */
class ConnectTest {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final String group = unique("connect");
    private final List<WorkerHandle> workers = new ArrayList<>();
    private final Map<String, String> properties = new HashMap<>();
    @TempDir
    private Path folder;

    @BeforeEach
    void configure() {
        properties.put("bootstrap.servers", BOOTSTRAP);
        properties.put("group.id", group);
        properties.put("config.storage.topic", group + "-configs");
        properties.put("offset.storage.topic", group + "-offsets");
        properties.put("status.storage.topic", group + "-status");
        properties.put("key.converter", "org.apache.kafka.connect.storage.StringConverter");
        properties.put("value.converter", "org.apache.kafka.connect.storage.StringConverter");
        properties.put("listeners", "http://127.0.0.1:0");
        // Connectors are on the class path.
        properties.put("plugin.discovery", "hybrid_warn");
    }

    @AfterEach
    void stop() {
        workers.forEach(WorkerHandle::stop);
    }

    private WorkerHandle worker() {
        WorkerHandle worker = WorkerHandle.start("worker-" + workers.size(), new HashMap<>(properties));
        workers.add(worker);
        return worker;
    }

    private static void stop(WorkerHandle worker, List<WorkerHandle> workers) {
        worker.stop();
        workers.remove(worker);
    }

    private static HttpResponse<String> request(WorkerHandle worker, String method, String path, Object body) throws Exception {
        URI target = worker.url().resolve(path);
        HttpRequest.BodyPublisher content = body == null ? HttpRequest.BodyPublishers.noBody()
            : HttpRequest.BodyPublishers.ofString(JSON.writeValueAsString(body));
        HttpRequest request = HttpRequest.newBuilder(target).header("Content-Type", "application/json").method(method, content).build();
        return HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
    }

    /** Creates or changes a connector, once the worker has joined its group. */
    private static void connector(WorkerHandle worker, String name, Map<String, String> config) throws Exception {
        await("connector " + name, () -> request(worker, "PUT", "/connectors/" + name + "/config", config).statusCode() / 100 == 2);
    }

    /** The ids of the workers that run a connector's tasks; empty until all tasks run. */
    private static List<String> running(WorkerHandle worker, String name) throws Exception {
        HttpResponse<String> response = request(worker, "GET", "/connectors/" + name + "/status", null);
        List<String> ids = new ArrayList<>();
        if (response.statusCode() == 200) {
            for (JsonNode task : JSON.readTree(response.body()).get("tasks")) {
                if (!task.get("state").asText().equals("RUNNING")) {
                    return List.of();
                }
                ids.add(task.get("worker_id").asText());
            }
        }
        return ids;
    }

    private static Map<String, String> source(Path file, String topic) {
        return Map.of("connector.class", "org.apache.kafka.connect.file.FileStreamSourceConnector", "tasks.max", "1",
            "file", file.toString(), "topic", topic);
    }

    private static Map<String, String> sink(Path file, String topic, int tasks) {
        return Map.of("connector.class", "org.apache.kafka.connect.file.FileStreamSinkConnector", "tasks.max", "" + tasks,
            "file", file.toString(), "topics", topic);
    }

    private static void append(Path file, String... lines) throws Exception {
        Files.writeString(file, String.join("\n", lines) + "\n", StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }

    private static void awaitLines(Path file, String... lines) throws Exception {
        await("lines " + List.of(lines), () -> Files.exists(file) && Files.readAllLines(file).equals(List.of(lines)));
    }

    @Test
    void restartedWorkerContinuesAtItsOffsets() throws Exception {
        String topic = topic("file", 1);
        Path input = folder.resolve("input");
        Path output = folder.resolve("output");
        append(input, "one", "two");
        WorkerHandle first = worker();
        connector(first, "source", source(input, topic));
        connector(first, "sink", sink(output, topic, 1));
        awaitLines(output, "one", "two");
        try (Admin admin = Cluster.admin()) {
            Map<String, Integer> partitions = new HashMap<>();
            for (TopicDescription internal : get(admin.describeTopics(Set.of(group + "-configs", group + "-offsets", group + "-status"))
                    .allTopicNames()).values()) {
                partitions.put(internal.name().substring(group.length() + 1), internal.partitions().size());
                assertEquals(3, internal.partitions().get(0).replicas().size());
                ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, internal.name());
                assertEquals("compact", get(admin.describeConfigs(List.of(resource)).all()).get(resource).get("cleanup.policy").value());
            }
            assertEquals(Map.of("configs", 1, "offsets", 25, "status", 5), partitions);
        }
        stop(first, workers);
        append(input, "three");
        WorkerHandle second = worker();
        awaitLines(output, "one", "two", "three");
        await("both connectors", () -> running(second, "source").size() == 1 && running(second, "sink").size() == 1);
    }

    @Test
    void twoWorkersShareTheTasksAndOneTakesOver() throws Exception {
        String topic = topic("shared", 4);
        properties.put("scheduled.rebalance.max.delay.ms", "0");
        WorkerHandle stays = worker();
        connector(stays, "sink", sink(folder.resolve("output"), topic, 4));
        await("four tasks", () -> running(stays, "sink").size() == 4);
        WorkerHandle leaves = worker();
        await("tasks on both workers", () -> {
            List<String> ids = running(stays, "sink");
            return ids.size() == 4 && new TreeSet<>(ids).size() == 2;
        });
        stop(leaves, workers);
        await("all tasks on one worker", () -> {
            List<String> ids = running(stays, "sink");
            return ids.size() == 4 && new TreeSet<>(ids).size() == 1;
        });
    }

    @Test
    void sourceWritesExactlyOnce() throws Exception {
        properties.put("exactly.once.source.support", "enabled");
        String topic = topic("exact", 1);
        Path input = folder.resolve("input");
        append(input, "one", "two");
        WorkerHandle first = worker();
        connector(first, "source", source(input, topic));
        try (KafkaConsumer<String, String> consumer = consumer("isolation.level", "read_committed", "group.id", unique("exact"))) {
            consumer.subscribe(List.of(topic));
            assertEquals(List.of("one", "two"), values(take(consumer, 2)));
            stop(first, workers);
            append(input, "three");
            worker();
            assertEquals(List.of("three"), values(take(consumer, 1)));
        }
        try (Admin admin = Cluster.admin()) {
            String id = "connect-cluster-" + group;
            await("transactional ids of the worker and its task", () -> get(admin.listTransactions().all()).stream()
                .filter(listing -> listing.transactionalId().startsWith(id) || listing.transactionalId().startsWith(group + "-source-"))
                .count() == 2);
        }
    }
}
