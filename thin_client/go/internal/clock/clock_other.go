//go:build !linux

package clock

import "time"

// Now returns the time of a monotonic clock.
func Now() time.Duration { return sinceStart() }
