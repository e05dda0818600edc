package orderlane

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
)

// carefulHandler contains panics of the application's log handler, for example about an error whose
// Error method panics: they cost a line, not the process.
type carefulHandler struct{ slog.Handler }

func careful(logger *slog.Logger) *slog.Logger {
	return slog.New(carefulHandler{logger.Handler()})
}

func (h carefulHandler) Handle(ctx context.Context, record slog.Record) (err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("the log handler panicked: %v", panicked)
		}
	}()
	return h.Handler.Handle(ctx, record)
}

// tell calls a hook or a tracer. A panic in it is logged and otherwise ignored.
func (s *settings) tell(hook func()) {
	defer func() {
		if panicked := recover(); panicked != nil {
			s.logger.Error("a hook panicked",
				"panic", panicked, "stack", string(debug.Stack()))
		}
	}()
	hook()
}

func (c *Consumer) tell(hook func()) { c.settings.tell(hook) }

// tellApart is tell for the goroutines of the feeder, which runtime.Goexit in a hook must not end.
func (c *Consumer) tellApart(hook func()) {
	told := make(chan struct{})
	go func() {
		defer close(told)
		c.tell(hook)
	}()
	<-told
}
