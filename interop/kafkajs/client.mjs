// Clients of a test, with KafkaJS's default settings. They disconnect when the test ends.
import kafkajs from 'kafkajs'
import { brokers, unique, until } from '../node/harness.mjs'

export const { CompressionTypes, ConfigResourceTypes } = kafkajs

export class Clients {
  constructor (test) {
    this.test = test
    this.kafka = new kafkajs.Kafka({ brokers, logLevel: kafkajs.logLevel.ERROR })
  }

  async connected (client) {
    this.test.after(() => client.disconnect())
    await client.connect()
    return client
  }

  admin () {
    return this.connected(this.kafka.admin())
  }

  producer (config) {
    return this.connected(this.kafka.producer(config))
  }

  /** A topic of a new name. */
  async topic (numPartitions = 1, configEntries = []) {
    const topic = unique('topic')
    await this.create({ topic, numPartitions, replicationFactor: 3, configEntries })
    return topic
  }

  /**
   * Creates a topic and waits until each broker has it in its metadata. `waitForLeaders` waits for one of them, and fails if that
   * one has no metadata of the topic yet.
   */
  async create (wanted) {
    const admin = await this.admin()
    await admin.createTopics({ topics: [wanted], waitForLeaders: false })
    for (const broker of brokers) {
      const one = await this.connected(new kafkajs.Kafka({ brokers: [broker], logLevel: kafkajs.logLevel.NOTHING }).admin())
      await until('topic in metadata', () => one.fetchTopicMetadata({ topics: [wanted.topic] }).catch(() => false))
    }
  }

  /** A consumer that runs, with the records that it has received and the partitions that it has been assigned. */
  async consumer (topics, { groupId = unique('group'), config = {}, ...run } = {}) {
    const consumer = await this.connected(this.kafka.consumer({ groupId, ...config }))
    const reader = { consumer, groupId, received: [], assigned: undefined }
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => { reader.assigned = payload.memberAssignment })
    await consumer.subscribe({ topics: [topics].flat(), fromBeginning: true })
    await consumer.run({
      eachMessage: async ({ topic, partition, message }) => { reader.received.push({ topic, partition, ...message }) },
      ...run
    })
    return reader
  }

  /** The values of the first `count` records of a topic, as a new group reads them. */
  async values (topic, count, config) {
    const { consumer, received } = await this.consumer(topic, { config })
    await until(`${count} records`, () => received.length >= count)
    await consumer.disconnect()
    return received.map(record => record.value.toString())
  }
}
