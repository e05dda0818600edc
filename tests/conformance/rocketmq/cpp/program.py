"""RocketMQ's C++ client, in the wheel that its Python binding ships: see ``other_clients.py``.

It runs in a separate environment, and needs nothing but that wheel.
"""

import json
import sys
import time

from rocketmq.client import Message, Producer, PushConsumer


def send(nameserver, topic, group, count):
    producer = Producer(group)
    producer.set_namesrv_addr(nameserver)
    producer.start()
    for number in range(count):
        key = number % 4
        message = Message(topic)
        message.set_keys(f"key-{key}")
        message.set_tags("odd" if number % 2 else "even")
        message.set_property("number", str(number))
        message.set_body(f"body-{number}")
        producer.send_orderly(message, key, queue_selector=lambda queues, _, arg: arg % queues)
    producer.shutdown()
    print(json.dumps({"sent": count}), flush=True)


def consume(nameserver, topic, group, expression, *, orderly):
    def handle(message):
        said = {
            "key": message.keys.decode(),
            "tag": message.tags.decode(),
            "body": message.body.decode(),
            "number": message.get_property("number").decode(),
            "queue": message.queue_id,
            "offset": message.queue_offset,
        }
        print(json.dumps(said), flush=True)

    consumer = PushConsumer(group, orderly=orderly)
    consumer.set_namesrv_addr(nameserver)
    consumer.subscribe(topic, handle, expression)
    consumer.start()
    time.sleep(600)


def main():
    what, nameserver, topic, group, argument = sys.argv[1:]
    if what == "send":
        send(nameserver, topic, group, int(argument))
    else:
        consume(nameserver, topic, group, argument, orderly=what == "orderly")


main()
