// Package clock reads the clock by which leases are counted.
package clock

import "time"

var start = time.Now()

// sinceStart counts from a second after zero: zero means "at once" to a session.
func sinceStart() time.Duration { return time.Since(start) + time.Second }
