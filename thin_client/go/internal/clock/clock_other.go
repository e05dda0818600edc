//go:build !linux

package clock

import "time"

// Now is a moment on a monotonic clock.
func Now() time.Duration { return sinceStart() }
