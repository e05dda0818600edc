package routing

import (
	"encoding/json"
	"os"
	"testing"
)

// All clients and the proxy share these vectors.
func TestKeyHashMatchesTheSharedVectors(t *testing.T) {
	text, err := os.ReadFile("../../../../tests/conformance/key_hash_vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct {
		Key  string
		Hash int32
	}
	if err := json.Unmarshal(text, &vectors); err != nil || len(vectors) < 10 {
		t.Fatalf("%d vectors, %v", len(vectors), err)
	}
	for _, vector := range vectors {
		if got := KeyHash(vector.Key); got != vector.Hash {
			t.Errorf("%q: got %d, want %d", vector.Key, got, vector.Hash)
		}
	}
}

const document = `{
	"id": 7, "float": 7.0, "tenth": 0.1, "small": 1e-7, "tiny": 0.00001234, "large": 1.5e300,
	"text": "a\"b", "yes": true, "nothing": null, "max": 18446744073709551615,
	"above": 18446744073709551616,
	"negative": -3.25, "e": 12e2, "list": [1, {"z": 1, "a": "x\n\u0001é"}],
	"größe-1": "x", "a b": {"c": ["d"]}
}`

// The expected texts are those the proxy computes for the same bodies.
func TestAPathsKeyIsCanonical(t *testing.T) {
	keys := map[string]string{
		"$.id": "7", "$.float": "7", "$.tenth": "0.1", "$.small": "1e-7", "$.tiny": "0.00001234",
		"$.large": "1.5e+300", "$.text": `a"b`, "$.yes": "true", "$.max": "18446744073709551615",
		"$.above": "1.8446744073709552e+19", "$.negative": "-3.25", "$.e": "1200",
		"$.list":            `[1,{"a":"x\n\u0001é","z":1}]`,
		"$.list[1].a":       "x\n\x01é",
		"$['a b'].c[0]":     "d",
		`$["a b"]['c']`:     `["d"]`,
		"$.größe-1":         "x",
		"$['id']":           "7",
		"$['list'][1]['z']": "1",
	}
	for text, want := range keys {
		path, err := ParsePath(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, found, err := path.Key([]byte(document)); !found || got != want || err != nil {
			t.Errorf("%s: got %q, %t, %v, want %q", text, got, found, err, want)
		}
	}
}

func TestAPathWithoutAValueHasNoKey(t *testing.T) {
	nowhere := []string{"$.nothing", "$.none", "$.id.x", "$.list[2]", "$.id[0]", "$.list.x"}
	for _, text := range nowhere {
		path, err := ParsePath(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, found, err := path.Key([]byte(document)); found || err != nil {
			t.Errorf("%s: got %q", text, got)
		}
	}
}

func TestAnInvalidJSONBodyIsAnError(t *testing.T) {
	path, _ := ParsePath("$.id")
	bodies := []string{"", "no JSON", `{"id": 7} more`, "{\"id\": 7, \"x\": \"\xff\"}"}
	for _, body := range bodies {
		if _, _, err := path.Key([]byte(body)); err == nil {
			t.Errorf("%s was accepted", body)
		}
	}
}

func TestInvalidPathsAreRefused(t *testing.T) {
	others := []string{"", "$", "id", "$.a..b", "$.a[*]", "$.a[-1]", "$.a[?(@.b)]",
		"$.a\n", "$.a[99999999999999999999]"}
	for _, text := range others {
		if _, err := ParsePath(text); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}

// The vectors for the texts of keys and JSON values, shared by the proxy and all clients.
func TestKeysMatchTheSharedVectors(t *testing.T) {
	text, err := os.ReadFile("../../../../tests/conformance/key_vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors struct {
		Keys []struct {
			Text, Key string
			Hash      int32
		}
		Values []struct {
			Body, Path string
			Key        *string
			Hash       int32
			Refused    bool
		}
	}
	if err := json.Unmarshal(text, &vectors); err != nil || len(vectors.Values) < 100 {
		t.Fatalf("%d vectors, %v", len(vectors.Values), err)
	}
	for _, vector := range vectors.Keys {
		got := PlainKey(vector.Text)
		if got != vector.Key || KeyHash(got) != vector.Hash {
			t.Errorf("%q: got %q, want %q", vector.Text, got, vector.Key)
		}
	}
	for _, vector := range vectors.Values {
		path, err := ParsePath(vector.Path)
		if err != nil {
			t.Fatal(err)
		}
		got, found, err := path.Key([]byte(vector.Body))
		switch {
		case vector.Refused:
			if err == nil {
				t.Errorf("%.80q at %s: got %q, want an error", vector.Body, vector.Path, got)
			}
		case err != nil || found != (vector.Key != nil):
			t.Errorf("%.80q at %s: got %q, %t, %v", vector.Body, vector.Path, got, found, err)
		case found && (got != *vector.Key || KeyHash(got) != vector.Hash):
			t.Errorf("%.80q at %s: got %q, want %q", vector.Body, vector.Path, got, *vector.Key)
		}
	}
}
