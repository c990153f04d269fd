// SPDX-License-Identifier: Apache-2.0
package cluster;

import org.apache.rocketmq.store.DefaultMessageStore;

/** Runs RocketMQ's own clean shutdown, without the seconds that it idles meanwhile. */
final class CleanStop {
    private CleanStop() { }

    /** The store sleeps before it begins, and each server waits for a thread that looks every three seconds. */
    static void run(Runnable shutdown) throws InterruptedException {
        Thread stopper = new Thread(shutdown, "stopper");
        stopper.start();
        while (stopper.isAlive()) {
            StackTraceElement[] frames = stopper.getStackTrace();
            if (sleepsInShutdown(frames)) {
                stopper.interrupt();
            } else if (isIn(frames, ".NettyRemotingServer", "shutdown") || isIn(frames, ".NettyRemotingClient", "shutdown")) {
                wakeEventExecutors();
            }
            stopper.join(20);
        }
    }

    private static void wakeEventExecutors() {
        for (Thread thread : Thread.getAllStackTraces().keySet()) {
            if (thread.getName().startsWith("NettyEventExecutor")) {
                thread.interrupt();
            }
        }
    }

    private static boolean isIn(StackTraceElement[] frames, String classEnd, String method) {
        for (StackTraceElement frame : frames) {
            if (frame.getClassName().endsWith(classEnd) && frame.getMethodName().equals(method)) {
                return true;
            }
        }
        return false;
    }

    private static boolean sleepsInShutdown(StackTraceElement[] frames) {
        for (int i = 0; i + 1 < frames.length; i++) {
            if (frames[i].getClassName().equals("java.lang.Thread") && frames[i].getMethodName().startsWith("sleep")) {
                String caller = frames[i + 1].getClassName() + "." + frames[i + 1].getMethodName();
                if (caller.equals(DefaultMessageStore.class.getName() + ".shutdown")) {
                    return true;
                }
            }
        }
        return false;
    }
}
