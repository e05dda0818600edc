/**
 * The conformance program, as specified in tests/conformance/clients/README.md.
 *
 * node dist/test/conformance.js '{"servers": "127.0.0.1:9713", "group": "billing"}'
 */

import { consume } from "./conformance-consume.js";
import { oneshot, produce } from "./conformance-calls.js";
import type { Options } from "./conformance-lines.js";

const options = JSON.parse(process.argv[2] ?? "{}") as Options;
const modes = { consume, produce, oneshot };

// Exit even if a handler ignores its signal.
void modes[options.mode ?? "consume"](options).then((code) => process.exit(code));
