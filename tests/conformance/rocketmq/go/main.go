// RocketMQ's Go client: see other_clients.py.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

var printing sync.Mutex

func say(what any) {
	line, err := json.Marshal(what)
	must(err)
	printing.Lock()
	defer printing.Unlock()
	fmt.Println(string(line))
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func message(topic string, number int) *primitive.Message {
	made := primitive.NewMessage(topic, []byte(fmt.Sprintf("body-%d", number)))
	key := fmt.Sprintf("key-%d", number%4)
	made.WithKeys([]string{key})
	made.WithTag([]string{"even", "odd"}[number%2])
	made.WithShardingKey(key)
	made.WithProperty("number", strconv.Itoa(number))
	return made
}

func send(nameserver, topic, group string, count int) {
	ours, err := rocketmq.NewProducer(
		producer.WithNameServer([]string{nameserver}),
		producer.WithGroupName(group),
		producer.WithQueueSelector(producer.NewHashQueueSelector()),
	)
	must(err)
	must(ours.Start())
	for number := 0; number < count; number++ {
		_, err := ours.SendSync(context.Background(), message(topic, number))
		must(err)
	}
	must(ours.Shutdown())
	say(map[string]any{"sent": count})
}

func consume(nameserver, topic, group, expression string, orderly bool) {
	ours, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer([]string{nameserver}),
		consumer.WithGroupName(group),
		consumer.WithConsumerOrder(orderly),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	must(err)
	wanted := consumer.MessageSelector{Type: consumer.TAG, Expression: expression}
	must(ours.Subscribe(topic, wanted, func(_ context.Context, found ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, each := range found {
			say(map[string]any{
				"key":    each.GetKeys(),
				"tag":    each.GetTags(),
				"body":   string(each.Body),
				"number": each.GetProperty("number"),
				"queue":  each.Queue.QueueId,
				"offset": each.QueueOffset,
			})
		}
		return consumer.ConsumeSuccess, nil
	}))
	must(ours.Start())
	time.Sleep(10 * time.Minute)
}

// decides commits every fourth message, rolls every fourth one back, and answers checks for the
// rest.
type decides struct{}

func number(of string) int {
	found, err := strconv.Atoi(of)
	must(err)
	return found
}

func (decides) ExecuteLocalTransaction(each *primitive.Message) primitive.LocalTransactionState {
	switch number(each.GetProperty("number")) % 4 {
	case 0:
		return primitive.CommitMessageState
	case 1:
		return primitive.RollbackMessageState
	}
	return primitive.UnknowState
}

func (decides) CheckLocalTransaction(each *primitive.MessageExt) primitive.LocalTransactionState {
	say(map[string]any{"asked": each.GetProperty("number")})
	if number(each.GetProperty("number"))%4 == 2 {
		return primitive.CommitMessageState
	}
	return primitive.RollbackMessageState
}

func transact(nameserver, topic, group string, count int) {
	ours, err := rocketmq.NewTransactionProducer(
		decides{},
		producer.WithNameServer([]string{nameserver}),
		producer.WithGroupName(group),
	)
	must(err)
	must(ours.Start())
	for number := 0; number < count; number++ {
		_, err := ours.SendMessageInTransaction(context.Background(), message(topic, number))
		must(err)
	}
	say(map[string]any{"sent": count})
	time.Sleep(10 * time.Minute)
}

func main() {
	rlog.SetLogLevel("fatal")
	what, nameserver, topic, group, argument := os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5]
	switch what {
	case "send":
		send(nameserver, topic, group, number(argument))
	case "transactions":
		transact(nameserver, topic, group, number(argument))
	default:
		consume(nameserver, topic, group, argument, what == "orderly")
	}
}
