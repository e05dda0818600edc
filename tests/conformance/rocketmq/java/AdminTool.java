import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.commons.cli.CommandLine;
import org.apache.commons.cli.Options;
import org.apache.commons.cli.PosixParser;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.srvutil.ServerUtil;
import org.apache.rocketmq.tools.command.MQAdminStartup;
import org.apache.rocketmq.tools.command.SubCommand;

/**
 * RocketMQ's own mqadmin: many commands in one process and concurrently, because each waits up to
 * 3 s for its client to end. A command is a JSON line, {"id": ..., "arguments": [...],
 * "account": ..., "secret": ...}; the answer is a line with its id and output. All commands of a
 * process use the same nameserver.
 */
public final class AdminTool extends MQAdminStartup {
    private static final PrintStream OUT = System.out;
    private static final ThreadLocal<ByteArrayOutputStream> PRINTED =
            ThreadLocal.withInitial(ByteArrayOutputStream::new);

    /** Redirects a thread's output to its own buffer. */
    private static final class OfThread extends OutputStream {
        @Override
        public void write(int each) {
            PRINTED.get().write(each);
        }

        @Override
        public void write(byte[] bytes, int from, int length) {
            PRINTED.get().write(bytes, from, length);
        }
    }

    public static void main(String[] arguments) {
        try {
            serve();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static void serve() throws IOException {
        PrintStream printed = new PrintStream(new OfThread(), true, "UTF-8");
        System.setOut(printed);
        System.setErr(printed);
        MQAdminStartup.initCommand();
        BufferedReader in =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JSONObject command = JSON.parseObject(line);
            new Thread(() -> answer(command)).start();
            pause(); // clients are named by the millisecond, and shared by name
        }
        Runtime.getRuntime().halt(0);
    }

    private static void pause() {
        try {
            Thread.sleep(25);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    private static void answer(JSONObject command) {
        try {
            run(command);
        } catch (Throwable error) {
            error.printStackTrace();
        }
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("id", command.get("id"));
        answer.put("printed", new String(PRINTED.get().toByteArray(), StandardCharsets.UTF_8));
        synchronized (OUT) {
            OUT.println(JSON.toJSONString(answer));
            OUT.flush();
        }
    }

    /** The list has different names in 4.9 and 5.x. */
    @SuppressWarnings("unchecked")
    private static List<SubCommand> commands() throws IllegalAccessException {
        for (Field field : MQAdminStartup.class.getDeclaredFields()) {
            if (List.class.isAssignableFrom(field.getType())) {
                field.setAccessible(true);
                return (List<SubCommand>) field.get(null);
            }
        }
        throw new IllegalStateException("no list of commands");
    }

    /** Commands name their clients by the millisecond, so no two may start in the same one. */
    private static synchronized void awaitTurn() throws InterruptedException {
        Thread.sleep(20);
    }

    private static void run(JSONObject command) throws Exception {
        String[] words = command.getJSONArray("arguments").toArray(new String[0]);
        String account = command.getString("account");
        RPCHook hook = account == null ? null : new AclClientRPCHook(
                new SessionCredentials(account, command.getString("secret")));
        for (SubCommand each : commands()) {
            if (each.commandName().equals(words[0])) {
                String[] options = Arrays.copyOfRange(words, 1, words.length);
                Options known = each.buildCommandlineOptions(
                        ServerUtil.buildCommandlineOptions(new Options()));
                CommandLine line = ServerUtil.parseCmdLine(
                        "mqadmin " + words[0], options, known, new PosixParser());
                System.setProperty(MixAll.NAMESRV_ADDR_PROPERTY, line.getOptionValue('n'));
                awaitTurn();
                each.execute(line, known, hook);
                return;
            }
        }
        System.out.println("no such command");
    }
}
