"use strict";
// The client of Alibaba's ONS for Node, ali-ons: see other_clients.py. It has no orderly consumer.

const { Consumer, Message, Producer } = require("ali-ons");

// The client requests a nameserver address by HTTP, but gets one as an argument here.
const httpclient = { request: async () => ({ status: 500 }) };
const logger = { info() {}, debug() {}, warn() {}, error() {} };

const say = (what) => process.stdout.write(JSON.stringify(what) + "\n");

async function send(nameSrv, topic, producerGroup, count) {
  const producer = new Producer({ httpclient, logger, nameSrv, producerGroup });
  await producer.ready();
  for (let number = 0; number < count; number++) {
    const message = new Message(topic, number % 2 ? "odd" : "even", `body-${number}`);
    message.keys = [`key-${number % 4}`];
    message.properties.number = String(number);
    await producer.send(message, `key-${number % 4}`);
  }
  await producer.close();
  say({ sent: count });
  process.exit(0);
}

async function consume(nameSrv, topic, consumerGroup, expression) {
  const consumer = new Consumer({ httpclient, logger, nameSrv, consumerGroup, consumeFromWhere: "CONSUME_FROM_FIRST_OFFSET" });
  consumer.subscribe(topic, expression, async (message) => {
    say({
      key: message.keys,
      tag: message.tags,
      body: message.body.toString(),
      number: message.properties.number,
      queue: message.queueId,
      offset: message.queueOffset,
    });
  });
  await consumer.ready();
}

const [what, nameserver, topic, group, argument] = process.argv.slice(2);
(what === "send"
  ? send(nameserver, topic, group, Number(argument))
  : consume(nameserver, topic, group, argument)
).catch((error) => {
  console.error(error);
  process.exit(1);
});
