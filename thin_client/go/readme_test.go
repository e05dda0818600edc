package orderlane

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Readers' code is in a separate module, as in the README.
func TestTheCodeOfTheReadmeCompiles(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
	if len(blocks) != 7 {
		t.Fatalf("got %d blocks of code: adapt the indexes below", len(blocks))
	}
	folder := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	ours, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	const path = "github.com/orderlane/orderlane/thin_client/go"
	module := strings.Replace(string(ours), "module "+path, "module quickstart", 1)
	module += "\nrequire " + path + " v0.0.0\nreplace " + path + " => " + here + "\n"
	write("go.mod", module)
	write("go.sum", string(sums))
	write("main.go", blocks[0][1])
	write("forms.go", formsOf(blocks[1][1], blocks[2][1], blocks[3][1], blocks[4][1], blocks[5][1]))
	command := exec.Command("go", "vet", "-mod=mod", ".")
	command.Dir = folder
	command.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	if said, err := command.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
}

// formsOf wraps fragments in functions that declare the names they use.
func formsOf(handler, batches, loop, twice, secure string) string {
	const head = `package main

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"time"

	orderlane "github.com/orderlane/orderlane/thin_client/go"
)

type Order struct{}

var (
	ErrBusy = errors.New("busy")
	db      *sql.DB
	_       = time.Second
	_       = os.Getenv
)
`
	text := head
	for n, form := range []struct{ charge, code string }{
		{"func(context.Context, Order) error", handler},
		{"func(context.Context, *orderlane.Message) error", batches},
		{"func(context.Context, *orderlane.Message) error", loop},
		{"func(context.Context, *sql.Tx, *orderlane.Message) error", twice},
		{"any", strings.Replace(secure, "consumer, err :=", "consumer, err =", 1)},
	} {
		text += fmt.Sprintf("\nfunc form%d(ctx context.Context, consumer *orderlane.Consumer,"+
			" charge %s) (err error) {\n%sreturn err\n}\n", n, form.charge, form.code)
	}
	return text
}
