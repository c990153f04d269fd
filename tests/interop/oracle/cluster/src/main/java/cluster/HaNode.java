// SPDX-License-Identifier: Apache-2.0
package cluster;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.Selector;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.apache.rocketmq.common.ServiceThread;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.store.AppendMessageResult;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;

/**
 * A real message store, replication master or slave, that obeys standard input: one command a line, each answered by
 * one line of JSON. The process that started it may kill it at any moment.
 */
final class HaNode {
    private static final int TOPICS = 3;
    private static final int QUEUES = 4;
    private static final String[] TAGS = {"TagA", "TagB", "größe"};

    private DefaultMessageStore store;
    private volatile Thread nudger;
    private final List<Thread> putters = new ArrayList<>();
    private final Map<String, Long> statuses = new TreeMap<>();
    private volatile boolean putting;

    private HaNode() { }

    /** ha-node: commands open, put, join, state, wait, stop; ends cleanly when its input does. */
    static boolean run() throws Exception {
        HaNode node = new HaNode();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                node.obey(line.split(" "));
            } catch (Exception e) {
                e.printStackTrace();
                say("event", "error", "message", line + ": " + e);
            }
        }
        node.stop();
        return true;
    }

    private static void say(Object... keysAndValues) {
        System.out.println(Json.text(Json.row(keysAndValues)));
        System.out.flush();
    }

    private void obey(String[] words) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (String word : words) {
            int at = word.indexOf('=');
            if (at > 0) {
                options.put(word.substring(0, at), word.substring(at + 1));
            }
        }
        switch (words[0]) {
            case "open" -> open(Main.absolute(words[1]), Integer.parseInt(words[2]), words[3], options);
            case "put" -> put(Integer.parseInt(words[1]), Long.parseLong(words[2]), options);
            case "join" -> join();
            case "state" -> say(state("state"));
            case "wait" -> await(Long.parseLong(words[1]), Integer.parseInt(words[2]));
            case "stop" -> {
                stop();
                say("event", "stopped");
            }
            default -> throw new IllegalArgumentException("unknown command " + words[0]);
        }
    }

    /** open STOREDIR HAPORT ROLE [master=HOST:PORT] [nudge=MS] [SETTING=VALUE]... */
    private void open(Path directory, int haPort, String role, Map<String, String> options) throws Exception {
        Properties settings = LocalCluster.baseSettings();
        options.forEach(settings::setProperty);
        String master = options.get("master");
        store = Ha.open(directory, role, haPort, "SLAVE".equals(role) ? 1 : 0, settings);
        if (master != null) {
            store.updateHaMasterAddress(master);
            nudge(Long.parseLong(options.getOrDefault("nudge", "0")));
        }
        say(state("opened"));
    }

    /**
     * Wakes the thread that follows the master from its pauses: up to a second for bytes to come, and five seconds
     * before it connects again, for which there is no setting.
     */
    private void nudge(long everyMs) throws Exception {
        if (everyMs <= 0) {
            return;
        }
        Object client = valueOf(store.getHaService(), "haClient");
        Selector selector = (Selector) valueOf(client, "selector");
        nudger = new Thread(() -> {
            while (nudger == Thread.currentThread()) {
                ((ServiceThread) client).wakeup();
                selector.wakeup();
                pause(everyMs);
            }
        }, "nudger");
        nudger.setDaemon(true);
        nudger.start();
    }

    private static Object valueOf(Object owner, String name) throws Exception {
        Field field = owner.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return field.get(owner);
    }

    private static void pause(long ms) {
        try {
            TimeUnit.MILLISECONDS.sleep(ms);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    /** put COUNT SEED [threads=1] [rate=PER_SECOND] [journal=FILE]; goes on by itself. */
    private void put(int count, long seed, Map<String, String> options) throws Exception {
        int threads = Integer.parseInt(options.getOrDefault("threads", "1"));
        int rate = Integer.parseInt(options.getOrDefault("rate", "0"));
        String file = options.get("journal");
        FileChannel journal = file == null ? null : FileChannel.open(Path.of(file), StandardOpenOption.CREATE,
            StandardOpenOption.WRITE, StandardOpenOption.APPEND);
        InetSocketAddress host = new InetSocketAddress(InetAddress.getByName("127.0.0.1"), 10911);
        long pauseMs = rate == 0 ? 0 : 1000L * threads / rate;
        putting = true;
        for (int thread = 0; thread < threads; thread++) {
            int first = thread;
            Thread putter = new Thread(() -> {
                for (int i = first; i < count && putting; i += threads) {
                    putOne(seed, i, host, journal);
                    pause(pauseMs);
                }
            }, "putter-" + thread);
            putters.add(putter);
            putter.start();
        }
        say("event", "putting");
    }

    private void putOne(long seed, int number, InetSocketAddress host, FileChannel journal) {
        Random random = new Random(seed * 1_000_003 + number);
        String key = "K" + seed + "-" + number;
        int size = random.nextInt(50) == 0 ? random.nextInt(30_000) : random.nextInt(900);
        Message message = new Message("replicated" + random.nextInt(TOPICS), (key + " " + "x".repeat(size)).getBytes(
            StandardCharsets.UTF_8));
        if (random.nextInt(4) > 0) {
            message.setTags(TAGS[random.nextInt(TAGS.length)]);
        }
        message.setKeys(random.nextInt(3) == 0 ? key + " shared" : key);
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, "U" + key);
        PutMessageResult result =
            Compat.put(store, message, random.nextInt(QUEUES), host, System.currentTimeMillis());
        String status = result.getPutMessageStatus().name();
        synchronized (statuses) {
            statuses.merge(status, 1L, Long::sum);
        }
        if (journal != null && "PUT_OK".equals(status)) {
            note(journal, key, result.getAppendMessageResult());
        }
    }

    /** The journal's bytes are in the kernel before the next command: a killed JVM loses none. */
    private static void note(FileChannel journal, String key, AppendMessageResult written) {
        String line = key + " " + written.getWroteOffset() + " " + written.getWroteBytes() + "\n";
        try {
            journal.write(ByteBuffer.wrap(line.getBytes(StandardCharsets.UTF_8)));
        } catch (IOException e) {
            throw new IllegalStateException(e);
        }
    }

    /** Waits until all is put. */
    private void join() throws InterruptedException {
        for (Thread putter : putters) {
            putter.join();
        }
        putters.clear();
        say(state("put"));
    }

    private Object[] state(String event) {
        Map<String, Long> counted;
        synchronized (statuses) {
            counted = new TreeMap<>(statuses);
        }
        return new Object[] {"event", event, "min_phy_offset", store.getMinPhyOffset(),
            "max_phy_offset", store.getMaxPhyOffset(), "dispatch_behind_bytes", store.dispatchBehindBytes(),
            "connections", store.getHaService().getConnectionCount().get(),
            "slave_acknowledged_offset", store.getHaService().getPush2SlaveMaxOffset().get(), "statuses", counted};
    }

    /** wait OFFSET SECONDS: until the log reaches the offset and all of it is dispatched. */
    private void await(long offset, int seconds) {
        BooleanSupplier there = () -> store.getMaxPhyOffset() >= offset && store.dispatchBehindBytes() <= 0;
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
        while (!there.getAsBoolean() && System.nanoTime() < deadline) {
            pause(5);
        }
        say(state(there.getAsBoolean() ? "reached" : "late"));
    }

    /** Stops cleanly, without the seconds that RocketMQ sleeps before it begins. */
    private void stop() throws InterruptedException {
        if (store == null) {
            return;
        }
        putting = false;
        for (Thread putter : putters) {
            putter.join();
        }
        putters.clear();
        statuses.clear();
        nudger = null;
        CleanStop.run(store::shutdown);
        store = null;
    }
}
