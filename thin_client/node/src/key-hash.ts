/** Which queue a key goes to: Java's `String.hashCode`, as all producers of RocketMQ do it. */

/**
 * Java's `String.hashCode`: signed 32 bits, over the UTF-16 units. The queue is the absolute value
 * of its remainder by the number of queues.
 */
export function keyHash(key: string): number {
  let hash = 0;
  for (let place = 0; place < key.length; place++) {
    hash = (Math.imul(31, hash) + key.charCodeAt(place)) | 0;
  }
  return hash;
}
