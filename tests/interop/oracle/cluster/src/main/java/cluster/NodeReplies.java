// SPDX-License-Identifier: Apache-2.0
package cluster;

import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Requests that wait for a reply, and consumers that reply. */
final class NodeReplies {
    private final NodeClients clients;
    private final NodeProducers producers;
    private final List<DefaultMQPushConsumer> repliers = new ArrayList<>();

    NodeReplies(NodeClients clients, NodeProducers producers) {
        this.clients = clients;
        this.producers = producers;
    }

    /** request: name of a producer, topic, body, timeout_ms; answers body and properties of the reply. */
    Object request(JSONObject given) throws Exception {
        int timeoutMs = given.getIntValue("timeout_ms");
        byte[] body = given.getString("body").getBytes(StandardCharsets.UTF_8);
        CompletableFuture<Message> reply = new CompletableFuture<>();
        // The call that waits gives up in 5.3.3 once the request is stored.
        producers.named(given.getString("name")).request(new Message(given.getString("topic"), body), new RequestCallback() {
            @Override
            public void onSuccess(Message message) {
                if (message != null) { // 5.3.3 also calls when the request is stored
                    reply.complete(message);
                }
            }

            @Override
            public void onException(Throwable e) {
                reply.completeExceptionally(e);
            }
        }, timeoutMs);
        Message message = reply.get(timeoutMs, TimeUnit.MILLISECONDS);
        return Json.row("topic", message.getTopic(), "properties", Json.sorted(message.getProperties()),
            "body_b64", Json.base64(message.getBody()));
    }

    /** replier: name, group, topic, producer (which sends the replies); it replies "re: " and what it got. */
    Object replier(JSONObject given) throws Exception {
        DefaultMQProducer producer = producers.named(given.getString("producer"));
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
            given.getString("group"), clients.hook(), new AllocateMessageQueueAveragely());
        clients.configure(consumer, given);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(given.getString("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                reply(producer, message);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        repliers.add(consumer);
        return Json.row();
    }

    private static void reply(DefaultMQProducer producer, MessageExt message) {
        String text = "re: " + new String(message.getBody(), StandardCharsets.UTF_8);
        try {
            producer.send(MessageUtil.createReplyMessage(message, text.getBytes(StandardCharsets.UTF_8)));
        } catch (Exception e) {
            e.printStackTrace();
        }
    }

    /** The commands by their names. */
    Map<String, Commands.Action> actions() {
        return Map.of("request", this::request, "replier", this::replier);
    }
}
