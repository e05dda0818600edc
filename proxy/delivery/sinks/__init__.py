"""The sinks: a module each, imported where a topic has one."""
