package routing

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

var pathStep = regexp.MustCompile(
	`^(?:\.([\pL_][\pL\pN_-]*)|\[([0-9]+)\]|\['([^'\\]*)'\]|\["([^"\\]*)"\])`)

// maxKeyDepth limits nested lists and objects in a key.
const maxKeyDepth = 100

// Path points to a value in a JSON document.
type Path struct {
	text  string
	steps []step
}

type step struct {
	name    string
	index   int
	isIndex bool
}

// ParsePath parses a path of names and indexes, such as $.order.lines[0]['sku'].
func ParsePath(text string) (*Path, error) {
	path := &Path{text: text}
	rest, found := strings.CutPrefix(text, "$")
	for found && rest != "" {
		match := pathStep.FindStringSubmatch(rest)
		if match == nil {
			break
		}
		rest = rest[len(match[0]):]
		if match[2] == "" {
			path.steps = append(path.steps, step{name: match[1] + match[3] + match[4]})
			continue
		}
		index, err := strconv.Atoi(match[2])
		if err != nil {
			return nil, fmt.Errorf("%q has an index that is out of range", text)
		}
		path.steps = append(path.steps, step{index: index, isIndex: true})
	}
	if rest != "" || len(path.steps) == 0 {
		return nil, fmt.Errorf("%q is not a valid path for a producer: expected only names and"+
			" indexes, such as $.order.lines[0]['sku']", text)
	}
	return path, nil
}

// Key returns the text of the value at the path in body: a string without surrounding blanks, any
// other value as canonical JSON, as proxies build order keys. found is false if there is no such
// value or it is null. It is an error if body is not JSON or the value is nested too deeply.
func (p *Path) Key(body []byte) (key string, found bool, err error) {
	value, err := decode(body)
	if err != nil {
		return "", false, fmt.Errorf("cannot read %s: the body is not JSON: %w", p.text, err)
	}
	for _, step := range p.steps {
		if step.isIndex {
			list, _ := value.([]any)
			if step.index >= len(list) {
				return "", false, nil
			}
			value = list[step.index]
			continue
		}
		object, _ := value.(map[string]any)
		value = object[step.name]
	}
	switch value := value.(type) {
	case nil:
		return "", false, nil
	case string:
		return PlainKey(value), true, nil
	}
	if !fits(value, maxKeyDepth) {
		return "", false, fmt.Errorf(
			"the value at %s nests more than %d lists and objects", p.text, maxKeyDepth)
	}
	return string(appendCanonical(nil, value)), true, nil
}

// decode parses a body as strictly as proxies do.
func decode(body []byte) (value any, err error) {
	if !utf8.Valid(body) {
		return nil, errors.New("it is not UTF-8")
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, errors.New("there is data after its end")
	}
	if hasHalfPair(body) {
		return nil, errors.New("a string holds half a surrogate pair")
	}
	return value, checkNumbers(value)
}

// hasHalfPair reports whether a JSON text escapes half a surrogate pair, which Go's decoder would
// replace.
func hasHalfPair(text []byte) bool {
	for at := bytes.IndexByte(text, '\\'); at >= 0 && at+1 < len(text); {
		length := 2
		if unit, escaped := unitAt(text[at:]); escaped && utf16.IsSurrogate(unit) {
			low, _ := unitAt(text[at+6:])
			if utf16.DecodeRune(unit, low) == utf8.RuneError {
				return true
			}
			length = 12
		}
		next := bytes.IndexByte(text[at+length:], '\\')
		if next < 0 {
			return false
		}
		at += length + next
	}
	return false
}

// unitAt reads the escape \uXXXX at the start of text.
func unitAt(text []byte) (unit rune, escaped bool) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	number, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	return rune(number), err == nil
}

// checkNumbers refuses numbers beyond the range of a double.
func checkNumbers(value any) error {
	switch value := value.(type) {
	case json.Number:
		if _, err := strconv.ParseFloat(value.String(), 64); err != nil {
			return fmt.Errorf("the number %.40s exceeds the range of a double", value)
		}
	case []any:
		for _, each := range value {
			if err := checkNumbers(each); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, each := range value {
			if err := checkNumbers(each); err != nil {
				return err
			}
		}
	}
	return nil
}

// fits reports whether a value nests at most this many lists and objects.
func fits(value any, depth int) bool {
	switch value := value.(type) {
	case []any:
		for _, each := range value {
			if !fits(each, depth-1) {
				return false
			}
		}
		return depth > 0
	case map[string]any:
		for _, each := range value {
			if !fits(each, depth-1) {
				return false
			}
		}
		return depth > 0
	}
	return true
}

// appendCanonical appends JSON without spaces, with sorted names and canonical numbers: 1 and 1.0
// are the same key.
func appendCanonical(out []byte, value any) []byte {
	switch value := value.(type) {
	case json.Number:
		return appendNumber(out, value.String())
	case string:
		return appendText(out, value)
	case []any:
		return appendList(out, '[', ']', len(value), func(out []byte, n int) []byte {
			return appendCanonical(out, value[n])
		})
	case map[string]any:
		names := make([]string, 0, len(value))
		for name := range value {
			names = append(names, name)
		}
		slices.Sort(names)
		return appendList(out, '{', '}', len(names), func(out []byte, n int) []byte {
			return appendCanonical(append(appendText(out, names[n]), ':'), value[names[n]])
		})
	case bool:
		return strconv.AppendBool(out, value)
	}
	return append(out, "null"...)
}

func appendList(
	out []byte, begin, end byte, length int, element func(out []byte, n int) []byte,
) []byte {
	out = append(out, begin)
	for n := range length {
		if n > 0 {
			out = append(out, ',')
		}
		out = element(out, n)
	}
	return append(out, end)
}

func appendText(out []byte, text string) []byte {
	const short = "\bb\ff\nn\rr\tt\"\"\\\\"
	out = append(out, '"')
	for n := range len(text) {
		char := text[n]
		if at := strings.IndexByte(short, char); at >= 0 && at%2 == 0 {
			out = append(out, '\\', short[at+1])
		} else if char < ' ' {
			out = fmt.Appendf(out, `\u%04x`, char)
		} else {
			out = append(out, char)
		}
	}
	return append(out, '"')
}

// appendNumber writes 64-bit integers in full and all other numbers as doubles.
func appendNumber(out []byte, text string) []byte {
	if whole, err := strconv.ParseInt(text, 10, 64); err == nil {
		return strconv.AppendInt(out, whole, 10)
	}
	if whole, err := strconv.ParseUint(text, 10, 64); err == nil {
		return strconv.AppendUint(out, whole, 10)
	}
	number, _ := strconv.ParseFloat(text, 64)
	switch isWhole := number == math.Trunc(number); {
	case isWhole && number >= -1<<63 && number < 1<<63:
		return strconv.AppendInt(out, int64(number), 10)
	case isWhole && number >= 0 && number < 1<<64:
		return strconv.AppendUint(out, uint64(number), 10)
	}
	return appendFraction(out, number)
}

// appendFraction writes the shortest digits that round-trip: plain from 0.00001 to 10^16, with an
// exponent elsewhere.
func appendFraction(out []byte, number float64) []byte {
	text := strconv.FormatFloat(number, 'e', -1, 64)
	mantissa, exponent, _ := strings.Cut(text, "e")
	power, _ := strconv.Atoi(exponent)
	if power >= -5 && power < 16 {
		return strconv.AppendFloat(out, number, 'f', -1, 64)
	}
	return fmt.Appendf(out, "%se%+d", mantissa, power)
}
