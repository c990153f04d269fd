// SPDX-License-Identifier: Apache-2.0
package bench;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;

import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageStatus;
import org.apache.rocketmq.store.ha.HAConnectionState;

/** RocketMQ's own replication, master or slave in a process; each lives until its standard input ends. */
final class HaLoop {
    private static final int ROUNDS = 2;
    private static final int POLL_MS = 1;

    private HaLoop() { }

    /** Serves a store as it is. */
    static void master(DefaultMessageStore store, FilterLoop.Figure figure) throws Exception {
        start(store);
        listening(store, figure);
        untilInputEnds();
    }

    /**
     * Follows a master; prints the time from the connection until the log ends at {@code end}, and until queues and
     * index have it all. With 0 it only follows.
     */
    static void slave(DefaultMessageStore store, String master, long end, FilterLoop.Figure figure) throws Exception {
        start(store);
        long begin = store.getMaxPhyOffset();
        store.updateHaMasterAddress(master);
        while (store.getHaService().getHAClient().getCurrentState() != HAConnectionState.TRANSFER) pause();
        long connected = System.nanoTime();
        figure.print("connected", begin, 1, "");
        if (end > 0) {
            while (store.getMaxPhyOffset() < end) pause();
            figure.print("log", end - begin, System.nanoTime() - connected, "");
            while (store.dispatchBehindBytes() > 0) pause();
            figure.print("dispatched", end - begin, System.nanoTime() - connected, "");
        }
        untilInputEnds();
    }

    /** Puts messages that a slave must have before they are acknowledged; the second round is warm. */
    static void put(DefaultMessageStore store, int count, int bodySize, int threads, FilterLoop.Figure figure)
        throws Exception {
        start(store);
        listening(store, figure);
        byte[] body = new byte[bodySize];
        while (!isReplicated(store, 0, 0, body)) pause();
        for (int round = 0; round < ROUNDS; round++) {
            AtomicInteger failed = new AtomicInteger();
            List<Thread> running = new ArrayList<>();
            long start = System.nanoTime();
            for (int t = 0; t < threads; t++) {
                final int id = t;
                Thread thread = new Thread(() -> {
                    for (int i = id; i < count; i += threads) {
                        if (!isReplicated(store, id, i, body)) failed.incrementAndGet();
                    }
                });
                thread.start();
                running.add(thread);
            }
            for (Thread thread : running) thread.join();
            long nanos = System.nanoTime() - start;
            figure.print("put", count, nanos, ",\"failed\":" + failed + ",\"round\":" + round);
        }
        untilInputEnds();
    }

    private static boolean isReplicated(DefaultMessageStore store, int thread, int i, byte[] body) {
        // isOk() says only that the log has it.
        return store.putMessage(JavaBaseline.message(thread, i, body)).getPutMessageStatus() == PutMessageStatus.PUT_OK;
    }

    private static void start(DefaultMessageStore store) throws Exception {
        if (!store.load()) throw new IllegalStateException("load");
        store.start();
    }

    /** Says where the master listens: port 0 became a free one. */
    private static void listening(DefaultMessageStore store, FilterLoop.Figure figure) {
        figure.print("listening", store.getMaxPhyOffset(), 1,
            ",\"port\":" + store.getMessageStoreConfig().getHaListenPort());
    }

    private static void pause() throws InterruptedException {
        Thread.sleep(POLL_MS);
    }

    private static void untilInputEnds() throws IOException {
        System.out.flush();
        while (System.in.read() >= 0) { }
    }
}
