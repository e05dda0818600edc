// Package routing says which queue a message goes to. It is pure.
package routing

import (
	"strings"
	"unicode/utf16"
)

// PlainKey is the key that a text stands for: without the blanks around it, which are those of
// Java's String.trim, everything up to U+0020. Empty: there is none.
func PlainKey(text string) string {
	return strings.TrimFunc(text, func(char rune) bool { return char <= ' ' })
}

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
