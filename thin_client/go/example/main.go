// Command example sends orders and handles them until it is interrupted: go run ./example
// 127.0.0.1:9713 billing orders
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	orderlane "github.com/orderlane/orderlane/thin_client/go"
)

type order struct {
	Customer string
	Amount   int
}

var errBankBusy = errors.New("the bank is busy")

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: example SERVERS GROUP TOPIC")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := send(ctx, os.Args[1], os.Args[3]); err != nil {
		log.Fatal(err)
	}
	if err := handle(ctx, os.Args[1], os.Args[2], os.Args[3]); err != nil {
		log.Fatal(err)
	}
}

func send(ctx context.Context, servers, topic string) error {
	producer, err := orderlane.NewProducer(servers)
	if err != nil {
		return err
	}
	defer producer.Close()
	for amount := range 10 {
		customer := fmt.Sprintf("customer-%d", amount%3)
		_, err := producer.Send(ctx, orderlane.Outgoing{
			Topic: topic,
			Key:   customer,
			Body:  fmt.Appendf(nil, `{"customer": %q, "amount": %d}`, customer, amount),
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func handle(ctx context.Context, servers, group, topic string) error {
	consumer, err := orderlane.NewConsumer(ctx, servers, group,
		orderlane.WithTopics(topic), orderlane.WithConcurrency(16))
	if err != nil {
		return err
	}
	return consumer.Run(ctx, func(ctx context.Context, message *orderlane.Message) error {
		var order order
		if err := message.JSON(&order); err != nil {
			return orderlane.Reject(err.Error()) // no retry will help
		}
		err := charge(ctx, order, message.Attempt)
		if errors.Is(err, errBankBusy) {
			return orderlane.RetryAfter(2 * time.Second)
		}
		return err
	})
}

// charge works for a moment, and stops when the lease is lost.
func charge(ctx context.Context, order order, attempt int) error {
	select {
	case <-time.After(50 * time.Millisecond):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if order.Amount == 7 && attempt == 1 {
		return errBankBusy
	}
	fmt.Printf("charged %s %d\n", order.Customer, order.Amount)
	return nil
}
