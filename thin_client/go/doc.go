// Package orderlane pulls, handles and acks the messages of a consumer group from an orderlane
// proxy, and sends messages. It never deals with offsets, rebalancing or brokers.
//
// A Consumer handles messages of different keys in parallel, and those of one key in order:
//
//	consumer, err := orderlane.NewConsumer(ctx, "proxy:9713", "billing",
//		orderlane.WithTopics("orders"))
//	if err != nil {
//		return err
//	}
//	err = consumer.Run(ctx, func(ctx context.Context, message *orderlane.Message) error {
//		return charge(ctx, message.Body) // nil acks, an error means retry
//	})
//
// A Producer sends messages, those of one key to one queue. A Puller makes single calls.
package orderlane
