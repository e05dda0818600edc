package io.github.orderlane.client.internal;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import io.github.orderlane.client.OutgoingMessage;
import java.io.IOException;
import java.io.Reader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Optional;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Sharding keys from bodies. */
class JsonPathTest {
    private static Optional<String> find(String path, String document) {
        return JsonPath.compile(path).textIn(document.getBytes(StandardCharsets.UTF_8));
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            quoteCharacter = '~',
            value = {
                "$.a|{\"a\": \"x y\"}|x y",
                "$.a.b[1]|{\"a\": {\"b\": [0, \"é\\u00e9\\ud83d\\ude00\"]}}|éé😀",
                "$['a b'][0]| {\"a b\" : [ true ] } |true",
                "$[0]|[7]|7",
                "$[\"a b\"].é-1|{\"a b\": {\"é-1\": \"x\"}}|x",
                "$.a|{\"a\":{\"c\":[true,null,\"é\"], \"b\":1}}|{\"b\":1,\"c\":[true,null,\"é\"]}",
                "$.a|{\"a\": [\"\\n\\u0001\\\\/\\\"\"]}|[\"\\n\\u0001\\\\/\\\"\"]",
                "$.a|{\"a\": 1, \"a\": 2}|2",
                "$.a|{\"a\": []}|[]",
            })
    void findsTheTextAtThePath(String path, String document, String text) {
        assertEquals(Optional.of(text), find(path, document));
    }

    @ParameterizedTest
    @ValueSource(strings = {"{}", "{\"a\": null}", "[1]", "\"a\"", "{\"a\": {}}", "{\"a\": [1]}"})
    void whereNothingStandsThereIsNoKey(String document) {
        assertEquals(Optional.empty(), find("$.a.b", document));
        assertEquals(Optional.empty(), find("$.a[1]", document));
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "", "$", "a", "$a", "$..a", "$.a[*]", "$.a[-1]", "$.a[", "$['a\"]",
                "$.a b", "$.", "$.a[?(@.b)]", "$.a[0:1]", "x$.a"
            })
    void invalidPathsAreExplained(String path) {
        var error = assertThrows(IllegalArgumentException.class, () -> JsonPath.compile(path));
        assertTrue(error.getMessage().startsWith("'" + path + "' is not a valid path"));
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "", " ", "nul", "{", "[1,]", "{\"a\":}", "{\"a\" 1}", "{a:1}", "[1 2]", "01", "1.",
                ".5", "+1", "1e", "-", "\"", "\"\\x\"", "\"\\u12g4\"", "\"\t\"", "\"\\ud800\"",
                "1 1", "[]]", "NaN", "1e99999", "truefalse", "'a'"
            })
    void invalidJsonIsRefused(String document) {
        var error = assertThrows(IllegalArgumentException.class, () -> find("$.a", document));
        assertTrue(error.getMessage().contains("the body is not JSON"), error.getMessage());
    }

    @Test
    void invalidTextAndDeepNestingAreRefused() {
        byte[] latin = {'"', (byte) 0xe9, '"'};
        assertThrows(
                IllegalArgumentException.class, () -> JsonPath.compile("$.a").textIn(latin));
        String deep = "[".repeat(100_000);
        assertThrows(IllegalArgumentException.class, () -> find("$.a", deep));
    }

    @ParameterizedTest
    @CsvSource({
        "0,0", "-0,0", "1.0,1", "1,1", "-1.50,-1.5", "1e3,1000", "1E+2,100", "100e-2,1",
        "12345678901234567890123,1.2345678901234568e+22", "9007199254740993,9007199254740993",
        "9007199254740993e0,9007199254740992", "0.1,0.1", "1e-6,1e-6", "1e-5,0.00001",
        "1e-7,1e-7", "1.5e-9,1.5e-9", "1e20,1e+20", "18446744073709551616,1.8446744073709552e+19", "1e21,1e+21",
        "1.25e30,1.25e+30", "5e-324,5e-324", "1.7976931348623157e308,1.7976931348623157e+308",
        "0.30000000000000004,0.30000000000000004", "2.0E-3,0.002", "123456.789,123456.789",
        "9007199254740993.5,9007199254740994"
    })
    void numbersAreAsShortAsPossible(String number, String text) {
        assertEquals(Optional.of(text), find("$.n", "{\"n\": " + number + "}"));
    }

    /** The vectors for the texts of keys and JSON values, shared by the proxy and all clients. */
    @Test
    void keysMatchTheSharedVectors() throws IOException {
        JsonObject vectors;
        try (Reader file =
                Files.newBufferedReader(Path.of("../../tests/conformance/key_vectors.json"))) {
            vectors = JsonParser.parseReader(file).getAsJsonObject();
        }
        for (JsonElement each : vectors.getAsJsonArray("keys")) {
            JsonObject vector = each.getAsJsonObject();
            String text = vector.get("text").getAsString();
            String key = vector.get("key").getAsString();
            OutgoingMessage named = OutgoingMessage.to("t").body("").shardingKey(text).build();
            assertEquals(key, named.shardingKey());
            assertEquals(vector.get("hash").getAsInt(), named.shardingKey().hashCode());
            OutgoingMessage keyed = OutgoingMessage.to("t").body("").key(text).build();
            assertEquals(key.isEmpty() ? null : key, keyed.shardingKey());
            assertEquals(text, keyed.key());
        }
        assertTrue(vectors.getAsJsonArray("values").size() > 100);
        for (JsonElement each : vectors.getAsJsonArray("values")) {
            judge(each.getAsJsonObject());
        }
    }

    private static void judge(JsonObject vector) {
        String body = vector.get("body").getAsString();
        String path = vector.get("path").getAsString();
        if (vector.has("refused")) {
            assertThrows(IllegalArgumentException.class, () -> find(path, body), body);
        } else if (vector.get("key").isJsonNull()) {
            assertEquals(Optional.empty(), find(path, body), body);
        } else {
            String key = find(path, body).orElseThrow();
            assertEquals(vector.get("key").getAsString(), key, body);
            assertEquals(vector.get("hash").getAsInt(), key.hashCode(), body);
        }
    }

    /** Another parser reads the same value from the canonical text. */
    @Test
    void canonicalTextHasTheSameValue() throws JsonReader.NotJson {
        Random random = new Random(7);
        for (int i = 0; i < 2_000; i++) {
            String text = randomJson(random, 3).toString();
            String canonical =
                    CanonicalJson.write(JsonReader.read(text.getBytes(StandardCharsets.UTF_8)));
            assertEquals(JsonParser.parseString(text), JsonParser.parseString(canonical));
            assertEquals(
                    canonical,
                    CanonicalJson.write(
                            JsonReader.read(canonical.getBytes(StandardCharsets.UTF_8))));
        }
    }

    private static JsonElement randomJson(Random random, int depth) {
        return switch (random.nextInt(depth > 0 ? 6 : 4)) {
            case 0 -> JsonParser.parseString(random.nextBoolean() ? "true" : "null");
            case 1 -> JsonParser.parseString(Long.toString(random.nextLong()));
            case 2 -> JsonParser.parseString("\"a\\u0000\\\"b😀\"");
            case 3 -> JsonParser.parseString(Integer.toString(random.nextInt(10)));
            case 4 -> {
                JsonArray array = new JsonArray();
                for (int n = random.nextInt(4); n > 0; n--) {
                    array.add(randomJson(random, depth - 1));
                }
                yield array;
            }
            default -> {
                JsonObject object = new JsonObject();
                for (int n = random.nextInt(4); n > 0; n--) {
                    object.add("k" + random.nextInt(5), randomJson(random, depth - 1));
                }
                yield object;
            }
        };
    }
}
