// SPDX-License-Identifier: Apache-2.0
package oracle;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import org.apache.rocketmq.common.message.MessageDecoder;

/** Property strings, decoded and encoded again, as by a broker that changes one: a line of base64 each. */
final class PropertyOrder {
    private PropertyOrder() { }

    static void answer(Path questions, Path answers) throws Exception {
        List<String> said = new ArrayList<>();
        for (String line : Files.readAllLines(questions, StandardCharsets.US_ASCII)) {
            String given = new String(Base64.getDecoder().decode(line), StandardCharsets.UTF_8);
            String made = MessageDecoder.messageProperties2String(MessageDecoder.string2messageProperties(given));
            said.add(Base64.getEncoder().encodeToString(made.getBytes(StandardCharsets.UTF_8)));
        }
        Files.write(answers, said, StandardCharsets.US_ASCII);
    }
}
