// SPDX-License-Identifier: Apache-2.0
package cluster;

import com.alibaba.fastjson.JSONObject;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.apache.rocketmq.client.impl.producer.TopicPublishInfo;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Producers by their names. */
final class NodeProducers {
    private static final int SEND_TIMEOUT_MS = 10_000;

    private final NodeClients clients;
    private final Map<String, DefaultMQProducer> producers = new HashMap<>();
    private final Map<String, List<Map<String, Object>>> checks = new ConcurrentHashMap<>();
    private final Map<String, Sending> sendings = new HashMap<>();

    NodeProducers(NodeClients clients) {
        this.clients = clients;
    }

    DefaultMQProducer named(String name) {
        return producers.get(name);
    }

    /** What a command has sent so far. */
    private static final class Sending {
        final List<Map<String, Object>> acknowledged = Collections.synchronizedList(new ArrayList<>());
        final List<Map<String, Object>> failed = Collections.synchronizedList(new ArrayList<>());
        volatile boolean stopped;
        Thread thread;
        FileChannel journal;

        void note(Message message, SendResult result) {
            acknowledged.add(NodeMessages.result(message, result));
            if (journal != null) {
                byte[] line = (message.getKeys() + " " + result.getMsgId() + "\n").getBytes(StandardCharsets.UTF_8);
                try {
                    journal.write(ByteBuffer.wrap(line));
                } catch (IOException e) {
                    throw new IllegalStateException(e);
                }
            }
        }

        void fail(Message message, Throwable why) {
            failed.add(Json.row("keys", message.getKeys(), "error", why.toString()));
        }

        Map<String, Object> row() {
            return Json.row("acknowledged", List.copyOf(acknowledged), "failed", List.copyOf(failed));
        }
    }

    /** producer: name, group, transactional, latency_fault, retries, compress_over, max_message_size. */
    Object producer(JSONObject given) throws Exception {
        String name = given.getString("name");
        String group = given.getString("group");
        DefaultMQProducer producer = given.getBooleanValue("transactional")
            ? transactional(name, group) : new DefaultMQProducer(group, clients.hook());
        clients.configure(producer, given);
        producer.setSendMsgTimeout(given.getIntValue("timeout_ms") > 0 ? given.getIntValue("timeout_ms") : SEND_TIMEOUT_MS);
        producer.setSendLatencyFaultEnable(given.getBooleanValue("latency_fault"));
        if (given.containsKey("retries")) {
            producer.setRetryTimesWhenSendFailed(given.getIntValue("retries"));
            producer.setRetryTimesWhenSendAsyncFailed(given.getIntValue("retries"));
        }
        if (given.containsKey("compress_over")) {
            producer.setCompressMsgBodyOverHowmuch(given.getIntValue("compress_over"));
        }
        if (given.containsKey("default_topic_queues")) {
            producer.setDefaultTopicQueueNums(given.getIntValue("default_topic_queues"));
        }
        producer.start();
        if (given.getString("topic") != null) {
            // It asks for the route of what it publishes to: only then does the broker know the producer.
            producer.getDefaultMQProducerImpl().getTopicPublishInfoTable().put(given.getString("topic"), new TopicPublishInfo());
            producer.getDefaultMQProducerImpl().getMqClientFactory().updateTopicRouteInfoFromNameServer(given.getString("topic"));
            producer.getDefaultMQProducerImpl().getMqClientFactory().sendHeartbeatToAllBrokerWithLock();
        }
        producers.put(name, producer);
        return Json.row("client_id", producer.buildMQClientId());
    }

    private DefaultMQProducer transactional(String name, String group) {
        TransactionMQProducer producer = new TransactionMQProducer(group, clients.hook());
        checks.put(name, Collections.synchronizedList(new ArrayList<>()));
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return state(message.getProperty("local"));
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt half) {
                checks.get(name).add(NodeMessages.received(half));
                return state(half.getProperty("answer"));
            }
        });
        return producer;
    }

    private static LocalTransactionState state(String answer) {
        if ("commit".equals(answer)) {
            return LocalTransactionState.COMMIT_MESSAGE;
        }
        return "rollback".equals(answer) ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.UNKNOW;
    }

    /** checks: name of a transactional producer; the half messages that it was asked for, in order. */
    Object checks(JSONObject given) {
        return List.copyOf(checks.get(given.getString("name")));
    }

    /**
     * send: name, topic, messages or count and seed and size and tags; mode sync, async, oneway, batch, ordered,
     * transaction; queue; sharding_keys; in_flight; batch_size; journal; rate. Answers what became of each.
     */
    Object send(JSONObject given) throws Exception {
        Sending sending = new Sending();
        send(given, sending);
        return sending.row();
    }

    /** start_sending: as send, goes on by itself. */
    Object startSending(JSONObject given) throws Exception {
        Sending sending = new Sending();
        sending.thread = new Thread(() -> {
            try {
                send(given, sending);
            } catch (Exception e) {
                e.printStackTrace();
            }
        }, "sending");
        sendings.put(given.getString("name"), sending);
        sending.thread.start();
        return Json.row();
    }

    /** sent: what start_sending has sent so far. */
    Object sent(JSONObject given) {
        Sending sending = sendings.get(given.getString("name"));
        return Json.row("acknowledged", sending.acknowledged.size(), "failed", sending.failed.size(), "alive", sending.thread.isAlive());
    }

    /** join_sending: waits until all is sent, or stops if "stop"; answers as send. */
    Object joinSending(JSONObject given) throws Exception {
        Sending sending = sendings.remove(given.getString("name"));
        sending.stopped = given.getBooleanValue("stop");
        sending.thread.join();
        return sending.row();
    }

    private void send(JSONObject given, Sending sending) throws Exception {
        DefaultMQProducer producer = producers.get(given.getString("name"));
        List<Message> messages = NodeMessages.messages(given);
        String file = given.getString("journal");
        sending.journal = file == null ? null : FileChannel.open(Path.of(file), StandardOpenOption.CREATE,
            StandardOpenOption.WRITE, StandardOpenOption.APPEND);
        switch (given.getOrDefault("mode", "sync").toString()) {
            case "async" -> async(producer, messages, given, sending);
            case "batch" -> batches(producer, messages, given.getIntValue("batch_size"), sending);
            default -> oneByOne(producer, messages, given, sending);
        }
        if (sending.journal != null) {
            sending.journal.close();
        }
    }

    private static void oneByOne(DefaultMQProducer producer, List<Message> messages, JSONObject given, Sending sending)
        throws Exception {
        int rate = given.getIntValue("rate");
        for (int i = 0; i < messages.size() && !sending.stopped; i++) {
            Message message = messages.get(i);
            try {
                SendResult result = one(producer, message, i, given);
                if (result != null) {
                    sending.note(message, result);
                }
            } catch (Exception e) {
                sending.fail(message, e);
            }
            if (rate > 0) {
                TimeUnit.MICROSECONDS.sleep(1_000_000 / rate);
            }
        }
    }

    private static SendResult one(DefaultMQProducer producer, Message message, int number, JSONObject given)
        throws Exception {
        if (given.containsKey("queue")) {
            return producer.send(message, NodeMessages.queue(given.getJSONObject("queue")));
        }
        switch (given.getOrDefault("mode", "sync").toString()) {
            case "oneway" -> {
                producer.sendOneway(message);
                return null;
            }
            case "ordered" -> {
                String key = given.getJSONArray("sharding_keys").getString(number % given.getJSONArray("sharding_keys").size());
                return producer.send(message, new SelectMessageQueueByHash(), key);
            }
            case "transaction" -> {
                return ((TransactionMQProducer) producer).sendMessageInTransaction(message, null);
            }
            default -> {
                return producer.send(message);
            }
        }
    }

    private static void batches(DefaultMQProducer producer, List<Message> messages, int size, Sending sending) {
        int step = size > 0 ? size : messages.size();
        for (int at = 0; at < messages.size() && !sending.stopped; at += step) {
            List<Message> batch = messages.subList(at, Math.min(at + step, messages.size()));
            try {
                SendResult result = producer.send(batch);
                // One comma list of ids for all; the offset is the first message's.
                batch.forEach(message -> sending.note(message, result));
            } catch (Exception e) {
                batch.forEach(message -> sending.fail(message, e));
            }
        }
    }

    private static void async(DefaultMQProducer producer, List<Message> messages, JSONObject given, Sending sending)
        throws Exception {
        Semaphore room = new Semaphore(given.getIntValue("in_flight") > 0 ? given.getIntValue("in_flight") : 64);
        CountDownLatch open = new CountDownLatch(messages.size());
        Consumer<Message> ended = message -> {
            room.release();
            open.countDown();
        };
        for (Message message : messages) {
            room.acquire();
            producer.send(message, new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    sending.note(message, result);
                    ended.accept(message);
                }

                @Override
                public void onException(Throwable e) {
                    sending.fail(message, e);
                    ended.accept(message);
                }
            });
        }
        open.await();
    }

    /** close_producer: name. */
    Object close(JSONObject given) {
        producers.remove(given.getString("name")).shutdown();
        return Json.row();
    }
}
