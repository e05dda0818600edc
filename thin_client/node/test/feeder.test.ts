/** The loops around a session, without a consumer. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Servers } from "../src/addresses.js";
import { nowMs } from "../src/clock.js";
import { Feeder } from "../src/feeder.js";
import { readOptions } from "../src/options.js";
import { Session } from "../src/session.js";
import { FakeProxy, until } from "./fake-proxy.js";

test("a stop during connect prevents pulls", async () => {
  await using proxy = await FakeProxy.open();
  const servers = proxy.address;
  const session = new Session(readOptions({ servers, group: "g" }).session);
  let turns = 0;
  const feeder = new Feeder(session, {
    servers: new Servers(servers),
    dialling: { timeoutMs: 3_000, tls: null },
    logger: { warn() {}, error() {} },
    listener: { changed: () => turns++, pulled() {}, settled() {}, leaseLost() {}, failed() {} },
  });
  feeder.start();
  session.stop(nowMs());
  await until(() => turns === 1 && proxy.connections === 1);

  assert.deepEqual(proxy.pulls, []);
  await feeder.close();
});
