"""Access to a broker: accounts, rules, and what a request needs."""
