import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * A process of Apache RocketMQ's client, controlled by a test. Commands are JSON lines; each is
 * answered by a line with its id. Events of consumers are printed as they happen, before the
 * handlers continue. Times are System.nanoTime(): CLOCK_MONOTONIC, the same in all processes of a
 * machine.
 */
public final class Driver {
    /** A producer or consumer, identified by the name in its start command. */
    interface Role {
        Object run(String op, JSONObject command) throws Exception;

        void close();

        /** Suppresses all output after this returns. */
        default void silence() {}
    }

    /** The output of one role's handlers, until silenced. */
    static final class Events {
        private boolean silent; // guarded by OUT

        void print(Map<String, Object> record) {
            synchronized (OUT) {
                if (!silent) {
                    Driver.print(record);
                }
            }
        }

        void silence() {
            synchronized (OUT) {
                silent = true;
            }
        }
    }

    private static final FileOutputStream OUT = new FileOutputStream(FileDescriptor.out);
    private final Map<String, Role> roles = new LinkedHashMap<>();

    public static void main(String[] arguments) throws Exception {
        System.setOut(System.err); // stdout is only for our lines
        BufferedReader in =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Driver driver = new Driver();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            driver.answer(JSON.parseObject(line));
        }
        Runtime.getRuntime().halt(0);
    }

    private void answer(JSONObject command) {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("id", command.get("id"));
        try {
            answer.put("result", run(command.getString("op"), command));
        } catch (Throwable error) {
            answer.put("failure", describe(error));
        }
        print(answer);
    }

    private Object run(String op, JSONObject command) throws Exception {
        String name = command.getString("name");
        switch (op) {
            case "start":
                return start(name, command);
            case "close":
                roles.remove(name).close();
                return null;
            case "abandon": // without waiting: a shutdown of 5.x may take three seconds
                roles.values().forEach(Role::silence);
                roles.values().forEach(role -> new Thread(role::close).start());
                roles.clear();
                return null;
            default:
                return roles.get(name).run(op, command);
        }
    }

    private Object start(String name, JSONObject command) throws Exception {
        switch (command.getString("kind")) {
            case "producer":
                roles.put(name, new ProducerRole(command));
                return null;
            case "transactions":
                roles.put(name, new TransactionRole(command));
                return null;
            case "push":
                roles.put(name, new PushRole(command));
                return null;
            case "lite":
                roles.put(name, new LitePullRole(command));
                return null;
            case "pull":
                roles.put(name, new PullRole(command));
                return null;
            default:
                throw new IllegalArgumentException(
                        "kind is producer, transactions, push, lite or pull");
        }
    }

    /** Signs requests for the command's account, if it has one. */
    static RPCHook hook(JSONObject command) {
        String account = command.getString("account");
        return account == null ? null : new AclClientRPCHook(
                new SessionCredentials(account, command.getString("secret")));
    }

    /** Sets options of all roles; the instance name makes a new client id each time. */
    static void configure(ClientConfig config, JSONObject command) {
        config.setNamesrvAddr(command.getString("nameserver"));
        config.setInstanceName(command.getString("name") + "-" + System.nanoTime());
        // The client may skip the heartbeat after a rebalance, and is refused until the next one.
        config.setHeartbeatBrokerInterval(1000);
        // Late answers are not requested again before the next rebalance, for some only in 10 min.
        config.setMqClientApiTimeout(20_000);
        config.setPollNameServerInterval(5_000);
        config.setUnitName(command.getString("unit"));
        if (command.containsKey("persistMs")) {
            config.setPersistConsumerOffsetInterval(command.getIntValue("persistMs"));
        }
    }

    /** Calls a setter whose enum is in different packages in 4.9 and 5.x. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    static void setEnum(Object target, String setter, String value) throws Exception {
        for (Method method : target.getClass().getMethods()) {
            if (method.getName().equals(setter)) {
                Class type = method.getParameterTypes()[0];
                method.invoke(target, Enum.valueOf(type, value));
            }
        }
    }

    static Map<String, Object> describe(Throwable error) {
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("error", error.getClass().getSimpleName());
        found.put("message", String.valueOf(error.getMessage()));
        for (Throwable each = error; each != null; each = each.getCause()) {
            if (each instanceof MQBrokerException) {
                found.put("code", ((MQBrokerException) each).getResponseCode());
            }
        }
        return found;
    }

    /** Writes a whole line at once, so that it is complete even if the process is killed. */
    static void print(Map<String, Object> record) {
        byte[] line = (JSON.toJSONString(record) + "\n").getBytes(StandardCharsets.UTF_8);
        try {
            synchronized (OUT) {
                OUT.write(line);
            }
        } catch (IOException nobodyReads) {
            Runtime.getRuntime().halt(1);
        }
    }
}
