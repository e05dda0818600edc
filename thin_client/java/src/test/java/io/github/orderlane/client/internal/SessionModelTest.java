package io.github.orderlane.client.internal;

import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

/**
 * A session against a naive model, with random pulls, ends, losses and failures; {@code
 * -Dorderlane.seed=N} repeats one story.
 */
class SessionModelTest {
    private static final int STORIES = 600;
    private static final int STEPS = 80;

    @Test
    void sessionKeepsItsRulesInAnyOrderOfEvents() {
        Long only = Long.getLong("orderlane.seed");
        for (long seed = 1; seed <= STORIES; seed++) {
            long played = only == null ? seed : only;
            SessionModel model = new SessionModel(played, played % 2 == 0);
            try {
                for (int step = 0; step < STEPS; step++) {
                    model.step();
                    model.check();
                }
                model.end();
            } catch (RuntimeException | Error error) {
                throw new AssertionError(
                        "story " + played + " failed:\n" + String.join("\n", model.told), error);
            }
            if (only != null) {
                return;
            }
        }
    }

    /** Rules broken on purpose fail the model. */
    @Test
    void modelNoticesABrokenRule() {
        for (String broken : new String[] {"verdicts", "deadline"}) {
            boolean noticed = false;
            for (long seed = 1; seed <= STORIES && !noticed; seed++) {
                SessionModel model = new SessionModel(seed, false);
                try {
                    for (int step = 0; step < STEPS; step++) {
                        model.step();
                        if (broken.equals("verdicts")) {
                            model.session.homes.values().forEach(
                                    home -> home.verdicts = new Verdicts());
                        } else {
                            model.session.homes.values().forEach(home -> home.extendAtNs = null);
                        }
                        model.check();
                    }
                    model.end();
                } catch (RuntimeException | Error error) {
                    noticed = true;
                }
            }
            assertTrue(noticed, broken);
        }
    }
}
