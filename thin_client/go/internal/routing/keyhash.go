// Package routing says which queue a message goes to. It is pure.
package routing

import "unicode/utf16"

// KeyHash is Java's String.hashCode, as all producers of RocketMQ do it: over UTF-16 units. The
// queue is the absolute value of its remainder by the number of queues.
func KeyHash(key string) int32 {
	var hash int32
	for _, char := range key {
		if char < 0x10000 {
			hash = 31*hash + char
			continue
		}
		high, low := utf16.EncodeRune(char)
		hash = 31*(31*hash+high) + low
	}
	return hash
}
