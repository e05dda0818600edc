"""Scenarios: faults and changes of a cluster, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bench.simulation.world import Outcome, World


def run_all(world: World, *, say: Callable[[str], None] = lambda _: None) -> Iterator[Outcome]:
    """Run all scenarios in order; each starts after the previous one has settled."""
    for scenario in (_cold_start, _one_more, _one_drained, *_KILLS, _rolling, _partition, _broker):
        world.begin()
        outcome = scenario(world)
        if outcome is not None:
            say(f"{outcome.scenario}: {outcome.settled_s:.1f} s, {outcome.moves:,} moves")
            yield outcome


def _cold_start(world: World) -> Outcome:
    model = world.model
    for _ in range(model.proxies):
        world.events.after(int(world.chance.random() * model.cold_start_s * 1e9), world.start_proxy)
    world.run(model.cold_start_s)
    world.run_until_quiet()
    return world.outcome("cold start", least_moves=model.queues)


def _one_more(world: World) -> Outcome:
    world.start_proxy()
    world.run_until_quiet()
    least = world.model.queues // len(world.live())
    return world.outcome("one proxy more", least_moves=least)


def _one_drained(world: World) -> Outcome:
    leaver = world.chance.choice(world.live())
    least = len(leaver.owned)
    leaver.close()
    world.run_until_quiet()
    return world.outcome("one proxy drained", least_moves=least)


def _kill(part: float) -> Callable[[World], Outcome]:
    def scenario(world: World) -> Outcome:
        count = max(1, int(world.model.proxies * part))
        victims = world.chance.sample(world.live(), count)
        least = sum(len(victim.owned) for victim in victims)
        for victim in victims:
            victim.kill()
        world.run_until_quiet()
        return world.outcome(f"{count} killed", least_moves=least)

    return scenario


_KILLS = tuple(_kill(part) for part in (0.001, 0.01, 0.1))


def _rolling(world: World) -> Outcome:
    """Drain and restart one proxy in a hundred at a time; twice."""
    live = sorted(world.live(), key=lambda each: each.name)
    size = max(1, len(live) // 100)
    batches = [live[at : at + size] for at in range(0, len(live), size)][:2]
    least = 0
    for batch in batches:
        hosts = [_host(each.name) for each in batch]
        least += 2 * sum(len(each.owned) for each in batch)
        for each in batch:
            each.close()
        world.run(5)
        for host in hosts:
            world.start_proxy(host)
        world.run(10)
    world.run_until_quiet()
    return world.outcome(f"{len(batches)} times {size} restarted", least_moves=least)


def _partition(world: World) -> Outcome:
    count = max(1, world.model.proxies // 20)
    victims = world.chance.sample(world.live(), count)
    least = 2 * sum(len(victim.owned) for victim in victims)
    world.cut(victims, off=True)
    world.run(30)
    world.cut(victims, off=False)
    world.run_until_quiet()
    return world.outcome(f"{count} cut off for 30 s", least_moves=least)


def _broker(world: World) -> Outcome:
    name = world.chance.choice(sorted(world.brokers))
    world.stop_broker(name)
    world.run(10)
    world.start_broker(name)
    world.run_until_quiet()
    return world.outcome("a broker down for 10 s", least_moves=0)


def _host(name: str) -> int:
    parts = name.partition("@")[0].split(".")
    return sum(int(part) << 8 * (3 - place) for place, part in enumerate(parts)) & 0xFFFFFF
