// Runs the effects of one topic of duebox, each as soon as it is due and as long as its message has not been withdrawn.
//
//   AMQP_URL=amqp://... API_URL=http://127.0.0.1:8080 API_TOKEN=... TOPIC=cart.remind node consumer.mjs
//
// The broker delivers at least once, and so does this: if it dies between an effect and marking it done, the effect runs
// again, with the same id and generation. Only an effect that tells these apart happens once.
import amqp from 'amqplib';
import { setTimeout as sleep } from 'node:timers/promises';

const { AMQP_URL, API_URL, API_TOKEN = '', NAMESPACE = 'duebox', TOPIC } = process.env;
for (const [name, value] of Object.entries({ AMQP_URL, API_URL, TOPIC })) {
  if (!value) throw new Error(`${name} is not set`);
}

// effect is what this is all for. One that throws runs again, after a second.
async function effect(message) {
  const { headers, ...rest } = message;
  console.log(JSON.stringify({ ...rest, payload: message.payload.toString(), at: new Date().toISOString() }));
}

const stopping = new AbortController();
for (const signal of ['SIGTERM', 'SIGINT']) process.once(signal, () => stopping.abort());
const stopped = new Promise((resolve) => stopping.signal.addEventListener('abort', resolve, { once: true }));
const pause = (ms) => sleep(ms, undefined, { signal: stopping.signal }).catch(() => {});

// ask calls the API, and gives up after ten seconds.
async function ask(method, path, body) {
  const response = await fetch(API_URL + path, {
    method,
    body: body && JSON.stringify(body),
    headers: { Authorization: `Bearer ${API_TOKEN}`, ...(body && { 'Content-Type': 'application/json' }) },
    signal: AbortSignal.timeout(10_000),
  });
  return { status: response.status, after: Number(response.headers.get('Retry-After') ?? 1), text: await response.text() };
}

// mayRun says whether the effect may happen now. It waits for a message that came too early.
async function mayRun({ id, generation, store }) {
  for (;;) {
    const answer = await ask('GET', `/v1/deliveries/${id}?${new URLSearchParams({ generation, store })}`);
    if (answer.status === 200) return true;
    if (answer.status === 409 || answer.status === 404) return false; // withdrawn, moved, done before: the text says which
    if (answer.status !== 425 || stopping.signal.aborted) throw new Error(`may it run? ${answer.status} ${answer.text}`);
    await pause(answer.after * 1000);
  }
}

// finish marks the message done. The effect has happened, so it insists, for a while.
async function finish({ id, generation, store }) {
  for (let tries = 1; ; tries++) {
    const answer = await ask('POST', `/v1/deliveries/${id}/done`, { generation, store }).catch((error) => ({ status: 0, text: String(error) }));
    if (answer.status === 200) return;
    if (answer.status === 409) return console.error(`message ${id} had its effect, and was withdrawn or moved meanwhile`);
    if (tries === 10) throw new Error(`mark it done: ${answer.status} ${answer.text}`);
    await sleep(1000);
  }
}

// Effects that run in this process, by message and generation: a copy of a delivery waits for the other, and then asks.
const running = new Map();

async function run(message) {
  const name = `${message.id}-${message.generation}`;
  while (running.has(name)) await running.get(name).catch(() => {});
  const one = (async () => {
    if (!(await mayRun(message))) return;
    await effect(message);
    await finish({ ...message, generation: Number(message.generation) });
  })();
  running.set(name, one);
  try {
    await one;
  } finally {
    running.delete(name);
  }
}

// handle acknowledges a delivery once nothing more is to be done for it, and else gives it back.
async function handle(channel, delivery) {
  const { headers, contentType } = delivery.properties;
  const message = {
    id: String(headers['duebox-id']), generation: String(headers['duebox-generation']), store: headers['duebox-store'],
    key: headers['duebox-key'], due: new Date(Number(headers['duebox-due']) / 1000).toISOString(),
    contentType, payload: delivery.content, headers, // user-<name>, traceparent, tracestate, cloudEvents:<name>
  };
  try {
    await run(message);
    channel.ack(delivery);
  } catch (error) {
    console.error(`message ${message.id}:`, error);
    await pause(1000);
    channel.nack(delivery);
  }
}

// consume runs until the connection ends, or until it is told to stop and what it handles is finished.
async function consume() {
  const url = new URL(AMQP_URL);
  url.searchParams.set('heartbeat', '10'); // seconds; a broker that stands still is noticed after two
  const connection = await amqp.connect(url.href, { timeout: 10_000 });
  const ended = new Promise((resolve) => connection.once('close', resolve));
  connection.on('error', (error) => console.error('connection:', error.message));
  try {
    const channel = await connection.createChannel();
    const lost = new Promise((resolve) => channel.once('close', resolve));
    channel.on('error', (error) => console.error('channel:', error.message));
    // As duebox itself would declare it, so that either can be first, and the reconciler knows its name.
    const queue = `${NAMESPACE}.work.${TOPIC}`;
    await channel.assertQueue(queue, {
      durable: true,
      arguments: { 'x-queue-type': 'quorum', 'x-delivery-limit': 2 ** 30, 'x-dead-letter-exchange': `${NAMESPACE}.unrouted` },
    });
    await channel.bindQueue(queue, `${NAMESPACE}.deliver`, TOPIC);
    await channel.prefetch(16);
    const handling = new Set();
    const canceled = new Promise((resolve) => {
      channel.consume(queue, (delivery) => {
        if (!delivery) return resolve(); // the queue is gone
        const one = handle(channel, delivery).catch((error) => console.error(error.message)).finally(() => handling.delete(one));
        handling.add(one);
      }, { consumerTag: 'consumer' }).catch(resolve);
    });
    console.error(`consuming ${queue}`);
    await Promise.race([ended, lost, canceled, stopped]);
    if (stopping.signal.aborted) await channel.cancel('consumer').catch(() => {});
    await Promise.all(handling);
  } finally {
    await Promise.race([connection.close().catch(() => {}), sleep(5000, undefined, { ref: false })]);
  }
}

while (!stopping.signal.aborted) {
  await consume().catch((error) => console.error('consume:', error.message));
  await pause(1000);
}
