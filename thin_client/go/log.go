package orderlane

import (
	"context"
	"fmt"
	"log/slog"
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
