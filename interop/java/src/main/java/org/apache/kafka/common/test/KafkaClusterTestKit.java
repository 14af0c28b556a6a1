package org.apache.kafka.common.test;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import kafka.server.BrokerServer;
import org.apache.kafka.metadata.BrokerState;
import org.mockito.Mockito;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.regex.Pattern;

/**
 * Starts {@code curtail cluster} for the integration tests that Apache Kafka publishes.
 *
 * <p>The tests find this class before Kafka's class of the same name. It has the methods that
 * {@code EmbeddedKafkaCluster} of Connect calls. The program is in the environment variable INTEROP_CURTAIL.
 */
public class KafkaClusterTestKit implements AutoCloseable {
    /** Properties of a process that the embedded cluster refuses. */
    private static final Set<String> OF_A_PROCESS = Set.of("controller.listener.names", "early.start.listeners",
        "sasl.mechanism.controller.protocol", "sasl.mechanism.inter.broker.protocol");
    /** The SASL users of a listener. Listeners of the embedded cluster share them. */
    private static final Pattern JAAS = Pattern.compile("listener\\.name\\.\\w+\\.plain\\.sasl\\.jaas\\.config");
    private static final Pattern USER = Pattern.compile("user_(\\w+)=\"([^\"]*)\"");

    private final List<String> command;
    private final Set<String> users;
    private final Map<Integer, BrokerServer> brokers = new TreeMap<>();
    private Process process;
    private JsonNode ready;

    private KafkaClusterTestKit(List<String> command, Set<String> users, int numBrokers) {
        this.command = command;
        this.users = users;
        for (int id = 1; id <= numBrokers; id++) {
            brokers.put(id, broker(id));
        }
    }

    /** A broker that a test stops, starts, or asks for its state. */
    private BrokerServer broker(int id) {
        BrokerServer broker = Mockito.mock(BrokerServer.class, call -> {
            throw new UnsupportedOperationException(call.getMethod().getName());
        });
        Mockito.doAnswer(call -> isRunning(id) ? BrokerState.RUNNING : BrokerState.NOT_RUNNING).when(broker).brokerState();
        Mockito.doAnswer(call -> control("POST", "/v1/brokers/" + id + "/stop")).when(broker).shutdown();
        Mockito.doAnswer(call -> control("POST", "/v1/brokers/" + id + "/restart")).when(broker).startup();
        Mockito.doNothing().when(broker).awaitShutdown();
        return broker;
    }

    private boolean isRunning(int id) {
        for (JsonNode broker : control("GET", "/v1/brokers").get("brokers")) {
            if (broker.get("id").asInt() == id) {
                return broker.get("running").asBoolean();
            }
        }
        return false;
    }

    private JsonNode control(String method, String path) {
        HttpRequest request = HttpRequest.newBuilder(URI.create(ready.get("control").asText() + path))
            .method(method, HttpRequest.BodyPublishers.noBody()).build();
        try {
            HttpResponse<String> response = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
            if (response.statusCode() != 200) {
                throw new IllegalStateException(method + " " + path + ": " + response.body());
            }
            return new ObjectMapper().readTree(response.body());
        } catch (IOException error) {
            throw new IllegalStateException(error);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException(error);
        }
    }

    public void format() {
    }

    public void startup() throws IOException {
        ProcessBuilder builder = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT);
        if (!users.isEmpty()) {
            builder.environment().put("CURTAIL_USERS", String.join("\n", users));
        }
        process = builder.start();
        BufferedReader output = process.inputReader(StandardCharsets.UTF_8);
        String line = output.readLine();
        if (line == null) {
            throw new IllegalStateException("the cluster did not start: " + command);
        }
        ready = new ObjectMapper().readTree(line);
    }

    public void waitForReadyBrokers() {
    }

    public String bootstrapServers() {
        return ready.get("bootstrap_servers").asText();
    }

    public Map<Integer, BrokerServer> brokers() {
        return brokers;
    }

    public MockFaultHandler fatalFaultHandler() {
        return new MockFaultHandler("fatal");
    }

    public MockFaultHandler nonFatalFaultHandler() {
        return new MockFaultHandler("nonFatal");
    }

    @Override
    public void close() throws Exception {
        if (process != null) {
            process.getOutputStream().close();
            process.waitFor();
        }
    }

    public static class Builder {
        private final TestKitNodes nodes;
        private final Map<String, Object> properties = new HashMap<>();

        public Builder(TestKitNodes nodes) {
            this.nodes = nodes;
        }

        public Builder setConfigProp(String key, Object value) {
            properties.put(key, value);
            return this;
        }

        private static Path write(Properties properties) {
            try {
                Path file = Files.createTempFile("server", ".properties");
                file.toFile().deleteOnExit();
                try (OutputStream out = Files.newOutputStream(file)) {
                    properties.store(out, null);
                }
                return file;
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }

        public KafkaClusterTestKit build() {
            String program = System.getenv("INTEROP_CURTAIL");
            if (program == null || !new File(program).canExecute()) {
                throw new IllegalStateException("INTEROP_CURTAIL must name the program curtail");
            }
            int numBrokers = nodes.brokerNodes().size();
            List<String> command = new ArrayList<>(List.of(program, "cluster", "--ephemeral", "--json", "--brokers=" + numBrokers));
            Set<String> users = new TreeSet<>();
            Properties server = new Properties();
            properties.forEach((key, value) -> {
                if (JAAS.matcher(key).matches()) {
                    USER.matcher(value.toString()).results().forEach(user -> users.add(user.group(1) + ":" + user.group(2) + ":PLAIN"));
                } else if (key.equals("listener.security.protocol.map")) {
                    command.add("--security-protocol=" + value.toString().replaceFirst(".*EXTERNAL:", ""));
                } else if (!OF_A_PROCESS.contains(key)) {
                    server.setProperty(key, value.toString());
                }
            });
            // As a file, because the command refuses a single property that has no effect on its brokers.
            command.add("--config=" + write(server));
            return new KafkaClusterTestKit(command, users, numBrokers);
        }
    }
}
