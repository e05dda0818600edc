// Package routing chooses the queue of a message. It is pure.
package routing

import (
	"strings"
	"unicode/utf16"
)

// PlainKey returns the text without surrounding blanks, as Java's String.trim defines them: all
// characters up to U+0020. Empty: no key.
func PlainKey(text string) string {
	return strings.TrimFunc(text, func(char rune) bool { return char <= ' ' })
}

// KeyHash returns Java's String.hashCode over UTF-16 units, as all producers of RocketMQ do. The
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
