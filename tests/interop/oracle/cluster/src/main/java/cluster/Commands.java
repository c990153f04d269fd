// SPDX-License-Identifier: Apache-2.0
package cluster;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.TreeMap;

/** Obeys standard input: one command a line, a JSON object, each answered by one line of JSON. */
final class Commands {
    /** What a command does; the answer is anything that JSON can say. */
    interface Action {
        Object obey(JSONObject given) throws Exception;
    }

    private Commands() { }

    /** Obeys until the input ends. Key "do" names the action; a failure is the answer {"error": …}. */
    static void serve(Map<String, Action> actions) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(Json.text(answer(actions, line)));
            System.out.flush();
        }
    }

    private static Map<String, Object> answer(Map<String, Action> actions, String line) {
        try {
            JSONObject given = JSON.parseObject(line);
            Action action = actions.get(given.getString("do"));
            if (action == null) {
                throw new IllegalArgumentException("commands are " + actions.keySet());
            }
            return Json.row("answer", action.obey(given));
        } catch (Throwable e) {
            e.printStackTrace();
            return Json.row("error", e.toString());
        }
    }

    /** Every value below a key as a text. */
    static Map<String, String> texts(JSONObject given, String key) {
        Map<String, String> texts = new TreeMap<>();
        JSONObject found = given.getJSONObject(key);
        if (found != null) {
            found.forEach((name, value) -> texts.put(name, String.valueOf(value)));
        }
        return texts;
    }
}
