package orderlane

import (
	"time"

	"github.com/orderlane/orderlane/thin_client/go/internal/clock"
)

func now() time.Duration { return clock.Now() }

// wallTime converts a moment of now to wall-clock time.
func wallTime(at time.Duration) time.Time { return time.Now().Add(at - now()) }
