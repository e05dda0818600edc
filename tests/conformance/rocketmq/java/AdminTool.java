import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * RocketMQ's own mqadmin, many commands in one process. A command comes in as a JSON line,
 * {"arguments": [...], "account": ..., "secret": ...}; answered by a line with what it printed.
 */
public final class AdminTool {
    private static final PrintStream OUT = System.out;

    public static void main(String[] arguments) throws Exception {
        BufferedReader in =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String printed = run(JSON.parseObject(line));
            OUT.println(JSON.toJSONString(Collections.singletonMap("printed", printed)));
            OUT.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static String run(JSONObject command) throws Exception {
        String[] words = command.getJSONArray("arguments").toArray(new String[0]);
        String account = command.getString("account");
        RPCHook hook = account == null ? null : new AclClientRPCHook(
                new SessionCredentials(account, command.getString("secret")));
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream err = System.err;
        PrintStream both = new PrintStream(printed, true, "UTF-8");
        System.setOut(both);
        System.setErr(both);
        try {
            MQAdminStartup.main0(words, hook);
        } finally {
            System.setOut(OUT);
            System.setErr(err);
        }
        return printed.toString("UTF-8");
    }
}
