// SPDX-License-Identifier: Apache-2.0
package bench;

import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.filter.SqlFilter;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;

/** RocketMQ's SQL92 evaluated for message after message; bench/filter_side.py has the same messages. */
final class FilterLoop {
    private static final String[] REGIONS = {"eu", "us", "asia", "africa", "south"};
    private static final String[] LEVELS = {"gold", "silver", "tin"};
    private static final int ROUNDS = 10;

    private FilterLoop() { }

    interface Figure {
        void print(String name, long count, long nanos, String more);
    }

    /** Evaluates for the same batch so often that `messages` are reached; from maps, then from stored bytes. */
    static void run(String text, int batch, int messages, Figure figure) throws Exception {
        Expression expression = new SqlFilter().compile(text);
        byte[][] stored = new byte[batch][];
        Map<?, ?>[] decoded = new Map<?, ?>[batch];
        for (int i = 0; i < batch; i++) {
            String properties = properties(i);
            stored[i] = properties.getBytes(StandardCharsets.UTF_8);
            decoded[i] = MessageDecoder.string2messageProperties(properties);
        }
        for (int round = 0; round < ROUNDS; round++) {
            long matched = 0;
            long start = System.nanoTime();
            for (int i = 0, k = 0; i < messages; i++, k = k + 1 == batch ? 0 : k + 1) {
                matched += matches(expression, decoded[k]);
            }
            figure.print("filter_maps", messages, System.nanoTime() - start, matched(matched, round));
        }
        for (int round = 0; round < ROUNDS; round++) {
            long matched = 0;
            long start = System.nanoTime();
            for (int i = 0, k = 0; i < messages; i++, k = k + 1 == batch ? 0 : k + 1) {
                String properties = new String(stored[k], StandardCharsets.UTF_8);
                matched += matches(expression, MessageDecoder.string2messageProperties(properties));
            }
            figure.print("filter_stored", messages, System.nanoTime() - start, matched(matched, round));
        }
    }

    private static String matched(long matched, int round) {
        return ",\"matched\":" + matched + ",\"round\":" + round;
    }

    private static int matches(Expression expression, Map<?, ?> properties) throws Exception {
        return Boolean.TRUE == expression.evaluate(new Context(properties)) ? 1 : 0;
    }

    private static String properties(int i) {
        Map<String, String> properties = new HashMap<>();
        properties.put("UNIQ_KEY", String.format("7F00000100002A9F18B4AAC2%08X", i));
        properties.put("KEYS", "order" + i);
        properties.put("TAGS", "tag" + i % 7);
        properties.put("WAIT", "true");
        properties.put("amount", String.valueOf(i * 7919L % 1000));
        properties.put("region", REGIONS[i % REGIONS.length]);
        properties.put("level", LEVELS[i % LEVELS.length]);
        return MessageDecoder.messageProperties2String(properties);
    }

    /** As the broker's own: one for each message. */
    private static final class Context implements EvaluationContext {
        private final Map<?, ?> properties;

        private Context(Map<?, ?> properties) {
            this.properties = properties;
        }

        @Override
        public Object get(String name) {
            return properties.get(name);
        }

        @Override
        public Map<String, Object> keyValues() {
            throw new UnsupportedOperationException();
        }
    }
}
