// SPDX-License-Identifier: Apache-2.0
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;

/**
 * A network between a server and its clients: each request waits, each connection has its own rate.
 *
 * <p>Arguments: the server's port, milliseconds a request, bytes a second of a connection (0: no
 * bound). Prints its own port; ends with standard input.
 */
public class SlowLink {
    private static final int PIECE_BYTES = 1 << 16;

    public static void main(String[] arguments) throws Exception {
        int target = Integer.parseInt(arguments[0]);
        long waitMs = Long.parseLong(arguments[1]);
        long rate = Long.parseLong(arguments[2]);
        ServerSocket server = new ServerSocket(0, 128, InetAddress.getLoopbackAddress());
        System.out.println("port " + server.getLocalPort());
        System.out.flush();
        inThread(() -> {
            while (System.in.read() >= 0) {
                // until whoever started this closes it
            }
            System.exit(0);
        });
        while (true) {
            Socket client = server.accept();
            Socket there = new Socket(InetAddress.getLoopbackAddress(), target);
            client.setTcpNoDelay(true);
            there.setTcpNoDelay(true);
            inThread(() -> forward(client, there, waitMs, 0));
            inThread(() -> forward(there, client, 0, rate));
        }
    }

    /** A request is what a client sends at once: it waits for the answer before the next one. */
    private static void forward(Socket from, Socket to, long waitMs, long rate) throws Exception {
        byte[] piece = new byte[PIECE_BYTES];
        try (Socket a = from; Socket b = to) {
            InputStream in = a.getInputStream();
            OutputStream out = b.getOutputStream();
            long begun = 0;
            long sent = 0;
            int length;
            while ((length = in.read(piece)) >= 0) {
                if (waitMs > 0) {
                    Thread.sleep(waitMs);
                }
                long now = System.nanoTime();
                if (rate > 0) {
                    long due = begun + sent * 1_000_000_000L / rate;
                    if (due < now - 50_000_000L) { // it was idle
                        begun = now;
                        sent = 0;
                    } else if (due > now) {
                        Thread.sleep((due - now) / 1_000_000L, (int) ((due - now) % 1_000_000L));
                    }
                }
                out.write(piece, 0, length);
                sent += length;
            }
        } catch (IOException gone) {
            // one side closed the connection
        }
    }

    private static void inThread(Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (Exception gone) {
                // the connection ends
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    private interface Work {
        void run() throws Exception;
    }
}
