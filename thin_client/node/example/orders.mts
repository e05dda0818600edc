/**
 * An example application: sends orders, then handles orders, each customer's in order, until
 * SIGTERM or Ctrl-C. After `npm run build`:
 *
 *     node dist/example/orders.mjs [host:port,...]
 */

import { Consumer, type HandlerContext, type Message, Producer, Reject, Retry } from "orderlane";

interface Order {
  id: number;
  customer?: string;
  cents: number;
}

const servers = process.argv[2] ?? "127.0.0.1:9713";

async function sendSome(): Promise<void> {
  const producer = new Producer({ servers });
  try {
    const orders = Array.from({ length: 20 }, (_, id): Order => {
      return { id, customer: `customer-${id % 4}`, cents: 100 * id };
    });
    orders.push({ id: 20, cents: 1 }); // without a customer: will be rejected
    await producer.sendBatch(
      orders.map((order) => ({
        topic: "orders",
        body: JSON.stringify(order),
        shardingPath: "$.customer",
        key: order.customer ?? "unknown",
      })),
    );
  } finally {
    await producer.close();
  }
}

async function charge(message: Message, { signal }: HandlerContext): Promise<void> {
  const order = message.json<Order>();
  if (order.customer === undefined) throw new Reject("no customer");
  if (order.id === 7 && message.attempt === 1) throw new Retry({ afterMs: 500 });
  await new Promise((resolve) => setTimeout(resolve, 50)); // real work should take the signal
  signal.throwIfAborted();
  console.log(`${order.customer}: order ${order.id}, ${order.cents} cents (${message})`);
}

await sendSome();
const consumer = new Consumer({ servers, group: "billing", topics: ["orders"], concurrency: 16 });
consumer.on("leaseLost", (message) => console.warn(`lost: ${message}`));
consumer.on("handleEnd", (message, outcome) => {
  if (outcome !== "ok") console.log(`${outcome}: ${message}`);
});
await consumer.run(charge, { stopOn: ["SIGTERM", "SIGINT"] });
console.log("drained");
