"""A proxy that was drained serves clients once it is resumed."""

from __future__ import annotations

import asyncio

from tests.world.stage import Stage, play

GROUP = "billing"


def test_clients_are_served_after_a_resume() -> None:
    async def main(stage: Stage) -> None:
        groups = [{"name": GROUP, "topics": [{"name": "orders"}]}]
        await stage.start(groups=groups, topics={"orders": 1})
        stage.consume("consumer", GROUP)
        await stage.send("orders", ["a", "b"], 20)
        await stage.until(lambda: len(stage.of("finish", group=GROUP)) == 20)
        await stage.act("/api/owners/drain")
        await asyncio.sleep(5)
        await stage.act("/api/owners/resume")
        await stage.send("orders", ["a", "b"], 20)
        await stage.until(lambda: len(stage.of("finish", group=GROUP)) == 40)

    assert play(main) == {}


def test_of_two_operators_who_resume_it_one_is_told_that_it_serves() -> None:
    async def main(stage: Stage) -> None:
        groups = [{"name": GROUP, "topics": [{"name": "orders"}]}]
        await stage.start(groups=groups, topics={"orders": 1})
        stage.consume("consumer", GROUP)
        for verb, refusal in (
            ("drain", "this proxy is already drained: a test"),
            ("resume", "this proxy is not drained"),
        ):
            answers = await asyncio.gather(
                *(
                    stage.world.http(
                        stage.world.proxies[0],
                        f"/api/owners/{verb}",
                        {"reason": "a test"},
                        timeout_s=60,
                    )
                    for _ in range(2)
                )
            )
            done, refused = sorted(answers, key=lambda answer: int(answer[0]))
            assert (done[0], refused[0], refused[1]["error"]) == (200, 409, refusal)
            await asyncio.sleep(5)
        await stage.send("orders", ["a", "b"], 20)
        await stage.until(lambda: len(stage.of("finish", group=GROUP)) == 20)

    assert play(main) == {}
