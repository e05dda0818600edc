// Changes of topics: create, update, delete, send a message, send a copy of one. Each shows its effect first
// and needs a reason.

import { path, post, put, remove } from "./api.js";
import { confirm } from "./dialog.js";
import { bytes, count, of } from "./format.js";

const PERMISSIONS = [["RW", "read and write"], ["R", "read only"], ["W", "write only"]];

/** Return the address of a page of *topic*. */
export function topicLink(topic, page = "", query = {}) {
  const text = new URLSearchParams(query).toString();
  return `#/topics/${encodeURIComponent(topic)}${page && `/${page}`}${text && `?${text}`}`;
}

/** Ask for a topic, show the effect, create it, and go to its page. */
export function askNewTopic() {
  let made = "";
  const ask = ({ topic, ...asked }, dryRun) => {
    if (!topic) throw new Error("a name is required: letters, digits, and - _ % |");
    return put(path("topics", topic), { ...asked, dry_run: dryRun });
  };
  confirm({
    title: "Create a topic",
    done: () => {
      location.hash = topicLink(made);
    },
    verbs: [
      {
        name: "create",
        label: "Create",
        sentence: "The topic is created with these queues at each broker.",
        fields: [
          { name: "topic", label: "Name", read: (text) => text.trim() },
          { name: "queues", label: "Queues at each broker", value: "8", inputmode: "numeric", read: queuesOf },
          { name: "perm", label: "Clients may", options: PERMISSIONS, value: "RW" },
          { name: "broker", label: "Broker", hint: "Empty: all brokers", read: (text) => text.trim() || undefined },
        ],
        command: ({ topic, queues, perm, broker }) => topic && ["topics", "create", topic, "--queues", queues, "--perm", perm, ["--broker", broker]],
        preview: async (asked) => {
          const plan = await ask(asked, true);
          return [
            ["Topic", "does not exist", plan.topic],
            ["Queues at each broker", 0, count(plan.queues)],
            ["Brokers", "none", plan.broker ?? "all"],
          ];
        },
        act: async (asked) => {
          const did = await ask(asked, false);
          made = did.topic;
          return `Created ${did.topic} with ${of(did.queues, "queue")} at ${did.broker ?? "each broker"}`;
        },
      },
    ],
  });
}

function queuesOf(text) {
  const plain = text.trim();
  if (!/^[1-9]\d{0,4}$/.test(plain)) throw new Error(`invalid number of queues "${text}": give 1 to 16384`);
  return Number(plain);
}

/** Ask for permissions and queues of *topic*, show the effect, and change it. */
export function askUpdate(topic, done) {
  const ask = (asked, dryRun) => post(path("topics", topic), { ...asked, dry_run: dryRun });
  confirm({
    title: `Change topic ${topic}`,
    done,
    verbs: [
      {
        name: "update",
        label: "Change",
        sentence: "Consumers that may read can read all queues that producers write to. A message key may move to another queue once there are more: add queues while no message waits.",
        fields: [
          { name: "perm", label: "Clients may", options: [["", "unchanged"], ...PERMISSIONS], value: "", read: (text) => text || undefined },
          { name: "queues", label: "Queues at each broker", hint: "Not less than there are. Empty: unchanged", inputmode: "numeric", read: (text) => (text.trim() ? queuesOf(text) : undefined) },
          { name: "broker", label: "Broker", hint: "Empty: all brokers with the topic", read: (text) => text.trim() || undefined },
        ],
        command: ({ perm, queues, broker }) => ["topics", "update", topic, ["--perm", perm], ["--queues", queues], ["--broker", broker]],
        preview: async (asked) => {
          const plan = await ask(asked, true);
          return plan.brokers.map((row, at) => [`Broker ${row.broker}`, shape(plan.before[at]), shape(row)]);
        },
        act: async (asked) => {
          await ask(asked, false);
          return `Changed ${topic}`;
        },
      },
    ],
  });
}

/** Return what clients may do at a broker, as in "read and write, 8 queues". */
function shape({ perm, read_queues: read, write_queues: write }) {
  const may = new Map(PERMISSIONS).get(perm) ?? "neither read nor write";
  return `${may}, ${read === write ? of(read, "queue") : `${of(read, "queue")} to read, ${count(write)} to write`}`;
}

/** Ask for the name of *topic* again, show what is lost, and delete it. */
export function askDeletion(topic) {
  const ask = ({ reason, name }, dryRun) => {
    if (name.trim() !== topic) throw new Error(`type the name of the topic, ${topic}`);
    return remove(path("topics", topic), { reason, dry_run: String(dryRun) });
  };
  confirm({
    title: `Delete topic ${topic}`,
    done: () => {
      location.hash = "#/topics";
    },
    verbs: [
      {
        name: "delete",
        label: "Delete",
        danger: true,
        sentence: "The topic and all its messages are deleted at all brokers. This cannot be undone.",
        fields: [{ name: "name", label: "Name of the topic, to confirm" }],
        command: () => ["topics", "delete", topic],
        preview: async (asked) => {
          const lost = await ask(asked, true);
          const groups = Object.entries(lost.groups);
          return [
            ["Stored messages", lost.messages === null ? "unknown" : count(lost.messages), "deleted"],
            ...groups.map(([group, lag]) => [`Group ${group}`, lag === null ? "lag unknown" : `lag ${count(lag)}`, "no such topic"]),
            ...(groups.length ? [] : [["Consumer groups", "none", "none"]]),
          ];
        },
        act: async (asked) => {
          await ask(asked, false);
          return `Deleted ${topic}`;
        },
      },
    ],
  });
}

/** Ask for a message and send it to *topic*. *sent* is called with its location. */
export function askMessage(topic, sent) {
  let place = null;
  const ask = (asked, dryRun) => post(path("topics", topic, "messages"), { ...asked, dry_run: dryRun });
  confirm({
    title: `Send a message to ${topic}`,
    done: () => sent(place),
    verbs: [
      {
        name: "send",
        label: "Send",
        sentence: "All groups of the topic receive the message.",
        fields: [
          { name: "key", label: "Message key", hint: "Selects the queue; messages of a key keep their order. Empty: any queue", read: (text) => text.trim() || undefined },
          { name: "tag", label: "Tag", read: (text) => text.trim() || undefined },
          { name: "properties", label: "Properties", rows: 2, hint: "One NAME=VALUE a line", read: propertiesOf },
          { name: "body", label: "Body", rows: 6, hint: "Text, such as JSON", read: bodyOf },
        ],
        preview: async (asked) => {
          const plan = await ask(asked, true);
          return [
            ["Queue", "–", plan.to],
            ["Size of the body", "–", bytes(plan.bytes)],
          ];
        },
        act: async (asked) => {
          place = (await ask(asked, false)).sent;
          return `Stored at ${place}`;
        },
      },
    ],
  });
}

function bodyOf(text) {
  if (!text) throw new Error("the body is empty: give a text");
  return text;
}

function propertiesOf(text) {
  const found = {};
  for (const line of text.split("\n").filter((each) => each.trim())) {
    const at = line.indexOf("=");
    if (at < 1) throw new Error(`invalid property "${line}": write NAME=VALUE`);
    found[line.slice(0, at).trim()] = line.slice(at + 1).trim();
  }
  return found;
}

/** Send a copy of *message* to its topic, after a preview. */
export function askResend(topic, message, sent) {
  let place = null;
  const ask = ({ reason }, dryRun) => post(path("topics", topic, "messages", "resend"), { reason, message: message.message, dry_run: dryRun });
  confirm({
    title: `Send ${message.message} again`,
    about: `topic ${topic}, key ${message.keys ?? "none"}, ${bytes(message.bytes)}`,
    done: () => sent(place),
    verbs: [
      {
        name: "resend",
        label: "Send",
        sentence: "A copy with the same key, tag, properties and body is stored behind all messages of its key. All groups of the topic receive it.",
        command: () => ["messages", "resend", topic, message.message],
        preview: async (asked) => {
          const plan = await ask(asked, true);
          return [["Copy of the message", "–", `in ${plan.to}`]];
        },
        act: async (asked) => {
          place = (await ask(asked, false)).sent;
          return `Stored at ${place}`;
        },
      },
    ],
  });
}
