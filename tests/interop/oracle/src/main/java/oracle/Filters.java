// SPDX-License-Identifier: Apache-2.0
package oracle;

import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.filter.SqlFilter;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;

/** RocketMQ's own SQL92, asked many questions: README.md has the format of questions and answers. */
final class Filters {
    /** The stack of a broker's threads: none of them asks for another size. */
    private static final long STACK_BYTES = 1 << 20;

    private Filters() { }

    static void answer(Path questions, Path answers) throws Exception {
        StringBuilder said = new StringBuilder();
        Throwable[] failed = new Throwable[1];
        Thread thread = new Thread(null, () -> {
            try (DataInputStream in = new DataInputStream(new BufferedInputStream(Files.newInputStream(questions)))) {
                for (int left = in.readInt(); left > 0; left--) {
                    answer(in, said);
                }
            } catch (Throwable e) {
                failed[0] = e;
            }
        }, "filters", STACK_BYTES);
        thread.start();
        thread.join();
        if (failed[0] != null) {
            throw new IllegalStateException(failed[0]);
        }
        Files.writeString(answers, said);
    }

    private static void answer(DataInputStream in, StringBuilder said) throws Exception {
        Expression expression = null;
        String text = text(in);
        try {
            expression = new SqlFilter().compile(text);
        } catch (Throwable e) {
            said.append('P');
        }
        for (int left = in.readInt(); left > 0; left--) {
            Map<String, String> properties = new HashMap<>();
            for (int pairs = in.readInt(); pairs > 0; pairs--) {
                String name = text(in);
                properties.put(name, text(in));
            }
            if (expression != null) {
                said.append(outcome(expression, properties));
            }
        }
        said.append('\n');
    }

    private static char outcome(Expression expression, Map<String, String> properties) {
        try {
            Object result = expression.evaluate(new Context(properties));
            return result == null ? 'N' : (Boolean) result ? 'T' : 'F';
        } catch (Throwable e) {
            return 'E';
        }
    }

    private static String text(DataInputStream in) throws Exception {
        byte[] bytes = new byte[in.readInt()];
        in.readFully(bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }

    /** As the broker's own context: the properties as they are. */
    private static final class Context implements EvaluationContext {
        private final Map<String, String> properties;

        private Context(Map<String, String> properties) {
            this.properties = properties;
        }

        @Override
        public Object get(String name) {
            return properties.get(name);
        }

        @Override
        public Map<String, Object> keyValues() {
            return new HashMap<>(properties);
        }
    }
}
