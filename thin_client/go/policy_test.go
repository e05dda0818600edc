package orderlane

import (
	"bytes"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// ownFiles returns all files but the generated ones.
func ownFiles(t *testing.T) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if entry.IsDir() && entry.Name() == "gen" {
			return filepath.SkipDir
		}
		if filepath.Ext(path) == ".go" {
			found = append(found, path)
		}
		return err
	})
	if err != nil || len(found) < 20 {
		t.Fatalf("%d files, %v", len(found), err)
	}
	return found
}

func TestFilesAreFormattedAndNotTooLong(t *testing.T) {
	for _, path := range ownFiles(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		formatted, err := format.Source(text)
		if err != nil || !bytes.Equal(formatted, text) {
			t.Errorf("%s: run gofmt (%v)", path, err)
		}
		lines := strings.Split(string(text), "\n")
		if len(lines) > 401 {
			t.Errorf("%s has %d lines", path, len(lines))
		}
		for n, line := range lines {
			if len([]rune(line)) > 100 {
				t.Errorf("%s:%d is longer than 100 columns", path, n+1)
			}
		}
	}
}

// The session has no clock, network or locks: time is an argument.
func TestTheSessionIsPure(t *testing.T) {
	allowed := []string{
		"cmp", "errors", "fmt", "math", "slices", "sync/atomic", "time",
		"github.com/orderlane/orderlane/thin_client/go/internal/gen/consumer",
	}
	for _, path := range ownFiles(t) {
		if filepath.Dir(path) != filepath.Join("internal", "session") ||
			strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, each := range file.Imports {
			if name, _ := strconv.Unquote(each.Path.Value); !slices.Contains(allowed, name) {
				t.Errorf("%s imports %s", path, name)
			}
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(text, []byte("time.Now")) {
			t.Errorf("%s reads the clock", path)
		}
	}
}
