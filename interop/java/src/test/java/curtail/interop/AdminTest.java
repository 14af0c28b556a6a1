package curtail.interop;

import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.AlterConfigOp.OpType;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.DescribeProducersResult.PartitionProducerState;
import org.apache.kafka.clients.admin.FeatureMetadata;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.QuorumInfo;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.admin.UserScramCredentialDeletion;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.config.TopicConfig;
import org.apache.kafka.common.errors.ElectionNotNeededException;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidPartitionsException;
import org.apache.kafka.common.errors.InvalidReplicationFactorException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.OffsetOutOfRangeException;
import org.apache.kafka.common.errors.SecurityDisabledException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicIdException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.errors.UnsupportedByAuthenticationException;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;

import static curtail.interop.Cluster.await;
import static curtail.interop.Cluster.failure;
import static curtail.interop.Cluster.get;
import static curtail.interop.Cluster.produce;
import static curtail.interop.Cluster.producer;
import static curtail.interop.Cluster.topic;
import static curtail.interop.Cluster.unique;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

/** The Java admin client: the cluster, topics, records, configs, transactions. */
class AdminTest {
    private final Admin admin = Cluster.admin();

    @AfterEach
    void close() {
        admin.close();
    }

    private TopicDescription describe(String topic) throws Exception {
        return get(admin.describeTopics(List.of(topic)).allTopicNames()).get(topic);
    }

    private static List<Integer> ids(List<Node> nodes) {
        return nodes.stream().map(Node::id).toList();
    }

    private List<Integer> brokers() throws Exception {
        return get(admin.describeCluster().nodes()).stream().map(Node::id).sorted().toList();
    }

    private Map<String, ConfigEntry> configs(ConfigResource resource) throws Exception {
        Config config = get(admin.describeConfigs(List.of(resource)).all()).get(resource);
        return config.entries().stream().collect(Collectors.toMap(ConfigEntry::name, entry -> entry));
    }

    private static Map<ConfigResource, Collection<AlterConfigOp>> alter(ConfigResource resource, String name, String value, OpType op) {
        return Map.of(resource, List.of(new AlterConfigOp(new ConfigEntry(name, value), op)));
    }

    @Test
    void clusterFeaturesAndQuorum() throws Exception {
        assertEquals(3, brokers().size());
        assertNotNull(get(admin.describeCluster().clusterId()));
        assertTrue(brokers().contains(get(admin.describeCluster().controller()).id()));
        FeatureMetadata features = get(admin.describeFeatures().featureMetadata());
        assertEquals(1, features.finalizedFeatures().get("group.version").maxVersionLevel());
        assertEquals(2, features.finalizedFeatures().get("transaction.version").maxVersionLevel());
        assertEquals(1, features.finalizedFeatures().get("streams.version").maxVersionLevel());
        QuorumInfo quorum = get(admin.describeMetadataQuorum().quorumInfo());
        assertTrue(quorum.voters().stream().anyMatch(voter -> voter.replicaId() == quorum.leaderId()));
        // The present level is accepted, an unknown feature is not.
        FeatureUpdate same = new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.UPGRADE);
        get(admin.updateFeatures(Map.of("group.version", same), new UpdateFeaturesOptions().validateOnly(true)).all());
        failure(KafkaException.class, admin.updateFeatures(Map.of("unknown", same), new UpdateFeaturesOptions()).all());
    }

    @Test
    void topicsAreCreatedDescribedAndDeleted() throws Exception {
        String name = unique("topics");
        NewTopic wanted = new NewTopic(name, Map.of(0, List.of(brokers().get(0), brokers().get(1)), 1, List.of(brokers().get(2),
            brokers().get(0)))).configs(Map.of(TopicConfig.RETENTION_MS_CONFIG, "12345"));
        get(admin.createTopics(List.of(wanted), new CreateTopicsOptions().validateOnly(true)).all());
        failure(UnknownTopicOrPartitionException.class, admin.describeTopics(List.of(name)).allTopicNames());
        var created = admin.createTopics(List.of(wanted));
        assertEquals(2, get(created.numPartitions(name)));
        assertEquals(2, get(created.replicationFactor(name)));
        assertEquals("12345", get(created.config(name)).get(TopicConfig.RETENTION_MS_CONFIG).value());
        Uuid id = get(created.topicId(name));
        failure(TopicExistsException.class, admin.createTopics(List.of(wanted)).all());
        failure(InvalidTopicException.class, admin.createTopics(List.of(new NewTopic("no/topic", 1, (short) 1))).all());
        failure(InvalidPartitionsException.class, admin.createTopics(List.of(new NewTopic(unique("none"), 0, (short) 1))).all());
        failure(InvalidReplicationFactorException.class, admin.createTopics(List.of(new NewTopic(unique("many"), 1, (short) 9))).all());
        failure(InvalidConfigurationException.class, admin.createTopics(List.of(new NewTopic(unique("wrong"), 1, (short) 1)
            .configs(Map.of("retention.ms", "long")))).all());

        TopicDescription topic = describe(name);
        assertEquals(id, topic.topicId());
        assertFalse(topic.isInternal());
        assertEquals(List.of(brokers().get(2), brokers().get(0)), ids(topic.partitions().get(1).replicas()));
        assertEquals(brokers().get(2), topic.partitions().get(1).leader().id());
        assertEquals(name, get(admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds()).get(id).name());
        assertEquals(id, get(admin.listTopics().namesToListings()).get(name).topicId());

        get(admin.createPartitions(Map.of(name, NewPartitions.increaseTo(3, List.of(List.of(brokers().get(1), brokers().get(2)))))).all());
        await("the third partition", () -> describe(name).partitions().size() == 3);
        assertEquals(List.of(brokers().get(1), brokers().get(2)), ids(describe(name).partitions().get(2).replicas()));
        failure(InvalidPartitionsException.class, admin.createPartitions(Map.of(name, NewPartitions.increaseTo(2))).all());

        get(admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all());
        await("the deletion", () -> !get(admin.listTopics().names()).contains(name));
        failure(UnknownTopicOrPartitionException.class, admin.deleteTopics(List.of(name)).all());
        failure(UnknownTopicIdException.class, admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all());
    }

    @Test
    void configsOfTopicsBrokersGroupsAndClientMetrics() throws Exception {
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, topic("configs", 1));
        assertEquals(ConfigEntry.ConfigSource.DEFAULT_CONFIG, configs(topic).get("retention.ms").source());
        get(admin.incrementalAlterConfigs(alter(topic, "cleanup.policy", "compact", OpType.APPEND)).all());
        get(admin.incrementalAlterConfigs(alter(topic, "retention.ms", "1000", OpType.SET)).all());
        await("the config", () -> configs(topic).get("retention.ms").value().equals("1000"));
        assertEquals("delete,compact", configs(topic).get("cleanup.policy").value());
        assertEquals(ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, configs(topic).get("retention.ms").source());
        get(admin.incrementalAlterConfigs(alter(topic, "cleanup.policy", "delete", OpType.SUBTRACT)).all());
        get(admin.incrementalAlterConfigs(alter(topic, "retention.ms", null, OpType.DELETE)).all());
        await("the default", () -> configs(topic).get("retention.ms").value().equals("604800000"));
        failure(InvalidConfigurationException.class,
            admin.incrementalAlterConfigs(alter(topic, "cleanup.policy", "shred", OpType.SET)).all());

        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, brokers().get(1).toString());
        get(admin.incrementalAlterConfigs(alter(broker, "log.retention.ms", "7200000", OpType.SET)).all());
        await("the config", () -> "7200000".equals(configs(broker).get("log.retention.ms").value()));
        assertEquals(ConfigEntry.ConfigSource.DYNAMIC_BROKER_CONFIG, configs(broker).get("log.retention.ms").source());
        get(admin.incrementalAlterConfigs(alter(broker, "log.retention.ms", null, OpType.DELETE)).all());

        ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, unique("configs"));
        get(admin.incrementalAlterConfigs(alter(group, "consumer.session.timeout.ms", "50000", OpType.SET)).all());
        await("the config", () -> configs(group).get("consumer.session.timeout.ms").value().equals("50000"));
        ConfigResource metrics = new ConfigResource(ConfigResource.Type.CLIENT_METRICS, unique("configs"));
        get(admin.incrementalAlterConfigs(alter(metrics, "interval.ms", "5000", OpType.SET)).all());
        await("the config", () -> get(admin.listConfigResources(Set.of(ConfigResource.Type.CLIENT_METRICS),
            new org.apache.kafka.clients.admin.ListConfigResourcesOptions()).all()).contains(metrics));
        assertTrue(get(admin.listConfigResources().all()).containsAll(List.of(topic, broker, group, metrics)));
    }

    @Test
    void offsetsAndDeletedRecords() throws Exception {
        String topic = topic("records", 1);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaProducer<String, String> producer = producer()) {
            for (int i = 0; i < 10; i++) {
                producer.send(new ProducerRecord<>(topic, 0, 1_700_000_000_000L + (i == 6 ? 1_000_000 : i), "k", "v"));
            }
        }
        assertEquals(0, offset(partition, OffsetSpec.earliest()));
        assertEquals(10, offset(partition, OffsetSpec.latest()));
        assertEquals(6, offset(partition, OffsetSpec.maxTimestamp()));
        assertEquals(6, offset(partition, OffsetSpec.forTimestamp(1_700_000_000_100L)));
        assertEquals(-1, offset(partition, OffsetSpec.forTimestamp(1_800_000_000_000L)));
        assertEquals(0, offset(partition, OffsetSpec.earliestLocal()));
        assertEquals(-1, offset(partition, OffsetSpec.latestTiered()));
        var deleted = admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(4))).lowWatermarks().get(partition);
        assertEquals(4, get(deleted).lowWatermark());
        assertEquals(4, offset(partition, OffsetSpec.earliest()));
        failure(OffsetOutOfRangeException.class, admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(11))).all());
        get(admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(-1))).all());
        assertEquals(10, offset(partition, OffsetSpec.earliest()));
    }

    private long offset(TopicPartition partition, OffsetSpec spec) throws Exception {
        return get(admin.listOffsets(Map.of(partition, spec)).all()).get(partition).offset();
    }

    @Test
    void reassignmentsElectionsAndLogDirectories() throws Exception {
        List<Integer> brokers = brokers();
        String name = unique("moved");
        get(admin.createTopics(List.of(new NewTopic(name, Map.of(0, List.of(brokers.get(0), brokers.get(1)))))).all());
        TopicPartition partition = new TopicPartition(name, 0);
        produce(name, "a", "b");
        failure(ElectionNotNeededException.class, admin.electLeaders(ElectionType.PREFERRED, Set.of(partition)).all());
        List<Integer> wanted = List.of(brokers.get(2), brokers.get(0));
        get(admin.alterPartitionReassignments(Map.of(partition, Optional.of(new NewPartitionReassignment(wanted)))).all());
        await("the reassignment", () -> get(admin.listPartitionReassignments().reassignments()).isEmpty()
            && ids(describe(name).partitions().get(0).isr()).containsAll(wanted));
        assertEquals(wanted, ids(describe(name).partitions().get(0).replicas()));
        if (describe(name).partitions().get(0).leader().id() != wanted.get(0)) {
            get(admin.electLeaders(ElectionType.PREFERRED, Set.of(partition)).all());
        }
        await("the preferred leader", () -> describe(name).partitions().get(0).leader().id() == wanted.get(0));
        failure(KafkaException.class, admin.alterPartitionReassignments(Map.of(partition, Optional.empty())).all());

        Map<Integer, Map<String, LogDirDescription>> directories = get(admin.describeLogDirs(brokers).allDescriptions());
        assertEquals(Set.copyOf(brokers), directories.keySet());
        var replica = directories.get(wanted.get(0)).values().iterator().next().replicaInfos().get(partition);
        assertTrue(replica.size() > 0);
        assertFalse(replica.isFuture());
        TopicPartitionReplica at = new TopicPartitionReplica(name, 0, wanted.get(0));
        assertNotNull(get(admin.describeReplicaLogDirs(List.of(at)).all()).get(at).getCurrentReplicaLogDir());
        failure(KafkaException.class, admin.alterReplicaLogDirs(Map.of(at, "/no/directory")).all());
    }

    @Test
    void transactionsAndProducers() throws Exception {
        String topic = topic("transactions", 1);
        TopicPartition partition = new TopicPartition(topic, 0);
        String id = unique("transaction");
        try (KafkaProducer<String, String> producer = producer("transactional.id", id)) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "open")).get();
            TransactionDescription open = get(admin.describeTransactions(List.of(id)).all()).get(id);
            assertEquals(TransactionState.ONGOING, open.state());
            assertEquals(Set.of(partition), open.topicPartitions());
            assertEquals(60_000, open.transactionTimeoutMs());
            TransactionListing listed = get(admin.listTransactions().all()).stream()
                .filter(listing -> listing.transactionalId().equals(id)).findFirst().orElseThrow();
            assertEquals(TransactionState.ONGOING, listed.state());
            PartitionProducerState producers = get(admin.describeProducers(List.of(partition)).all()).get(partition);
            ProducerState state = producers.activeProducers().get(0);
            assertEquals(listed.producerId(), state.producerId());
            assertEquals(0, state.currentTransactionStartOffset().orElseThrow());
            get(admin.fenceProducers(List.of(id)).all());
            assertThrows(KafkaException.class, producer::commitTransaction);
        }
        await("the abort", () -> get(admin.describeTransactions(List.of(id)).all()).get(id).state() == TransactionState.EMPTY);
        try (KafkaProducer<String, String> producer = producer("transactional.id", id)) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "open")).get();
            ProducerState state = get(admin.describeProducers(List.of(partition)).all()).get(partition).activeProducers().stream()
                .filter(one -> one.currentTransactionStartOffset().isPresent()).findFirst().orElseThrow();
            get(admin.abortTransaction(new AbortTransactionSpec(partition, state.producerId(), (short) state.producerEpoch(),
                state.coordinatorEpoch().orElse(0))).all());
            await("no open transaction", () -> get(admin.describeProducers(List.of(partition)).all()).get(partition)
                .activeProducers().stream().noneMatch(one -> one.currentTransactionStartOffset().isPresent()));
        }
    }

    @Test
    void quotasUsersTokensAndAcls() throws Exception {
        ClientQuotaEntity entity = new ClientQuotaEntity(Map.of(ClientQuotaEntity.USER, unique("user")));
        ClientQuotaFilter filter = ClientQuotaFilter.containsOnly(List.of(ClientQuotaFilterComponent.ofEntity(ClientQuotaEntity.USER,
            entity.entries().get(ClientQuotaEntity.USER))));
        get(admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity,
            List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 5000.0))))).all());
        await("the quota", () -> get(admin.describeClientQuotas(filter).entities())
            .equals(Map.of(entity, Map.of("producer_byte_rate", 5000.0))));
        get(admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity,
            List.of(new ClientQuotaAlteration.Op("producer_byte_rate", null))))).all());
        await("no quota", () -> get(admin.describeClientQuotas(filter).entities()).isEmpty());

        String user = unique("user");
        ScramCredentialInfo scram = new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192);
        get(admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion(user, scram, "secret"))).all());
        await("the user", () -> get(admin.describeUserScramCredentials().users()).contains(user));
        assertEquals(List.of(scram), get(admin.describeUserScramCredentials(List.of(user)).description(user)).credentialInfos());
        get(admin.alterUserScramCredentials(List.of(new UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_256))).all());
        await("no user", () -> !get(admin.describeUserScramCredentials().users()).contains(user));

        failure(UnsupportedByAuthenticationException.class, admin.createDelegationToken().delegationToken());
        failure(SecurityDisabledException.class, admin.describeAcls(AclBindingFilter.ANY).values());
        failure(SecurityDisabledException.class, admin.deleteAcls(List.of(AclBindingFilter.ANY)).all());
    }

    @Test
    void unregisteredAndUnknownNodes() throws Exception {
        int unknown = 77;
        assertNotEquals(true, brokers().contains(unknown));
        failure(KafkaException.class, admin.unregisterBroker(unknown).all());
        failure(KafkaException.class, admin.removeRaftVoter(unknown, Uuid.randomUuid()).all());
    }
}
