// SPDX-License-Identifier: Apache-2.0
package cluster;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Messages, queues and results, to and from JSON. */
final class NodeMessages {
    private NodeMessages() { }

    /** The messages of a command: those in "messages", or "count" of them made from "seed". */
    static List<Message> messages(JSONObject given) {
        List<Message> messages = new ArrayList<>();
        JSONArray written = given.getJSONArray("messages");
        if (written != null) {
            for (int i = 0; i < written.size(); i++) {
                messages.add(message(given.getString("topic"), written.getJSONObject(i)));
            }
            return messages;
        }
        for (int i = 0; i < given.getIntValue("count"); i++) {
            messages.add(numbered(given, i));
        }
        return messages;
    }

    private static Message message(String topic, JSONObject given) {
        Message message = new Message(topic, body(given));
        if (given.containsKey("tags")) {
            message.setTags(given.getString("tags"));
        }
        if (given.containsKey("keys")) {
            message.setKeys(given.getString("keys"));
        }
        if (given.containsKey("flag")) {
            message.setFlag(given.getIntValue("flag"));
        }
        if (given.containsKey("delay_level")) {
            message.setDelayTimeLevel(given.getIntValue("delay_level"));
        }
        if (given.containsKey("deliver_time_ms")) {
            Compat.setDeliverTime(message, given.getLongValue("deliver_time_ms"));
        }
        if (given.containsKey("wait_store_ok")) {
            message.setWaitStoreMsgOK(given.getBooleanValue("wait_store_ok"));
        }
        Commands.texts(given, "properties").forEach(message::putUserProperty);
        return message;
    }

    private static byte[] body(JSONObject given) {
        if (given.containsKey("body_b64")) {
            return Base64.getDecoder().decode(given.getString("body_b64"));
        }
        return given.getOrDefault("body", "").toString().getBytes(StandardCharsets.UTF_8);
    }

    /** Message number i: key K{seed}-{i}, body the key and as many x as make "size", tags in turn. */
    private static Message numbered(JSONObject given, int i) {
        String key = "K" + given.getLongValue("seed") + "-" + i;
        int size = Math.max(given.getIntValue("size"), key.length());
        JSONObject one = new JSONObject();
        one.put("body", key + "x".repeat(size - key.length()));
        one.put("keys", key);
        JSONArray tags = given.getJSONArray("tags");
        if (tags != null && !tags.isEmpty()) {
            one.put("tags", tags.getString(i % tags.size()));
        }
        for (String each : new String[] {"delay_level", "properties", "flag", "wait_store_ok"}) {
            if (given.containsKey(each)) {
                one.put(each, given.get(each));
            }
        }
        Message message = message(given.getString("topic"), one);
        message.putUserProperty("number", Integer.toString(i));
        return message;
    }

    static Map<String, Object> received(MessageExt message) {
        return Json.row(
            "topic", message.getTopic(), "broker", message.getBrokerName(),
            "queue_id", message.getQueueId(), "queue_offset", message.getQueueOffset(),
            "commit_log_offset", message.getCommitLogOffset(), "store_size", message.getStoreSize(),
            "keys", message.getKeys(), "tags", message.getTags(), "flag", message.getFlag(),
            "sys_flag", message.getSysFlag(), "body_crc", message.getBodyCRC(),
            "msg_id", message.getMsgId(),
            "offset_msg_id", message instanceof MessageClientExt ? ((MessageClientExt) message).getOffsetMsgId() : null,
            "reconsume_times", message.getReconsumeTimes(),
            "born_timestamp", message.getBornTimestamp(), "store_timestamp", message.getStoreTimestamp(),
            "prepared_transaction_offset", message.getPreparedTransactionOffset(),
            "transaction_id", message.getTransactionId(),
            "properties", Json.sorted(message.getProperties()),
            "body_b64", Json.base64(message.getBody()));
    }

    static Map<String, Object> result(Message message, SendResult result) {
        MessageQueue queue = result.getMessageQueue();
        return Json.row(
            "keys", message.getKeys(), "status", result.getSendStatus().name(),
            "msg_id", result.getMsgId(), "offset_msg_id", result.getOffsetMsgId(),
            "topic", message.getTopic(),
            "broker", queue == null ? null : queue.getBrokerName(), "queue_id", queue == null ? null : queue.getQueueId(),
            "queue_offset", result.getQueueOffset(), "transaction_id", result.getTransactionId(),
            "local_state", result instanceof TransactionSendResult
                ? ((TransactionSendResult) result).getLocalTransactionState().name() : null);
    }

    static MessageQueue queue(JSONObject given) {
        return new MessageQueue(given.getString("topic"), given.getString("broker"), given.getIntValue("queue_id"));
    }

    static Map<String, Object> row(MessageQueue queue) {
        return Json.row("topic", queue.getTopic(), "broker", queue.getBrokerName(), "queue_id", queue.getQueueId());
    }

    /** One row a queue: its names and the value. */
    static List<Map<String, Object>> rows(Map<MessageQueue, ?> table, String name) {
        List<Map<String, Object>> rows = new ArrayList<>();
        table.keySet().stream().sorted().forEach(queue -> {
            Map<String, Object> row = row(queue);
            row.put(name, table.get(queue));
            rows.add(row);
        });
        return rows;
    }
}
