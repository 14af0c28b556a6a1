package curtail.interop;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.errors.GroupSubscribedToTopicException;
import org.apache.kafka.common.errors.UnknownMemberIdException;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;

import static curtail.interop.Cluster.await;
import static curtail.interop.Cluster.consumer;
import static curtail.interop.Cluster.failure;
import static curtail.interop.Cluster.get;
import static curtail.interop.Cluster.produce;
import static curtail.interop.Cluster.take;
import static curtail.interop.Cluster.topic;
import static curtail.interop.Cluster.unique;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

/** The Java admin client: groups and their offsets. */
class GroupAdminTest {
    private final Admin admin = Cluster.admin();

    @AfterEach
    void close() {
        admin.close();
    }

    private Map<TopicPartition, OffsetAndMetadata> committed(String group) throws Exception {
        return get(admin.listConsumerGroupOffsets(Map.of(group, new ListConsumerGroupOffsetsSpec())).all()).get(group);
    }

    private ConsumerGroupDescription describe(String group) throws Exception {
        return get(admin.describeConsumerGroups(List.of(group)).all()).get(group);
    }

    @ParameterizedTest
    @EnumSource(value = GroupType.class, names = {"CLASSIC", "CONSUMER"})
    void groupFromItsFirstMemberToItsDeletion(GroupType type) throws Exception {
        String topic = topic("groups", 2);
        String group = unique("groups");
        TopicPartition partition = new TopicPartition(topic, 0);
        produce(topic, "a", "b", "c", "d", "e", "f");
        try (KafkaConsumer<String, String> member = consumer("group.id", group, "group.protocol", type.toString(),
                "client.id", "walk", "group.instance.id", "instance")) {
            member.subscribe(List.of(topic));
            take(member, 6);
            member.commitSync();
            await("a stable group", () -> describe(group).groupState() == GroupState.STABLE);
            ConsumerGroupDescription told = describe(group);
            assertEquals(type, told.type());
            var only = told.members().iterator().next();
            assertEquals("walk", only.clientId());
            assertEquals("instance", only.groupInstanceId().orElseThrow());
            assertEquals(Set.of(partition, new TopicPartition(topic, 1)), only.assignment().topicPartitions());
            GroupListing listed = get(admin.listGroups(new ListGroupsOptions().withTypes(Set.of(type))).all()).stream()
                .filter(listing -> listing.groupId().equals(group)).findFirst().orElseThrow();
            assertEquals(GroupState.STABLE, listed.groupState().orElseThrow());
            assertEquals("consumer", listed.protocol());
            assertEquals(6, committed(group).values().stream().mapToLong(OffsetAndMetadata::offset).sum());
            failure(GroupNotEmptyException.class, admin.deleteConsumerGroups(List.of(group)).all());
            failure(UnknownMemberIdException.class,
                admin.alterConsumerGroupOffsets(group, Map.of(partition, new OffsetAndMetadata(0))).all());
            failure(GroupSubscribedToTopicException.class, admin.deleteConsumerGroupOffsets(group, Set.of(partition)).all());
            get(admin.removeMembersFromConsumerGroup(group,
                new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("instance")))).all());
            await("an empty group", () -> describe(group).members().isEmpty());
        }
        await("an empty group", () -> describe(group).groupState() == GroupState.EMPTY);
        get(admin.alterConsumerGroupOffsets(group, Map.of(partition, new OffsetAndMetadata(1, "moved"))).all());
        assertEquals(new OffsetAndMetadata(1, "moved"), committed(group).get(partition));
        get(admin.deleteConsumerGroupOffsets(group, Set.of(partition)).all());
        assertNull(committed(group).get(partition));
        get(admin.deleteConsumerGroups(List.of(group)).all());
        failure(GroupIdNotFoundException.class, admin.deleteConsumerGroups(List.of(group)).all());
        failure(GroupIdNotFoundException.class, admin.describeConsumerGroups(List.of(group)).all());
    }

    @Test
    void allMembersAreRemoved() throws Exception {
        String topic = topic("removed", 2);
        String group = unique("removed");
        try (KafkaConsumer<String, String> member = consumer("group.id", group)) {
            member.subscribe(List.of(topic));
            await("an assignment", () -> {
                member.poll(Duration.ofMillis(100));
                return member.assignment().size() == 2;
            });
            assertTrue(get(admin.describeClassicGroups(List.of(group)).all()).get(group).members().size() == 1);
            get(admin.removeMembersFromConsumerGroup(group, new RemoveMembersFromConsumerGroupOptions()).all());
            await("an empty group", () -> describe(group).members().isEmpty());
            await("the member is back", () -> {
                member.poll(Duration.ofMillis(100));
                return describe(group).members().size() == 1;
            });
        }
    }

    @Test
    void offsetsOfANewGroupAreSet() throws Exception {
        String topic = topic("set", 1);
        String group = unique("set");
        TopicPartition partition = new TopicPartition(topic, 0);
        produce(topic, "a", "b", "c");
        get(admin.alterConsumerGroupOffsets(group, Map.of(partition, new OffsetAndMetadata(2))).all());
        try (KafkaConsumer<String, String> member = consumer("group.id", group)) {
            member.subscribe(List.of(topic));
            assertEquals("c", take(member, 1).get(0).value());
        }
    }
}
