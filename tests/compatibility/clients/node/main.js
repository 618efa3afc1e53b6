// A program of kafkajs', as its users would write it: what a test asks it to do, it prints as JSON,
// one object a line. See tests/compatibility/test_go_and_node.py.
const { Kafka, CompressionTypes, logLevel } = require('kafkajs')

const [bootstrap, command, topic, ...rest] = process.argv.slice(2)
const kafka = new Kafka({ clientId: 'node', brokers: bootstrap.split(','), logLevel: logLevel.NOTHING })
const say = (what) => process.stdout.write(JSON.stringify(what) + '\n')

async function produce(count) {
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  const messages = Array.from({ length: count }, (_, n) => ({ key: `${n}`, value: `${n}` }))
  await producer.send({ topic, acks: -1, compression: CompressionTypes.GZIP, messages })
  await producer.disconnect()
  say({ produced: count })
}

// Joins a group and prints each record as it comes; ends after `count`, or when it is killed.
async function readInGroup(groupId, count) {
  const consumer = kafka.consumer({ groupId })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  let read = 0
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, (event) => reject(event.payload.error))
    consumer.run({
      autoCommitThreshold: 50,
      eachMessage: async ({ partition, message }) => {
        say({ partition, value: message.value.toString() })
        read += 1
        if (read === count) resolve()
      },
    }).catch(reject)
  })
  await consumer.stop()
  await consumer.disconnect()
}

// kafkajs has a group or it has nothing; this one is nobody else's.
async function readCommitted(count) {
  const consumer = kafka.consumer({ groupId: `reader-of-${topic}`, readUncommitted: false })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  let read = 0
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, (event) => reject(event.payload.error))
    consumer.run({
      eachMessage: async ({ message }) => {
        say({ value: message.value.toString() })
        read += 1
        if (read === count) resolve()
      },
    }).catch(reject)
  })
  await consumer.disconnect()
}

// Consume, transform, produce: offsets and output in one transaction. The first one is aborted, so
// that what it had written is there and must not be seen.
async function transform(to, groupId, count) {
  const consumer = kafka.consumer({ groupId, readUncommitted: false })
  const producer = kafka.producer({
    transactionalId: `${groupId}-transform`, idempotent: true, maxInFlightRequests: 1,
  })
  await Promise.all([consumer.connect(), producer.connect()])
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  let committed = 0
  let aborted = 0
  const once = async ({ batch, resolveOffset }) => {
    const transaction = await producer.transaction()
    const messages = batch.messages.map((one) => ({ key: one.key, value: `node ${one.value}` }))
    await transaction.send({ topic: to, messages })
    if (aborted === 0) {
      await transaction.abort()
      aborted = messages.length
      return false
    }
    const offset = (BigInt(batch.lastOffset()) + 1n).toString()
    await transaction.sendOffsets({
      consumerGroupId: groupId,
      topics: [{ topic, partitions: [{ partition: batch.partition, offset }] }],
    })
    await transaction.commit()
    resolveOffset(batch.lastOffset())
    committed += messages.length
    return true
  }
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, (event) => reject(event.payload.error))
    consumer.run({
      autoCommit: false,
      eachBatchAutoResolve: false,
      eachBatch: async (given) => {
        if (!(await once(given))) await once(given)
        if (committed === count) resolve()
      },
    }).catch(reject)
  })
  await Promise.all([consumer.disconnect(), producer.disconnect()])
  say({ transformed: committed, aborted })
}

const commands = {
  produce: () => produce(Number(rest[0])),
  group: () => readInGroup(rest[0], Number(rest[1])),
  committed: () => readCommitted(Number(rest[0])),
  transform: () => transform(rest[0], rest[1], Number(rest[2])),
}

setTimeout(() => { process.stderr.write('out of time\n'); process.exit(1) }, 60000).unref()
commands[command]().then(() => process.exit(0), (error) => {
  process.stderr.write(`${error.stack}\n`)
  process.exit(1)
})
