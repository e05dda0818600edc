package orderlane

import (
	"time"

	"orderlane/internal/clock"
)

func now() time.Duration { return clock.Now() }

// wallTime is what a moment of now is on the wall.
func wallTime(at time.Duration) time.Time { return time.Now().Add(at - now()) }
