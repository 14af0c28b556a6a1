import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Scanner;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Runs the assignors on groups from standard input and prints each assignment, as "a: t-0 t-1; b: ". A group is a line:
 * assignor, topics and members, between spaces. A topic is "name=racks,racks" with one letter for each rack of a partition's
 * replicas. A member is "id=topic,topic/rack/generation/topic-0,topic-1/user data", the latter in hexadecimal. Topics and
 * members are separated by ";", and an empty field is none.
 */
public class Assignors {
    public static void main(String[] args) {
        Scanner input = new Scanner(System.in);
        while (input.hasNextLine()) {
            String[] group = input.nextLine().split(" ", -1);
            System.out.println(assigned(assignor(group[0]), cluster(group[1]), members(group[2])));
        }
    }

    private static ConsumerPartitionAssignor assignor(String name) {
        return switch (name) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "sticky" -> new StickyAssignor();
            case "cooperative-sticky" -> new CooperativeStickyAssignor();
            default -> throw new IllegalArgumentException(name);
        };
    }

    private static Cluster cluster(String topics) {
        Map<Integer, Node> nodes = new TreeMap<>();
        List<PartitionInfo> partitions = new ArrayList<>();
        for (String topic : list(topics, ";")) {
            String[] parts = topic.split("=", -1);
            String[] racks = parts[1].split(",", -1);
            for (int index = 0; index < racks.length; index++) {
                Node[] replicas = racks[index].chars()
                    .mapToObj(rack -> nodes.computeIfAbsent(rack, id -> new Node(id, "host", 9092, Character.toString(id))))
                    .toArray(Node[]::new);
                Node leader = replicas.length == 0 ? Node.noNode() : replicas[0];
                partitions.add(new PartitionInfo(parts[0], index, leader, replicas, replicas));
            }
        }
        return new Cluster("cluster", nodes.values(), partitions, Collections.emptySet(), Collections.emptySet());
    }

    private static Map<String, Subscription> members(String text) {
        Map<String, Subscription> members = new HashMap<>();
        for (String member : list(text, ";")) {
            String[] parts = member.split("=", -1);
            String[] fields = parts[1].split("/", -1);
            List<TopicPartition> owned = new ArrayList<>();
            for (String partition : list(fields[3], ",")) {
                String[] at = partition.split("-");
                owned.add(new TopicPartition(at[0], Integer.parseInt(at[1])));
            }
            ByteBuffer data = fields[4].isEmpty() ? null : ByteBuffer.wrap(HexFormat.of().parseHex(fields[4]));
            Optional<String> rack = fields[1].isEmpty() ? Optional.empty() : Optional.of(fields[1]);
            int generation = Integer.parseInt(fields[2]);
            members.put(parts[0], new Subscription(list(fields[0], ","), data, owned, generation, rack));
        }
        return members;
    }

    private static List<String> list(String text, String separator) {
        return text.isEmpty() ? Collections.emptyList() : List.of(text.split(separator));
    }

    private static String assigned(ConsumerPartitionAssignor assignor, Cluster cluster, Map<String, Subscription> members) {
        Map<String, TreeSet<String>> shown = new TreeMap<>();
        assignor.assign(cluster, new GroupSubscription(members)).groupAssignment().forEach((member, assignment) -> {
            TreeSet<String> partitions = new TreeSet<>();
            assignment.partitions().forEach(partition -> partitions.add(partition.toString()));
            shown.put(member, partitions);
        });
        List<String> parts = new ArrayList<>();
        shown.forEach((member, partitions) -> parts.add(member + ": " + String.join(" ", partitions)));
        return String.join("; ", parts);
    }
}
