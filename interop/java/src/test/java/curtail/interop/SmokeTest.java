package curtail.interop;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.tests.SmokeTestClient;
import org.apache.kafka.streams.tests.SmokeTestDriver;
import org.apache.kafka.streams.tests.SmokeTestUtil;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;

import static curtail.interop.Cluster.BOOTSTRAP;
import static curtail.interop.Cluster.await;
import static curtail.interop.Cluster.get;
import static curtail.interop.Cluster.unique;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

/** The smoke test that Apache Kafka publishes of Streams, with clients that are replaced while the driver writes. */
class SmokeTest {
    private static final int KEYS = 10;
    private static final int VALUES = 500;
    private static final int PARTITIONS = 4;

    @TempDir
    private Path folder;

    @ParameterizedTest
    @CsvSource({"classic,exactly_once_v2", "streams,exactly_once_v2"})
    void driverVerifiesTheResults(String protocol, String guarantee) throws Exception {
        try (Admin admin = Cluster.admin()) {
            List<String> names = Arrays.asList(SmokeTestDriver.topics());
            get(admin.deleteTopics(get(admin.listTopics().names()).stream().filter(names::contains).toList()).all());
            await("the deletion", () -> get(admin.listTopics().names()).stream().noneMatch(names::contains));
            get(admin.createTopics(names.stream().map(name -> new NewTopic(name, Optional.of(PARTITIONS), Optional.of((short) 3))).toList())
                .all());
        }
        Properties properties = new Properties();
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, BOOTSTRAP);
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, unique("smoke"));
        properties.put(StreamsConfig.GROUP_PROTOCOL_CONFIG, protocol);
        properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, guarantee);
        List<SmokeTestClient> clients = new ArrayList<>();
        Driver driver = new Driver();
        driver.start();
        while (driver.isAlive() && clients.size() < 3) {
            SmokeTestClient client = new SmokeTestClient("smoke-" + clients.size());
            Properties own = new Properties();
            own.putAll(properties);
            own.put(StreamsConfig.STATE_DIR_CONFIG, folder.resolve(unique("state")).toString());
            client.start(own);
            clients.add(client);
            long before = echoed();
            await("results with client " + clients.size(), () -> echoed() > before || !driver.isAlive());
            if (clients.size() > 1) {
                clients.get(clients.size() - 2).closeAsync();
            }
        }
        driver.join();
        awaitIdle();
        SmokeTestUtil.VerificationResult result = SmokeTestDriver.verify(BOOTSTRAP, driver.sent, VALUES, guarantee.startsWith("exactly"));
        for (SmokeTestClient client : clients) {
            client.closeAsync();
        }
        for (SmokeTestClient client : clients) {
            await("the end of a client", client::closed);
            assertFalse(client.error());
        }
        assertTrue(result.passed(), result.result());
    }

    /** Waits until the end offset stays: the driver compares offsets that it reads one after the other. */
    private static void awaitIdle() throws Exception {
        AtomicLong end = new AtomicLong();
        AtomicInteger same = new AtomicInteger();
        await("idle clients", () -> {
            long now = echoed();
            same.set(end.getAndSet(now) == now ? same.get() + 1 : 0);
            return same.get() == 100;
        });
    }

    /** The end offset of the topic {@code echo}, to which the clients write each record. */
    private static long echoed() throws Exception {
        try (Admin admin = Cluster.admin()) {
            Map<TopicPartition, OffsetSpec> latest = new HashMap<>();
            for (int partition = 0; partition < PARTITIONS; partition++) {
                latest.put(new TopicPartition("echo", partition), OffsetSpec.latest());
            }
            return get(admin.listOffsets(latest).all()).values().stream().mapToLong(end -> end.offset()).sum();
        }
    }

    private static final class Driver extends Thread {
        private Map<String, Set<Integer>> sent;

        @Override
        public void run() {
            sent = SmokeTestDriver.generate(BOOTSTRAP, KEYS, VALUES, Duration.ofSeconds(30));
        }
    }
}
