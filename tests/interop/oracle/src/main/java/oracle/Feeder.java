// SPDX-License-Identifier: Apache-2.0
package oracle;

import java.io.BufferedReader;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.store.PutMessageResult;

/** Puts messages and deletes segments as standard input says, and keeps a journal of what it put. */
final class Feeder {
    private static final long LONG_AGO_MS = 100L * 24 * 3600 * 1000;
    private static final int MESSAGES_PER_TOPIC = 2500;
    private static final int QUEUES = 4;
    private static final int TRIES = 500;

    private final StoreApi store;
    private final Path storeDir;
    private final Scribe scribe;
    private final OutputStream journal;
    private final long seed;
    private int number;

    Feeder(StoreApi store, Settings settings, Path storeDir, Path journal, long seed) throws Exception {
        this.store = store;
        this.storeDir = storeDir;
        this.scribe = new Scribe(store, settings, storeDir, seed);
        this.seed = seed;
        this.journal = new FileOutputStream(journal.toFile(), true);
    }

    /** Each line is a command, answered by a line of JSON; returns when the input ends. */
    void serve() throws Exception {
        answer(Map.of("open", true));
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("put")) {
                for (int left = Integer.parseInt(words[1]); left > 0; left--) {
                    put();
                }
            } else {
                expire(Long.parseLong(words[1]));
            }
            answer(Map.of("done", words[0]));
        }
        scribe.settle();
    }

    /** Writes to the journal what it is about to put, and then that it was put. */
    private void put() throws Exception {
        scribe.clock.advance(System.currentTimeMillis() - scribe.clock.now());
        String topic = "Feed" + number / MESSAGES_PER_TOPIC;
        Msg message = Profiles.ordinary(scribe, topic, scribe.random.nextInt(QUEUES));
        byte[] content = scribe.chance(2) ? scribe.bytes(8_000 + scribe.random.nextInt(24_000)) : message.getBody();
        message.setBody(Scribe.utf8(seed + "/" + number++ + " " + new String(content, StandardCharsets.ISO_8859_1)));
        message.setBornTimestamp(scribe.clock.now());
        note("put " + topic + " " + message.getQueueId() + " " + md5(message.getBody()));
        PutMessageResult result = store.put(message);
        for (int tries = 0; !result.isOk() && result.getAppendMessageResult() == null && tries < TRIES; tries++) {
            Thread.sleep(10); // a busy machine: nothing was stored
            result = store.put(message);
        }
        if (!result.isOk()) {
            throw new IllegalStateException(result + " for " + message);
        }
        note("ok 1");
    }

    /** Deletes segments that end at an offset or before. Waits: RocketMQ deletes what is not dispatched, too. */
    private void expire(long offset) throws Exception {
        scribe.settle();
        List<Path> segments = Tree.filesOf(storeDir.resolve("commitlog"));
        for (int i = 1; i < segments.size(); i++) {
            if (Long.parseLong(segments.get(i).getFileName().toString()) <= offset) {
                Tree.touch(segments.get(i - 1), System.currentTimeMillis() - LONG_AGO_MS);
            }
        }
        store.cleanExpiredFiles();
    }

    private void note(String line) throws Exception {
        journal.write((line + "\n").getBytes(StandardCharsets.UTF_8));
    }

    private static String md5(byte[] body) throws Exception {
        return String.format("%032x", new BigInteger(1, MessageDigest.getInstance("MD5").digest(body)));
    }

    private static void answer(Map<String, Object> said) {
        System.out.println(Json.write(said));
        System.out.flush();
    }
}
