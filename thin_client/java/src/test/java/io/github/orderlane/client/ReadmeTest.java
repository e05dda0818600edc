package io.github.orderlane.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.StringWriter;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Set;
import java.util.stream.Stream;
import javax.tools.JavaCompiler;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The README matches the code. */
class ReadmeTest {
    private static final Path EXAMPLE = Path.of("example");

    private static String readme() throws IOException {
        return Files.readString(Path.of("README.md"));
    }

    @Test
    void quickStartIsTheExample() throws IOException {
        for (String file : List.of("pom.xml", "src/main/java/Billing.java")) {
            assertTrue(readme().contains(Files.readString(EXAMPLE.resolve(file))), file);
        }
    }

    @Test
    void exampleCompiles(@TempDir Path folder) {
        JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
        StringWriter told = new StringWriter();
        List<String> options =
                List.of("-Xlint:all", "-Werror", "-d", folder.toString(),
                        "-cp", System.getProperty("java.class.path"));
        var files =
                compiler.getStandardFileManager(null, null, null)
                        .getJavaFileObjects(EXAMPLE.resolve("src/main/java/Billing.java"));
        assertTrue(compiler.getTask(told, null, null, options, null, files).call(), told::toString);
    }

    @Test
    void everyOptionIsInTheTables() throws IOException {
        String text = readme();
        Set<String> others = Set.of("build", "builder");
        List<String> missing =
                Stream.of(
                                OrderlaneConsumer.Builder.class,
                                OrderlaneProducer.Builder.class,
                                OrderlanePuller.Builder.class)
                        .flatMap(builder -> Stream.of(builder.getMethods()))
                        .filter(method -> ClientBuilder.class.isAssignableFrom(
                                method.getDeclaringClass()))
                        .filter(method -> !Modifier.isStatic(method.getModifiers()))
                        .map(Method::getName)
                        .distinct()
                        .filter(name -> !others.contains(name) && !text.contains("`" + name + "`"))
                        .toList();
        assertEquals(List.of(), missing);
    }
}
