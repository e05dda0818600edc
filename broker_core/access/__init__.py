"""Access control of brokers and nameservers: accounts, rules, and the rights of a request."""
