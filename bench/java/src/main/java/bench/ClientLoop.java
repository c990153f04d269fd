// SPDX-License-Identifier: Apache-2.0
package bench;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;

import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** RocketMQ's own clients against a running cluster, as they come. */
final class ClientLoop {
    private static final int TIMEOUT_MS = 60_000;
    private static final int PULL_BATCH = 32;
    private static final int IN_FLIGHT = 64;
    private static final int NANOS = 1_000_000_000;
    private static final String GROUP = "java_baseline";

    private ClientLoop() { }

    /** Sends in one thread, over one connection: one by one, or so many in flight, or in batches of so many. */
    static void produce(String namesrv, String topic, int count, int bodySize, String mode, int each,
                        FilterLoop.Figure figure) throws Exception {
        DefaultMQProducer producer = configure(new DefaultMQProducer(GROUP), namesrv);
        producer.setSendMsgTimeout(TIMEOUT_MS);
        producer.start();
        byte[] body = new byte[bodySize];
        new Random(1).nextBytes(body);
        for (int round = 0; round < Integer.getInteger("rounds", 2); round++) {
            AtomicInteger failed = new AtomicInteger();
            long start = System.nanoTime();
            switch (mode) {
                case "threads": threads(producer, topic, count, body, each, failed); break;
                case "sync": sync(producer, topic, count, body, failed); break;
                case "async": async(producer, topic, count, body, each, failed); break;
                case "batch": batches(producer, topic, count, body, each, failed); break;
                default: throw new IllegalArgumentException(mode);
            }
            figure.print("produced", count, System.nanoTime() - start, ",\"failed\":" + failed + ",\"round\":" + round);
        }
        producer.shutdown();
    }

    private static Message message(String topic, int i, byte[] body) {
        return new Message(topic, "tag" + i % 7, "order" + i, body);
    }

    private static boolean isLost(SendResult result) {
        return result.getSendStatus() != SendStatus.SEND_OK;
    }

    private static void sync(DefaultMQProducer producer, String topic, int count, byte[] body, AtomicInteger failed)
        throws Exception {
        for (int i = 0; i < count; i++) {
            if (isLost(producer.send(message(topic, i, body)))) failed.incrementAndGet();
        }
    }

    private static void async(DefaultMQProducer producer, String topic, int count, byte[] body, int inFlight,
                              AtomicInteger failed) throws Exception {
        Semaphore room = new Semaphore(inFlight);
        CountDownLatch open = new CountDownLatch(count);
        for (int i = 0; i < count; i++) {
            room.acquire();
            producer.send(message(topic, i, body), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    ended(isLost(result));
                }

                @Override
                public void onException(Throwable e) {
                    ended(true);
                }

                private void ended(boolean lost) {
                    if (lost) failed.incrementAndGet();
                    room.release();
                    open.countDown();
                }
            });
        }
        open.await();
    }

    /** So many threads, each with 64 messages in flight, over one connection. */
    private static void threads(DefaultMQProducer producer, String topic, int count, byte[] body, int threads,
                                AtomicInteger failed) throws Exception {
        List<Thread> running = new ArrayList<>();
        for (int t = 0; t < threads; t++) {
            Thread thread = new Thread(() -> {
                try {
                    async(producer, topic, count / threads, body, IN_FLIGHT, failed);
                } catch (Exception e) {
                    failed.addAndGet(count);
                }
            });
            thread.start();
            running.add(thread);
        }
        for (Thread thread : running) thread.join();
    }

    private static void batches(DefaultMQProducer producer, String topic, int count, byte[] body, int size,
                                AtomicInteger failed) throws Exception {
        for (int i = 0; i < count; ) {
            List<Message> batch = new ArrayList<>(size);
            for (int end = Math.min(count, i + size); i < end; i++) batch.add(message(topic, i, body));
            if (isLost(producer.send(batch))) failed.addAndGet(batch.size());
        }
    }

    /** A listener that does nothing: from the first message that it gets until it has had them all. */
    static void push(String namesrv, String topic, int count, FilterLoop.Figure figure) throws Exception {
        for (int round = 0; round < Integer.getInteger("rounds", 2); round++) {
            DefaultMQPushConsumer consumer =
                configure(new DefaultMQPushConsumer(GROUP + "_" + System.currentTimeMillis()), namesrv);
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.subscribe(topic, "*");
            AtomicLong begin = new AtomicLong();
            AtomicInteger left = new AtomicInteger(count);
            CountDownLatch done = new CountDownLatch(1);
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                begin.compareAndSet(0, System.nanoTime());
                int now = left.addAndGet(-messages.size());
                if (now <= 0 && now > -messages.size()) done.countDown();
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
            done.await();
            figure.print("consumed", count, System.nanoTime() - begin.get(), ",\"round\":" + round);
            consumer.shutdown();
        }
    }

    /** Messages at a steady rate: from the send of each until a push consumer has it, the median and the 99th percentile. */
    static void latency(String namesrv, String topic, int count, int rate, FilterLoop.Figure figure) throws Exception {
        long[] nanos = new long[count];
        CountDownLatch warm = new CountDownLatch(count);
        CountDownLatch done = new CountDownLatch(count);
        DefaultMQPushConsumer consumer = configure(new DefaultMQPushConsumer(GROUP + "_latency"), namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            long now = System.nanoTime();
            for (MessageExt message : messages) {
                ByteBuffer body = ByteBuffer.wrap(message.getBody());
                int number = body.getInt();
                if (number >= 0) nanos[number] = now - body.getLong();
                (number < 0 ? warm : done).countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultMQProducer producer = configure(new DefaultMQProducer(GROUP), namesrv);
        producer.setSendMsgTimeout(TIMEOUT_MS);
        producer.start();
        sendAtRate(producer, topic, -count, 0, rate);
        await(warm);  // the consumer has its queues, and nothing waits there
        long begin = System.nanoTime();
        sendAtRate(producer, topic, 0, count, rate);
        await(done);
        Arrays.sort(nanos);
        figure.print("latency", count, System.nanoTime() - begin, ",\"median_ms\":" + nanos[count / 2] / 1e6
            + ",\"p99_ms\":" + nanos[count * 99 / 100] / 1e6);
        producer.shutdown();
        consumer.shutdown();
    }

    /** Sends messages, each with its number and time; the thread sleeps in between: brokers need the cores. */
    private static void sendAtRate(DefaultMQProducer producer, String topic, int from, int to, int rate)
        throws Exception {
        long begin = System.nanoTime();
        for (int i = from; i < to; i++) {
            long due = begin + (long) (i - from) * NANOS / rate;
            for (long now = System.nanoTime(); now < due; now = System.nanoTime()) LockSupport.parkNanos(due - now);
            byte[] body = ByteBuffer.allocate(1024).putInt(i).putLong(System.nanoTime()).array();
            producer.sendOneway(message(topic, Math.abs(i), body));
        }
    }

    private static void await(CountDownLatch latch) throws InterruptedException {
        if (!latch.await(TIMEOUT_MS, TimeUnit.MILLISECONDS)) {
            throw new IllegalStateException(latch.getCount() + " messages are missing");
        }
    }

    /** Threads with a pull consumer each, which share the queues of a topic; every message is decoded. */
    static void pull(String namesrv, String topic, int threads, FilterLoop.Figure figure) throws Exception {
        for (int round = 0; round < Integer.getInteger("rounds", 2); round++) {
            AtomicLong count = new AtomicLong();
            AtomicLong bytes = new AtomicLong();
            List<Thread> running = new ArrayList<>();
            List<DefaultMQPullConsumer> consumers = new ArrayList<>();
            for (int t = 0; t < threads; t++) {
                DefaultMQPullConsumer consumer = configure(new DefaultMQPullConsumer(GROUP), namesrv);
                consumer.setInstanceName(GROUP + round + "_" + t);
                consumer.start();
                consumers.add(consumer);
            }
            List<MessageQueue> queues = new ArrayList<>(consumers.get(0).fetchSubscribeMessageQueues(topic));
            queues.sort(null);
            long start = System.nanoTime();
            for (int t = 0; t < threads; t++) {
                final int first = t;
                Thread thread = new Thread(() -> {
                    for (int q = first; q < queues.size(); q += threads) {
                        pullQueue(consumers.get(first), queues.get(q), count, bytes);
                    }
                });
                thread.start();
                running.add(thread);
            }
            for (Thread thread : running) thread.join();
            figure.print("pulled", count.get(), System.nanoTime() - start,
                ",\"body_bytes\":" + bytes + ",\"threads\":" + threads + ",\"round\":" + round);
            consumers.forEach(DefaultMQPullConsumer::shutdown);
        }
    }

    private static void pullQueue(DefaultMQPullConsumer consumer, MessageQueue queue, AtomicLong count,
                                  AtomicLong bytes) {
        try {
            long end = consumer.maxOffset(queue);
            for (long at = consumer.minOffset(queue); at < end; ) {
                PullResult result = consumer.pull(queue, "*", at, PULL_BATCH);
                if (result.getPullStatus() == PullStatus.FOUND) {
                    for (MessageExt message : result.getMsgFoundList()) bytes.addAndGet(message.getBody().length);
                    count.addAndGet(result.getMsgFoundList().size());
                }
                at = result.getNextBeginOffset();
            }
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }

    private static <T extends ClientConfig> T configure(T client, String namesrv) {
        client.setNamesrvAddr(namesrv);
        client.setVipChannelEnabled(false);
        return client;
    }
}
