/** The canonical key, and its queue: Java's `String.hashCode`, as for all producers of RocketMQ. */

/** The text without surrounding blanks, as Java's `String.trim` defines them. */
export function plainKey(text: string): string {
  let begin = 0;
  let end = text.length;
  while (begin < end && text.charCodeAt(begin) <= 0x20) begin++;
  while (begin < end && text.charCodeAt(end - 1) <= 0x20) end--;
  return text.slice(begin, end);
}

/**
 * Java's `String.hashCode`: signed 32 bits over UTF-16 units. The queue is the absolute value of
 * its remainder by the number of queues.
 */
export function keyHash(key: string): number {
  let hash = 0;
  for (let place = 0; place < key.length; place++) {
    hash = (Math.imul(31, hash) + key.charCodeAt(place)) | 0;
  }
  return hash;
}
