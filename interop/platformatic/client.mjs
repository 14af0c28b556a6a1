// Clients of a test, with the default settings of @platformatic/kafka. They close when the test ends.
import { Admin, Consumer, Producer, findErrorBy, stringDeserializers, stringSerializers } from '@platformatic/kafka'
import { brokers, unique, until } from '../node/harness.mjs'

/** Whether an error, or one that it is made of, has this name of Kafka's. */
export const is = name => error => findErrorBy(error, 'apiId', name) !== null

export class Clients {
  constructor (test) {
    this.test = test
    this.base = { clientId: 'interop', bootstrapBrokers: brokers }
  }

  closing (client) {
    // An admin client takes a callback there.
    this.test.after(() => client instanceof Admin ? client.close() : client.close(true))
    return client
  }

  admin (options) {
    return this.closing(new Admin({ ...this.base, ...options }))
  }

  producer (options) {
    return this.closing(new Producer({ ...this.base, serializers: stringSerializers, ...options }))
  }

  /** A topic of a new name, once each broker has it in its metadata. */
  async topic (partitions = 1, options) {
    const topic = unique('topic')
    await this.admin().createTopics({ topics: [topic], partitions, replicas: 3, ...options })
    for (const broker of brokers) {
      const one = this.admin({ bootstrapBrokers: [broker] })
      await until('topic in metadata', () => one.metadata({ topics: [topic] }).then(() => true, () => false))
    }
    return topic
  }

  /** A consumer with a stream, and the messages that the stream has received. */
  async consumer (topics, { groupId = unique('group'), config, ...options } = {}) {
    const consumer = this.closing(new Consumer({ ...this.base, groupId, deserializers: stringDeserializers, ...config }))
    const stream = await consumer.consume({
      topics: [topics].flat(), mode: 'committed', fallbackMode: 'earliest', ...options
    })
    const received = []
    stream.on('data', message => received.push(message))
    return { consumer, stream, groupId, received }
  }

  /** The values of the first `count` records of a topic, as a new group reads them. */
  async values (topic, count, options) {
    const { received } = await this.consumer(topic, options)
    await until(`${count} records`, () => received.length >= count)
    return received.map(({ value }) => value)
  }

  /** The committed offset of a group in partition 0 of a topic; -1n if there is none. */
  async committed (groupId, topic) {
    const [group] = await this.admin().listConsumerGroupOffsets({
      groups: [{ groupId, topics: [{ name: topic, partitionIndexes: [0] }] }]
    })
    return group.topics[0].partitions[0].committedOffset
  }
}
