"""Access control of a broker: accounts, rules, and the rights that a request needs."""
