// Shared by the suites for Node.js: names, waiting, and the control endpoint of the embedded cluster.
import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { setTimeout as pause } from 'node:timers/promises'

export const brokers = process.env.INTEROP_BOOTSTRAP.split(',')

/** URL of the control endpoint; undefined on other clusters, such as Apache Kafka. */
export const control = process.env.INTEROP_CONTROL

/** A name for a topic, group or transactional id that no other test has. */
export const unique = what => `${what}-${randomUUID()}`

export const range = (from, to) => Array.from({ length: to - from }, (_, i) => from + i)

/** Polls until `condition` returns a value other than false and undefined, and returns it. */
export async function until (what, condition, limit = 60_000) {
  const end = Date.now() + limit
  for (;;) {
    const value = await condition()
    if (value !== undefined && value !== false) return value
    assert.ok(Date.now() < end, `${what}: not within ${limit} ms`)
    await pause(20)
  }
}

async function ask (method, path) {
  const response = await fetch(control + path, { method })
  const text = await response.text()
  assert.ok(response.ok, `${method} ${path}: ${response.status} ${text}`)
  return text
}

export const kill = id => ask('POST', `/v1/brokers/${id}/kill`)
export const stop = id => ask('POST', `/v1/brokers/${id}/stop`)

export async function restart (id) {
  await ask('POST', `/v1/brokers/${id}/restart`)
  await until('all brokers ready', async () => (await fetch(`${control}/readyz`)).ok)
}
