// SPDX-License-Identifier: Apache-2.0
package cluster;

import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/** What applications do with a broker: consume a topic as a group, and send to it. */
final class Traffic {
    private static final int PUSH_SECONDS = 40;
    private static final String SQL = "sql:";

    private final Clients clients;
    private final Journal journal;
    private int groups;

    Traffic(Clients clients, Journal journal) {
        this.clients = clients;
        this.journal = journal;
    }

    /**
     * A group that learns its queues from the name server and notes its offsets; true if all came.
     *
     * @param tags a tag expression, or "sql:" and one of SQL92
     */
    boolean push(List<String> topics, String tags, int count) throws Exception {
        MessageSelector wanted = tags.startsWith(SQL) ? MessageSelector.bySql(tags.substring(SQL.length()))
            : MessageSelector.byTag(tags);
        String group = "serve_push_" + groups++;
        DefaultMQPushConsumer consumer = clients.push(group, group);
        for (String topic : topics) {
            consumer.subscribe(topic, wanted);
        }
        clients.startConcurrent(consumer, topics.get(0), wanted,
            message -> ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        Clients.await("push " + topics, PUSH_SECONDS, () -> journal.receivedRows(group) >= count);
        int received = journal.receivedRows(group);
        Serve.say("event", "push", "topics", topics, "tags", tags, "ok", received == count, "count", received,
            "expected", count);
        return received == count;
    }

    /** Messages, delayed above level 0; each tenth is so long that the client compresses it. True if all were stored. */
    boolean send(String topic, int level, int count) throws Exception {
        String name = topic + (level > 0 ? "_" + level : "");
        DefaultMQProducer producer = clients.start(new DefaultMQProducer("serve_send_" + name), "send_" + name);
        boolean ok = true;
        for (int i = 0; i < count; i++) {
            byte[] body = (name + " sent " + i).repeat(i % 10 == 0 ? 1000 : 1).getBytes(StandardCharsets.UTF_8);
            Message message = new Message(topic, i % 3 == 0 ? "TagA" : "TagB", "sent-" + i + " sent", body);
            message.putUserProperty("note", "gr\u00f6\u00dfe \u4ef7\u683c \ud83d\ude80 " + i);
            if (level > 0) {
                message.setDelayTimeLevel(level);
            }
            SendResult result = producer.send(message);
            journal.sent("serve", message, body, result);
            ok &= result.getSendStatus() == SendStatus.SEND_OK;
        }
        Serve.say("event", "sent", "topic", topic, "ok", ok, "count", count);
        return ok;
    }
}
