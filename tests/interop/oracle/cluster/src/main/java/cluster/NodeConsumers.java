// SPDX-License-Identifier: Apache-2.0
package cluster;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Push consumers by their names, which note what they receive; and pulls. */
final class NodeConsumers {
    private final NodeClients clients;
    private final Map<String, Member> members = new HashMap<>();
    private final Map<String, DefaultMQPullConsumer> pullers = new HashMap<>();

    NodeConsumers(NodeClients clients) {
        this.clients = clients;
    }

    /** One push consumer: what it received, in order, and how it answers. */
    private static final class Member {
        final DefaultMQPushConsumer consumer;
        final Set<String> topics;
        final List<Map<String, Object>> received = Collections.synchronizedList(new ArrayList<>());
        final int failFirst;
        final Set<Object> failAlways;
        final long workMs;

        Member(DefaultMQPushConsumer consumer, JSONObject given) {
            this.consumer = consumer;
            topics = new TreeSet<>(given.getJSONObject("topics").keySet());
            failFirst = given.getIntValue("fail_first");
            failAlways = given.containsKey("fail_always") ? new HashSet<>(given.getJSONArray("fail_always")) : Set.of();
            workMs = given.getLongValue("work_ms");
        }

        /** Notes a delivery; whether it succeeds: not the first ones, and never those of some keys. */
        boolean take(MessageExt message) {
            boolean good = message.getReconsumeTimes() >= failFirst && !failAlways.contains(message.getKeys());
            Map<String, Object> row = NodeMessages.received(message);
            row.put("ok", good);
            row.put("thread", Thread.currentThread().getName());
            row.put("at_ms", System.currentTimeMillis());
            received.add(row);
            try {
                TimeUnit.MILLISECONDS.sleep(workMs);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
            return good;
        }
    }

    /**
     * consumer: name, group, topics {topic: expression}, sql, orderly, broadcasting, from_where FIRST LAST TIMESTAMP,
     * from_timestamp (yyyyMMddHHmmss), max_reconsume_times, strategy, machine_rooms, threads, batch, pull_batch,
     * suspend_ms, fail_first, fail_always [keys], work_ms, consume_timeout_min.
     */
    Object consumer(JSONObject given) throws Exception {
        String name = given.getString("name");
        AllocateMessageQueueStrategy strategy = strategy(given);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(given.getString("group"), clients.hook(), strategy);
        clients.configure(consumer, given);
        set(consumer, given);
        for (Map.Entry<String, String> each : Commands.texts(given, "topics").entrySet()) {
            consumer.subscribe(each.getKey(), given.getBooleanValue("sql")
                ? MessageSelector.bySql(each.getValue()) : MessageSelector.byTag(each.getValue()));
        }
        Member member = new Member(consumer, given);
        if (given.getBooleanValue("orderly")) {
            consumer.registerMessageListener(orderly(member));
        } else {
            consumer.registerMessageListener(concurrently(member));
        }
        consumer.start();
        members.put(name, member);
        return Json.row("client_id", consumer.buildMQClientId());
    }

    private static void set(DefaultMQPushConsumer consumer, JSONObject given) {
        if (given.getBooleanValue("broadcasting")) {
            Compat.setBroadcasting(consumer);
        }
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf(
            "CONSUME_FROM_" + given.getOrDefault("from_where", "FIRST") + "_OFFSET".repeat(
                "TIMESTAMP".equals(given.getString("from_where")) ? 0 : 1)));
        if (given.getString("from_timestamp") != null) {
            consumer.setConsumeTimestamp(given.getString("from_timestamp"));
        }
        if (given.containsKey("max_reconsume_times")) {
            consumer.setMaxReconsumeTimes(given.getIntValue("max_reconsume_times"));
        }
        int threads = given.getIntValue("threads") > 0 ? given.getIntValue("threads") : 2;
        consumer.setConsumeThreadMin(threads);
        consumer.setConsumeThreadMax(threads);
        consumer.setSuspendCurrentQueueTimeMillis(given.getLongValue("suspend_ms") > 0 ? given.getLongValue("suspend_ms") : 200);
        if (given.getIntValue("batch") > 0) {
            consumer.setConsumeMessageBatchMaxSize(given.getIntValue("batch"));
        }
        if (given.getIntValue("pull_batch") > 0) {
            consumer.setPullBatchSize(given.getIntValue("pull_batch"));
        }
        if (given.getIntValue("consume_timeout_min") > 0) {
            consumer.setConsumeTimeout(given.getIntValue("consume_timeout_min"));
        }
    }

    private static AllocateMessageQueueStrategy strategy(JSONObject given) {
        Set<String> rooms = new HashSet<>();
        if (given.containsKey("machine_rooms")) {
            given.getJSONArray("machine_rooms").forEach(room -> rooms.add(room.toString()));
        }
        String name = given.getOrDefault("strategy", "AVG").toString();
        switch (name) {
            case "AVG":
                return new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE":
                return new AllocateMessageQueueAveragelyByCircle();
            case "CONSISTENT_HASH":
                return new AllocateMessageQueueConsistentHash();
            case "MACHINE_ROOM":
                AllocateMessageQueueByMachineRoom byRoom = new AllocateMessageQueueByMachineRoom();
                byRoom.setConsumeridcs(rooms);
                return byRoom;
            case "MACHINE_ROOM_NEARBY":
                return new AllocateMachineRoomNearby(new AllocateMessageQueueAveragely(), new Rooms());
            default:
                throw new IllegalArgumentException("no strategy " + name);
        }
    }

    /** The room is the part of a broker's name or a client's instance name before the first dash. */
    private static final class Rooms implements AllocateMachineRoomNearby.MachineRoomResolver {
        @Override
        public String brokerDeployIn(MessageQueue queue) {
            return queue.getBrokerName().split("-")[0];
        }

        @Override
        public String consumerDeployIn(String clientId) {
            return clientId.split("@")[1].split("-")[0];
        }
    }

    /**
     * allocate: strategy, machine_rooms, cases [{queues [[broker, id]], members}]; for each case what each of the
     * members gets, all in the order in which RebalanceImpl gives them to a strategy.
     */
    Object allocate(JSONObject given) {
        AllocateMessageQueueStrategy strategy = strategy(given);
        List<List<List<List<Object>>>> answers = new ArrayList<>();
        for (Object each : given.getJSONArray("cases")) {
            JSONObject one = (JSONObject) each;
            List<MessageQueue> queues = new ArrayList<>();
            for (Object queue : one.getJSONArray("queues")) {
                JSONArray fields = (JSONArray) queue;
                queues.add(new MessageQueue("topic", fields.getString(0), fields.getIntValue(1)));
            }
            List<String> members = one.getJSONArray("members").toJavaList(String.class);
            Collections.sort(queues);
            Collections.sort(members);
            List<List<List<Object>>> shares = new ArrayList<>();
            for (String member : one.getJSONArray("members").toJavaList(String.class)) {
                List<List<Object>> share = new ArrayList<>();
                for (MessageQueue queue : strategy.allocate("group", member, queues, members)) {
                    share.add(List.of(queue.getBrokerName(), queue.getQueueId()));
                }
                shares.add(share);
            }
            answers.add(shares);
        }
        return answers;
    }

    private static MessageListenerConcurrently concurrently(Member member) {
        return (messages, context) -> {
            boolean good = true;
            for (MessageExt message : messages) {
                good &= member.take(message);
            }
            return good ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER;
        };
    }

    private static MessageListenerOrderly orderly(Member member) {
        return (messages, context) -> {
            boolean good = true;
            for (MessageExt message : messages) {
                good &= member.take(message);
            }
            return good ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
        };
    }

    /** received: name; every delivery so far, or from number "begin" on. */
    Object received(JSONObject given) {
        List<Map<String, Object>> all = List.copyOf(members.get(given.getString("name")).received);
        return all.subList(Math.min(given.getIntValue("begin"), all.size()), all.size());
    }

    /** received_count: name. */
    Object receivedCount(JSONObject given) {
        return members.get(given.getString("name")).received.size();
    }

    /** allocation: name; the queues that it consumes now. */
    Object allocation(JSONObject given) {
        DefaultMQPushConsumer consumer = members.get(given.getString("name")).consumer;
        List<Map<String, Object>> rows = new ArrayList<>();
        consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().forEach((queue, process) -> {
            if (!process.isDropped()) {
                Map<String, Object> row = NodeMessages.row(queue);
                row.put("locked", process.isLocked());
                rows.add(row);
            }
        });
        return rows;
    }

    /** own_offsets: name; the consumer's offsets for all its topics; it also sends them to brokers. */
    Object ownOffsets(JSONObject given) {
        Member member = members.get(given.getString("name"));
        member.consumer.getDefaultMQPushConsumerImpl().persistConsumerOffset();
        Map<MessageQueue, Long> table = new HashMap<>();
        for (String topic : member.topics) {
            table.putAll(member.consumer.getDefaultMQPushConsumerImpl().getOffsetStore().cloneOffsetTable(topic));
        }
        return NodeMessages.rows(table, "offset");
    }

    /** suspend, resume: name. */
    Object suspend(JSONObject given) {
        members.get(given.getString("name")).consumer.suspend();
        return Json.row();
    }

    Object resume(JSONObject given) {
        members.get(given.getString("name")).consumer.resume();
        return Json.row();
    }

    /** close_consumer: name; answers every delivery. */
    Object close(JSONObject given) {
        Member member = members.remove(given.getString("name"));
        member.consumer.shutdown();
        return List.copyOf(member.received);
    }

    private DefaultMQPullConsumer puller(String group) throws Exception {
        String name = "puller-" + clients.connection() + "-" + group;
        DefaultMQPullConsumer consumer = pullers.get(name);
        if (consumer == null) {
            consumer = clients.configure(new DefaultMQPullConsumer(group, clients.hook()), (JSONObject) new JSONObject()
                .fluentPut("name", name));
            consumer.setConsumerPullTimeoutMillis(10_000);
            consumer.start();
            pullers.put(name, consumer);
        }
        return consumer;
    }

    /** pull: group, topic, broker, queue_id, offset, max, expression, sql. */
    Object pull(JSONObject given) throws Exception {
        PullResult result = pull(puller(given.getString("group")), NodeMessages.queue(given), given,
            given.getLongValue("offset"));
        return Json.row("status", result.getPullStatus().name(), "next_begin_offset", result.getNextBeginOffset(),
            "min_offset", result.getMinOffset(), "max_offset", result.getMaxOffset(), "messages", found(result));
    }

    private static PullResult pull(DefaultMQPullConsumer consumer, MessageQueue queue, JSONObject given, long offset)
        throws Exception {
        String expression = given.getOrDefault("expression", "*").toString();
        MessageSelector selector = given.getBooleanValue("sql")
            ? MessageSelector.bySql(expression) : MessageSelector.byTag(expression);
        return consumer.pull(queue, selector, offset, given.getIntValue("max") > 0 ? given.getIntValue("max") : 32);
    }

    private static List<Map<String, Object>> found(PullResult result) {
        List<Map<String, Object>> rows = new ArrayList<>();
        if (result.getMsgFoundList() != null) {
            result.getMsgFoundList().forEach(message -> rows.add(NodeMessages.received(message)));
        }
        return rows;
    }

    /** pull_all: group, topic, expression, sql; every message from each queue's minimum to its maximum. */
    Object pullAll(JSONObject given) throws Exception {
        DefaultMQPullConsumer consumer = puller(given.getString("group"));
        List<Map<String, Object>> rows = new ArrayList<>();
        for (MessageQueue queue : new TreeSet<>(consumer.fetchSubscribeMessageQueues(given.getString("topic")))) {
            long end = consumer.maxOffset(queue);
            for (long at = consumer.minOffset(queue); at < end; ) {
                PullResult result = pull(consumer, queue, given, at);
                rows.addAll(found(result));
                at = result.getPullStatus() == PullStatus.NO_NEW_MSG ? end : result.getNextBeginOffset();
            }
        }
        return rows;
    }
}
