"""Examples of each verb, shown at the end of its ``--help``. A test parses all of them."""

from __future__ import annotations

from collections.abc import Mapping

import typer

_WHY = "--reason 'ticket 4711'"

#: Examples by verb, without the leading ``orderlane``. Verbs on keys and groups have theirs in
#: their table.
EXAMPLES: dict[str, tuple[str, ...]] = {
    "up": ("up", "up --settings orderlane.yaml --data /var/lib/orderlane --workers 2"),
    "nameserver": ("nameserver --listen 0.0.0.0:9876",),
    "broker": ("broker --data /var/lib/orderlane --nameserver ns:9876 --listen 0.0.0.0:10911",),
    "proxy": ("proxy --settings orderlane.yaml --nameserver ns:9876",),
    "produce": (
        "produce orders --count 1000 --keys 50",
        "produce orders --key customer-17 < lines.txt",
        "produce orders --keyed --tag urgent < lines.txt",
    ),
    "consume": (
        "consume billing",
        "consume billing orders --exec ./handle.sh --concurrency 8",
    ),
    "topics ls": ("topics ls", "topics --all -o json"),
    "topics describe": ("topics describe orders", "topics describe orders -o json"),
    "topics create": (
        f"topics create orders --queues 16 {_WHY}",
        f"topics create orders --broker broker-a --perm RW --dry-run {_WHY}",
    ),
    "topics update": (
        f"topics update orders --perm RW {_WHY}",
        f"topics update orders --queues 32 --dry-run {_WHY}",
    ),
    "topics delete": ("topics delete orders --dry-run", f"topics delete orders {_WHY} --yes"),
    "messages ls": (
        "messages ls orders",
        "messages ls orders --key customer-17",
        "messages ls orders --from-time 2026-03-01T00:00:00Z --grep refund --limit 100",
        "messages ls orders --queue broker-a_0 --from-offset 812",
    ),
    "messages tail": ("messages tail orders", "messages tail orders --grep refund -o json"),
    "messages show": (
        "messages show orders broker-a_0@17",
        "messages show orders broker-a_0@17 --group billing --body hex",
    ),
    "messages export": ("messages export orders --from-time 2026-03-01T00:00:00Z > orders.jsonl",),
    "messages resend": (
        f"messages resend orders broker-a_0@17 --dry-run {_WHY}",
        f"messages resend orders broker-a_0@17 {_WHY} --yes",
    ),
    "brokers ls": ("brokers ls", "brokers ls -o wide"),
    "lag": ("lag billing", "lag billing --topic orders --http proxy-1:9714 -o json"),
    "top": ("top", "top billing --http proxy-1:9714,proxy-2:9714", "top --once"),
    "demo": ("demo", "demo --json"),
    "doctor": (
        "doctor",
        "doctor billing",
        "doctor billing --http proxy-1:9714,proxy-2:9714 --nameserver ns:9876 -o json",
        "doctor --settings orderlane.yaml",
    ),
    "completion": ("completion bash > ~/.local/share/bash-completion/completions/orderlane",),
    "token": ("token billing-app",),
    "verify-history": ("verify-history history", "verify-history history -o json"),
    "bench all": ("bench all", "bench all --full --rounds 3"),
    "bench takeover": ("bench takeover --rounds 3",),
    "bench blackout": ("bench blackout --stuck-messages 100000",),
    "bench bulk": ("bench bulk --messages 1000000",),
    "bench spark": ("bench spark --rows 1000000", "bench spark --vs kafka --rounds 5"),
    "bench spark-planning": ("bench spark-planning --queues 10000",),
    "store check": ("store check /var/lib/orderlane > report.json",),
    "store export": ("store export --data /var/lib/orderlane --to /backup/monday",),
    "store import": ("store import --from /backup/monday --data /var/lib/orderlane-2",),
    "groups ls": ("groups ls", "groups -o json"),
    "groups describe": ("groups describe billing",),
    "groups create": (f"groups create billing --file billing.yaml {_WHY} --dry-run",),
    "groups update": (
        f"groups update billing --set orders.max_rate=200 {_WHY}",
        f"groups update billing --file billing.yaml --expect 3 {_WHY}",
    ),
    "groups sign": ("groups sign", f"groups sign billing {_WHY}"),
    "groups delete": (f"groups delete billing {_WHY} --dry-run",),
    "retention show": ("retention show", "retention show --nameserver ns:9876 -o json"),
    "retention confirm-clock": (f"retention confirm-clock broker-a {_WHY}",),
    "audit ls": ("audit ls", "audit ls --group billing --limit 20"),
    "audit tail": ("audit tail --group billing",),
    "key parked": ("key parked billing", "key parked billing --reason timeout"),
    "key show": ("key show billing customer-17",),
    "key history": ("key history billing customer-17 --limit 20",),
    "keys top": ("keys top billing", "keys top billing --limit 5 -o json"),
    "keys hot": ("keys hot billing",),
    "keys blocked": ("keys blocked billing",),
    "keys paused": ("keys paused billing",),
    "dead-letters ls": (
        "dead-letters ls billing --key customer-17",
        "dead-letters ls billing --since 2026-03-01T00:00:00Z --reason timeout",
    ),
    "dead-letters show": ("dead-letters show billing broker-a_0@42",),
    "dead-letters export": ("dead-letters export billing --all > dead-letters.jsonl",),
    "dead-letters redrive": (
        "dead-letters redrive billing --dry-run",
        f"dead-letters redrive billing --rate 10 {_WHY} --yes",
    ),
    "dead-letters stop": (f"dead-letters stop billing {_WHY}",),
    "leases ls": ("leases ls billing", "leases ls billing --key customer-17"),
    "leases show": ("leases show billing orders:broker-a_3:812:15",),
    "leases extend": (f"leases extend billing orders:broker-a_3:812:15 --ms 60000 {_WHY}",),
    "leases revoke": (f"leases revoke billing orders:broker-a_3:812:15 {_WHY}",),
    "offsets show": ("offsets show billing --topic orders",),
    "offsets reset": (
        f"offsets reset billing --to-time 2026-03-01T00:00:00Z --dry-run {_WHY}",
        f"offsets reset billing --to-earliest {_WHY}",
        f"offsets reset billing --topic orders --queue broker-a_0 --to-offset 100 {_WHY} --yes",
    ),
    "offsets skip": (f"offsets skip billing --topic orders --queue broker-a_0 --offset 17 {_WHY}",),
    "owners ls": ("owners ls", "owners ls billing"),
    "owners drain": (f"owners drain proxy-1:9714 {_WHY}",),
    "owners resume": (f"owners resume proxy-1:9714 {_WHY}",),
    "owners handoff": (f"owners handoff billing orders broker-a_0 proxy-2:9714 {_WHY}",),
    "order-key get": ("order-key get billing",),
    "order-key lint": (
        "order-key lint billing --sample 100000",
        "order-key lint billing --candidate KEY --candidate '$.order.id' -o json",
    ),
    "order-key simulate": (
        "order-key simulate billing --workers 64 --service-ms p50=3,p99=80",
        "order-key simulate billing --service-ms 5 --candidate KEY --candidate '$.order.id'",
    ),
    "order-key rollout": (
        "order-key rollout billing '$.order.id' --reason 'hot customers'",
        "order-key rollout billing KEY --missing dead_letter --reason 'ids are there now'",
    ),
    "spark archive": (
        "spark archive orders /data/orders --group archive",
        "spark archive orders /data/orders --group archive --format delta --target-file-size 128m"
        " --schema schemas.json",
        "spark archive orders lake.orders --group archive --format iceberg"
        " --catalog type=rest --catalog uri=http://catalog:8181",
    ),
    "spark compact": (
        "spark compact /data/orders",
        "spark compact /data/orders --format delta --delete-before 2026-01-31 --retention 168",
    ),
    "spark backfill": (
        "spark backfill /data/orders orders --rate 5000",
        "spark backfill /data/orders orders --format delta --progress s3a://data/backfill.json",
    ),
    "spark package": ("spark package orderlane.zip",),
    "spark key-profile": (
        "spark key-profile --topic orders --candidate KEY --candidate $.customer --out /data/keys",
    ),
    "spark audit": ("spark audit /data/histories --out /data/findings",),
}


def all_examples() -> dict[str, tuple[str, ...]]:
    """Return the examples of all verbs, including those on keys and groups."""
    # Other verbs start sooner without it.
    from proxy.operator.key_table import GROUP_VERBS, KEY_VERBS

    of_key = {
        f"key {verb.name}": tuple(
            f"key {verb.name} billing {example.format(why=_WHY)}" for example in verb.examples
        )
        for verb in KEY_VERBS
    }
    of_group = {
        f"groups {verb.name}": tuple(
            f"groups {verb.name} billing {example.format(why=_WHY)}" for example in form.examples
        )
        for verb, form in GROUP_VERBS
    }
    return {**EXAMPLES, **of_key, **of_group}


def add_examples(app: typer.Typer, verb: str) -> None:
    """Append examples to the help of *verb*, just added to *app*, and of its subcommands."""
    known = all_examples() if verb in ("key", "groups") else EXAMPLES
    for each in app.registered_commands:
        if each.name == verb:
            each.epilog = _epilog(known, verb)
    for group in app.registered_groups:
        if group.name == verb and group.typer_instance is not None:
            for each in group.typer_instance.registered_commands:
                each.epilog = _epilog(known, f"{verb} {each.name or _name_of(each.callback)}")


def _name_of(function: object) -> str:
    """Return typer's default name for the verb of *function*."""
    return str(getattr(function, "__name__", "")).lower().replace("_", "-")


def _epilog(known: Mapping[str, tuple[str, ...]], verb: str) -> str | None:
    """Return one paragraph per line, since typer folds the lines of a paragraph."""
    lines = [f"orderlane {each}" for each in known.get(verb, ())]
    return "\n\n".join(["Examples:", *lines]) if lines else None
