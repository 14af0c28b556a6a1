// @platformatic/kafka against a cluster of three brokers.
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { describe, test } from 'node:test'
import {
  ConfigResourceTypes, Consumer, FetchIsolationLevels, IncrementalAlterConfigOperationTypes, ListOffsetTimestamps
} from '@platformatic/kafka'
import { brokers, control, kill, range, restart, stop, unique, until } from '../node/harness.mjs'
import { Clients, is } from './client.mjs'

const texts = (from, to) => range(from, to).map(i => `value ${i}`)
const messages = (topic, from, to) => texts(from, to).map(value => ({ topic, value }))

describe('admin', { concurrency: 4 }, () => {
  test('describes the cluster', async t => {
    const { id, brokers: found, controllerId } = await new Clients(t).admin().metadata({})
    assert.deepEqual([...found.values()].map(({ host, port }) => `${host}:${port}`).sort(), [...brokers].sort())
    assert.ok(found.has(controllerId))
    assert.match(id, /^[\w-]{22}$/)
  })

  test('creates, lists, describes and deletes topics', async t => {
    const admin = new Clients(t).admin()
    const topic = unique('topic')
    const [created] = await admin.createTopics({
      topics: [topic], partitions: 3, replicas: 2, configs: [{ name: 'retention.ms', value: '3600000' }]
    })
    assert.equal(created.name, topic)
    assert.equal(created.partitions, 3)
    assert.equal(created.replicas, 2)
    assert.equal(created.configuration['retention.ms'], '3600000')
    await assert.rejects(admin.createTopics({ topics: [topic], partitions: 3, replicas: 2 }), is('TOPIC_ALREADY_EXISTS'))
    await until('topic listed', async () => (await admin.listTopics()).includes(topic))
    const { topics } = await until('metadata', () => admin.metadata({ topics: [topic], forceUpdate: true }).catch(() => false))
    const described = topics.get(topic)
    assert.equal(described.id, created.id)
    assert.equal(described.partitionsCount, 3)
    for (const { leader, replicas, isr } of described.partitions) {
      assert.equal(replicas.length, 2)
      assert.deepEqual([...isr].sort(), [...replicas].sort())
      assert.ok(replicas.includes(leader))
    }
    await admin.deleteTopics({ topics: [topic] })
    await until('topic no longer listed', async () => !(await admin.listTopics()).includes(topic))
    await assert.rejects(admin.deleteTopics({ topics: [topic] }), is('UNKNOWN_TOPIC_OR_PARTITION'))
  })

  test('refuses invalid topics', async t => {
    const admin = new Clients(t).admin()
    const create = options => admin.createTopics({ topics: [unique('topic')], partitions: 1, replicas: 1, ...options })
    await assert.rejects(create({ topics: ['a/b'] }), is('INVALID_TOPIC_EXCEPTION'))
    await assert.rejects(create({ replicas: 9 }), is('INVALID_REPLICATION_FACTOR'))
    await assert.rejects(create({ partitions: 0 }), is('INVALID_PARTITIONS'))
    await assert.rejects(create({ configs: [{ name: 'retention.ms', value: 'x' }] }), is('INVALID_CONFIG'))
  })

  test('describes and alters configs', async t => {
    const clients = new Clients(t)
    const admin = clients.admin()
    const topic = await clients.topic(1, { configs: [{ name: 'retention.ms', value: '3600000' }] })
    const resource = { resourceType: ConfigResourceTypes.TOPIC, resourceName: topic }
    const read = async () => {
      const [{ configs }] = await admin.describeConfigs({ resources: [resource], includeSynonyms: true })
      return Object.fromEntries(configs.map(({ name, value }) => [name, value]))
    }
    assert.equal((await read())['retention.ms'], '3600000')
    const alter = (configOperation, name, value) => admin.incrementalAlterConfigs({
      resources: [{ ...resource, configs: [{ configOperation, name, value }] }]
    })
    await alter(IncrementalAlterConfigOperationTypes.SET, 'cleanup.policy', 'compact')
    await until('changed policy', async () => (await read())['cleanup.policy'] === 'compact')
    assert.equal((await read())['retention.ms'], '3600000')
    await alter(IncrementalAlterConfigOperationTypes.DELETE, 'retention.ms')
    await until('default retention', async () => (await read())['retention.ms'] === '604800000')
    await assert.rejects(alter(IncrementalAlterConfigOperationTypes.SET, 'retention.ms', 'x'), is('INVALID_CONFIG'))
  })

  test('describes a broker\'s configs', async t => {
    const admin = new Clients(t).admin()
    const { brokers: found } = await admin.metadata({})
    const [resourceName] = [...found.keys()].map(String)
    const [{ configs }] = await admin.describeConfigs({
      resources: [{ resourceType: ConfigResourceTypes.BROKER, resourceName, configurationKeys: ['message.max.bytes'] }]
    })
    assert.deepEqual(configs.map(({ name, value }) => [name, value]), [['message.max.bytes', '1048588']])
  })

  test('adds partitions', async t => {
    const clients = new Clients(t)
    const admin = clients.admin()
    const topic = await clients.topic(1)
    await admin.createPartitions({ topics: [{ name: topic, count: 3, assignments: null }] })
    await until('three partitions', async () => {
      const { topics } = await admin.metadata({ topics: [topic], forceUpdate: true })
      return topics.get(topic).partitionsCount === 3
    })
    await assert.rejects(admin.createPartitions({ topics: [{ name: topic, count: 2, assignments: null }] }),
      is('INVALID_PARTITIONS'))
  })

  test('deletes records', async t => {
    const clients = new Clients(t)
    const topic = await clients.topic()
    await clients.producer().send({ acks: -1, messages: messages(topic, 0, 10) })
    const admin = clients.admin()
    const deleted = await admin.deleteRecords({ topics: [{ name: topic, partitions: [{ partition: 0, offset: 4n }] }] })
    assert.deepEqual(deleted, [{ name: topic, partitions: [{ partition: 0, lowWatermark: 4n }] }])
    assert.deepEqual(await clients.values(topic, 6), texts(4, 10))
  })

  test('lists offsets', async t => {
    const clients = new Clients(t)
    const topic = await clients.topic()
    const admin = clients.admin()
    const base = 1_700_000_000_000n
    await clients.producer().send({
      acks: -1, messages: range(0, 5).map(i => ({ topic, value: 'x', timestamp: base + BigInt(i) }))
    })
    const list = async timestamp => {
      const [{ partitions: [found] }] = await admin.listOffsets({
        topics: [{ name: topic, partitions: [{ partitionIndex: 0, timestamp }] }]
      })
      return [found.offset, found.timestamp]
    }
    assert.deepEqual(await list(ListOffsetTimestamps.EARLIEST), [0n, -1n])
    assert.deepEqual(await list(ListOffsetTimestamps.LATEST), [5n, -1n])
    assert.deepEqual(await list(ListOffsetTimestamps.MAX), [4n, base + 4n])
    assert.deepEqual(await list(base + 2n), [2n, base + 2n])
    assert.deepEqual(await list(base + 9n), [-1n, -1n])
  })

  test('lists, describes and deletes groups, and sets their offsets', async t => {
    const clients = new Clients(t)
    const topic = await clients.topic()
    await clients.producer().send({ messages: messages(topic, 0, 5) })
    const { consumer, groupId, received } = await clients.consumer(topic)
    await until('records', () => received.length === 5)
    const admin = clients.admin()
    const listed = (await admin.listGroups({ types: ['classic'] })).get(groupId)
    assert.equal(listed.state, 'Stable')
    assert.equal(listed.protocolType, 'consumer')
    const described = (await admin.describeGroups({ groups: [groupId] })).get(groupId)
    assert.equal(described.state, 'Stable')
    assert.equal(described.protocol, 'roundrobin')
    assert.deepEqual([...described.members.values()].map(({ clientId }) => clientId), ['interop'])
    await assert.rejects(admin.deleteGroups({ groups: [groupId] }), is('NON_EMPTY_GROUP'))
    await until('commit', async () => await clients.committed(groupId, topic) === 5n)
    await consumer.close(true)
    await admin.alterConsumerGroupOffsets({
      groupId, topics: [{ name: topic, partitionOffsets: [{ partition: 0, offset: 2n }] }]
    })
    assert.equal(await clients.committed(groupId, topic), 2n)
    await admin.deleteConsumerGroupOffsets({ groupId, topics: [{ name: topic, partitionIndexes: [0] }] })
    assert.equal(await clients.committed(groupId, topic), -1n)
    await admin.deleteGroups({ groups: [groupId] })
    assert.ok(!(await admin.listGroups()).has(groupId))
  })

  test('alters and describes client quotas', async t => {
    const admin = new Clients(t).admin()
    const entity = [{ entityType: 'client-id', entityName: unique('client') }]
    await admin.alterClientQuotas({
      entries: [{ entities: entity, ops: [{ key: 'producer_byte_rate', value: 1e9, remove: false }] }]
    })
    const components = [{ entityType: 'client-id', matchType: 0, match: entity[0].entityName }]
    const [quota] = await until('quota', async () => {
      const found = await admin.describeClientQuotas({ components })
      return found.length > 0 && found
    })
    assert.deepEqual(quota.values, [{ key: 'producer_byte_rate', value: 1e9 }])
  })

  test('describes log directories', async t => {
    const clients = new Clients(t)
    const topic = await clients.topic(1)
    await clients.producer().send({ acks: -1, messages: messages(topic, 0, 10) })
    const found = await clients.admin().describeLogDirs({ topics: [{ name: topic, partitions: [0] }] })
    assert.equal(found.length, 3)
    const sizes = found.flatMap(({ results }) => results.flatMap(({ topics }) => topics))
      .flatMap(({ partitions }) => partitions.map(({ partitionSize }) => partitionSize))
    assert.equal(sizes.length, 3)
    assert.ok(sizes.every(size => size > 0n))
  })

  test('refuses ACLs without an authorizer', async t => {
    const filter = { resourceType: 1, resourcePatternType: 1, operation: 1, permissionType: 1 }
    await assert.rejects(new Clients(t).admin().describeAcls({ filter }), is('SECURITY_DISABLED'))
  })
})

describe('producer', { concurrency: 4 }, () => {
  test('keeps keys, values, headers, timestamps and order', async t => {
    const clients = new Clients(t)
    const topic = await clients.topic()
    const sent = [
      { topic, key: 'key', value: 'value', headers: { text: 'x', other: 'y' }, timestamp: 1700000000000n },
      { topic, value: 'without a key', timestamp: 1700000000500n },
      { topic, key: 'empty', value: '', timestamp: 1700000001000n }
    ]
    const { offsets } = await clients.producer().send({ messages: sent })
    assert.deepEqual(offsets, [{ topic, partition: 0, offset: 0n }])
    const { received } = await clients.consumer(topic)
    await until('records', () => received.length === 3)
    assert.deepEqual(received.map(({ offset }) => offset), [0n, 1n, 2n])
    assert.deepEqual(received.map(({ timestamp }) => timestamp), sent.map(({ timestamp }) => timestamp))
    assert.deepEqual(received.map(({ key }) => key || null), ['key', null, 'empty'])
    assert.deepEqual(received.map(({ value }) => value), ['value', 'without a key', ''])
    assert.deepEqual([...received[0].headers], [['text', 'x'], ['other', 'y']])
  })

  for (const acks of [0, 1, -1]) {
    test(`sends with acks=${acks}`, async t => {
      const clients = new Clients(t)
      const topic = await clients.topic()
      const producer = clients.producer()
      for (const i of range(0, 5)) await producer.send({ acks, messages: messages(topic, i * 10, i * 10 + 10) })
      assert.deepEqual(await clients.values(topic, 50), texts(0, 50))
    })
  }

  for (const compression of ['gzip', 'snappy', 'lz4', 'zstd']) {
    test(`compresses with ${compression}`, async t => {
      const clients = new Clients(t)
      const topic = await clients.topic()
      await clients.producer().send({ compression, messages: messages(topic, 0, 1000) })
      assert.deepEqual(await clients.values(topic, 1000), texts(0, 1000))
    })
  }

  test('sends to several topics at once', async t => {
    const clients = new Clients(t)
    const topics = await Promise.all(range(0, 3).map(() => clients.topic(3)))
    const sent = topics.flatMap(topic => range(0, 30).map(i => ({ topic, key: `${i}`, value: `${topic} ${i}` })))
    await clients.producer().send({ messages: sent })
    const { received } = await clients.consumer(topics)
    await until('records', () => received.length === 90)
    assert.deepEqual(received.map(({ value }) => value).sort(), sent.map(({ value }) => value).sort())
  })

  test('sends as an idempotent producer', async t => {
    const clients = new Clients(t)
    const topic = await clients.topic(3)
    const producer = clients.producer({ idempotent: true })
    for (const i of range(0, 20)) {
      await producer.send({ messages: range(i * 10, i * 10 + 10).map(n => ({ topic, key: `${n % 7}`, value: `${n}` })) })
    }
    const { received } = await clients.consumer(topic)
    await until('records', () => received.length === 200)
    for (const k of range(0, 7)) {
      const values = received.filter(({ key }) => key === `${k}`).map(({ value }) => Number(value))
      assert.deepEqual(values, range(0, 200).filter(n => n % 7 === k))
    }
  })

  test('sends a record near the maximum size and is refused a larger one', async t => {
    const clients = new Clients(t)
    const topic = await clients.topic()
    const producer = clients.producer()
    const value = randomBytes(524_000).toString('hex')
    await producer.send({ messages: [{ topic, value }] })
    await assert.rejects(producer.send({ messages: [{ topic, value: value + value }] }), is('MESSAGE_TOO_LARGE'))
    assert.deepEqual(await clients.values(topic, 1), [value])
  })

  test('creates a topic by sending, if it may', async t => {
    const clients = new Clients(t)
    const topic = unique('topic')
    await clients.producer({ autocreateTopics: true }).send({ messages: messages(topic, 0, 3) })
    assert.deepEqual(await clients.values(topic, 3), texts(0, 3))
  })

  test('fails for an unknown topic', async t => {
    const topic = unique('topic')
    await assert.rejects(new Clients(t).producer().send({ messages: messages(topic, 0, 1) }),
      { code: 'PLT_KFK_USER', message: `Unknown topic ${topic}.` })
  })
})

describe('consumer', { concurrency: 4 }, () => {
  const partitions = ({ consumer }) => consumer.assignments?.flatMap(({ partitions }) => partitions) ?? []

  // The default protocol of groups is the classic one.
  for (const groupProtocol of ['classic', 'consumer']) {
    test(`rebalances when a member joins and when it leaves (${groupProtocol} protocol)`, async t => {
      const clients = new Clients(t)
      const topic = await clients.topic(4)
      const producer = clients.producer()
      const config = { groupProtocol }
      const first = await clients.consumer(topic, { config })
      await until('all partitions', () => partitions(first).length === 4)
      const second = await clients.consumer(topic, { config, groupId: first.groupId })
      await until('two partitions each', () => partitions(first).length === 2 && partitions(second).length === 2)
      assert.deepEqual([...partitions(first), ...partitions(second)].sort(), [0, 1, 2, 3])
      const send = from => producer.send({
        messages: range(0, 4).map(partition => ({ topic, partition, value: `${from + partition}` }))
      })
      // A member may still deliver records of partitions that it no longer has, so one may be delivered to both.
      const has = (reader, from) => partitions(reader).every(partition =>
        reader.received.some(message => message.partition === partition && message.value === `${from + partition}`))
      await send(0)
      await until('records of both', () => has(first, 0) && has(second, 0))
      await second.consumer.close(true)
      await until('all partitions again', () => partitions(first).length === 4)
      await send(4)
      await until('records of all partitions', () => has(first, 4))
    })
  }

  test('resumes after its committed offsets', async t => {
    const clients = new Clients(t)
    const topic = await clients.topic()
    await clients.producer().send({ messages: messages(topic, 0, 10) })
    const first = await clients.consumer(topic, { autocommit: false })
    await until('records', () => first.received.length === 10)
    await first.received[5].commit()
    assert.equal(await clients.committed(first.groupId, topic), 6n)
    await first.consumer.close(true)
    const second = await clients.consumer(topic, { groupId: first.groupId })
    await until('records', () => second.received.length === 4)
    assert.deepEqual(second.received.map(({ value }) => value), texts(6, 10))
    await until('commit', async () => await clients.committed(first.groupId, topic) === 10n)
  })

  test('starts at given offsets', async t => {
    const clients = new Clients(t)
    const topic = await clients.topic()
    await clients.producer().send({ messages: messages(topic, 0, 10) })
    const { received } = await clients.consumer(topic, {
      mode: 'manual', fallbackMode: undefined, offsets: [{ topic, partition: 0, offset: 7n }]
    })
    await until('records', () => received.length === 3)
    assert.deepEqual(received.map(({ offset }) => offset), [7n, 8n, 9n])
  })

  test('starts at the end by default', async t => {
    const clients = new Clients(t)
    const topic = await clients.topic()
    const producer = clients.producer()
    await producer.send({ acks: -1, messages: messages(topic, 0, 5) })
    const { received } = await clients.consumer(topic, { mode: undefined, fallbackMode: undefined })
    // The stream looks up its offsets after `consume` has returned.
    await until('record', async () => {
      await producer.send({ messages: messages(topic, 5, 6) })
      return received.length > 0
    })
    assert.ok(received.every(({ value }) => value === 'value 5'))
  })

  test('pauses and resumes', async t => {
    const clients = new Clients(t)
    const topic = await clients.topic()
    const producer = clients.producer()
    const { stream, received } = await clients.consumer(topic)
    await producer.send({ messages: messages(topic, 0, 5) })
    await until('records', () => received.length === 5)
    stream.pause()
    await producer.send({ messages: messages(topic, 5, 10) })
    const other = await clients.consumer(topic)
    await until('records of another group', () => other.received.length === 10)
    assert.equal(received.length, 5)
    stream.resume()
    await until('records kept back', () => received.length === 10)
  })

  test('reports its lag', async t => {
    const clients = new Clients(t)
    const topic = await clients.topic()
    const producer = clients.producer()
    await producer.send({ messages: messages(topic, 0, 5) })
    const { consumer, received } = await clients.consumer(topic)
    await until('records', () => received.length === 5)
    await until('lag', async () => (await consumer.getLag({ topics: [topic] })).get(topic)?.[0] === 0n)
  })

  test('fails for an unknown topic', async t => {
    const clients = new Clients(t)
    const consumer = clients.closing(new Consumer({ ...clients.base, groupId: unique('group') }))
    const topic = unique('topic')
    await assert.rejects(consumer.consume({ topics: [topic] }), { code: 'PLT_KFK_USER', message: `Unknown topic ${topic}.` })
  })
})

describe('transactions', { concurrency: 4 }, () => {
  const producerOf = clients => clients.producer({ idempotent: true, transactionalId: unique('id') })
  const uncommitted = { isolationLevel: FetchIsolationLevels.READ_UNCOMMITTED }

  test('commits and aborts', async t => {
    const clients = new Clients(t)
    const topics = await Promise.all([clients.topic(), clients.topic()])
    const producer = producerOf(clients)
    const send = async (value, end) => {
      const transaction = await producer.beginTransaction()
      await transaction.send({ messages: topics.map(topic => ({ topic, value })) })
      await transaction[end]()
    }
    await send('a', 'commit')
    await send('b', 'abort')
    await send('c', 'commit')
    for (const topic of topics) {
      assert.deepEqual(await clients.values(topic, 2), ['a', 'c'])
      assert.deepEqual(await clients.values(topic, 3, uncommitted), ['a', 'b', 'c'])
    }
  })

  test('hides an open transaction from read_committed', async t => {
    const clients = new Clients(t)
    const topic = await clients.topic()
    const committed = await clients.consumer(topic)
    const all = await clients.consumer(topic, uncommitted)
    const transaction = await producerOf(clients).beginTransaction()
    await transaction.send({ messages: messages(topic, 0, 5) })
    await until('uncommitted records', () => all.received.length === 5)
    assert.equal(committed.received.length, 0)
    await transaction.commit()
    await until('committed records', () => committed.received.length === 5)
  })

  test('commits offsets in a transaction', async t => {
    const clients = new Clients(t)
    const [input, output] = [await clients.topic(), await clients.topic()]
    await clients.producer().send({ messages: messages(input, 0, 5) })
    const { consumer, groupId, received } = await clients.consumer(input, { autocommit: false })
    await until('records', () => received.length === 5)
    const producer = producerOf(clients)
    const send = async (message, end) => {
      const transaction = await producer.beginTransaction()
      await transaction.addConsumer(consumer)
      await transaction.send({ messages: [{ topic: output, value: message.value }] })
      await transaction.addOffset(message)
      await transaction[end]()
    }
    await send(received[1], 'commit')
    await until('committed offset', async () => await clients.committed(groupId, input) === 2n)
    await send(received[3], 'abort')
    await send(received[2], 'commit')
    await until('committed offset', async () => await clients.committed(groupId, input) === 3n)
    assert.deepEqual(await clients.values(output, 2), ['value 1', 'value 2'])
  })

  test('fences the previous producer of a transactional id', async t => {
    const clients = new Clients(t)
    const topic = await clients.topic()
    const options = { idempotent: true, transactionalId: unique('id') }
    const first = await clients.producer(options).beginTransaction()
    await first.send({ messages: [{ topic, value: 'fenced' }] })
    const second = await clients.producer(options).beginTransaction()
    await assert.rejects(first.send({ messages: [{ topic, value: 'fenced' }] }))
    await second.send({ messages: [{ topic, value: 'kept' }] })
    await second.commit()
    assert.deepEqual(await clients.values(topic, 1), ['kept'])
  })
})

describe('faults', () => {
  const skip = control ? false : 'only the embedded cluster has a control endpoint'

  const sendAndRead = async (t, options, fail) => {
    const clients = new Clients(t)
    const topic = await clients.topic(3)
    const producer = clients.producer(options)
    const { stream, received } = await clients.consumer(topic, { config: options })
    let failure
    stream.on('error', error => { failure = error })
    let sent = 0
    const send = async count => {
      for (const end = sent + count; sent < end; sent++) {
        await producer.send({
          acks: -1, messages: range(0, 3).map(partition => ({ topic, partition, value: `${partition} ${sent}` }))
        })
      }
    }
    const all = what => until(what, () => {
      if (failure) throw failure
      return new Set(received.map(({ value }) => value)).size === 3 * sent
    })
    await send(10)
    await all('first records')
    const { leader } = (await clients.admin().metadata({ topics: [topic] })).topics.get(topic).partitions[0]
    await fail(leader)
    try {
      await send(100)
      await all('all records with a broker down')
    } finally {
      await restart(leader)
    }
    await send(100)
    await all('all records with the broker back')
  }

  test('a broker stopped while records are sent and read', { skip }, t => sendAndRead(t, {}, stop))

  // The default of three retries, one second apart, ends before the controller notices the death.
  test('a broker killed while records are sent and read, with unlimited retries', { skip },
    t => sendAndRead(t, { retries: true }, kill))
})
