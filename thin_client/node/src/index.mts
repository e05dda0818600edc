/** The package as an ECMAScript module: the same classes as those of the CommonJS module. */

export * from "./index.js";
