// Package clock reads the clock that leases are measured by.
package clock

import "time"

var start = time.Now()

// sinceStart starts at one second: zero means "at once" to a session.
func sinceStart() time.Duration { return time.Since(start) + time.Second }
