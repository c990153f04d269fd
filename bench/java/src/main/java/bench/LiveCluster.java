// SPDX-License-Identifier: Apache-2.0
package bench;

import java.io.File;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;

import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** A name server and a broker on loopback, as they come; they live until standard input ends. */
final class LiveCluster {
    private static final String HOST = "127.0.0.1";
    private static final int BUSY_MS = 60_000;
    private static final int REGISTER_ATTEMPTS = 600;
    private static final int PAUSE_MS = 50;

    private LiveCluster() { }

    /** Serves a store; each topic is {@code NAME=QUEUES}. Prints the name server's port once all is known to it. */
    static void serve(String root, String[] topics, FilterLoop.Figure figure) throws Exception {
        // Without it requests carry version 0, and the name server drops the topics of a broker.
        System.setProperty("rocketmq.remoting.version", Integer.toString(MQVersion.CURRENT_VERSION));
        NamesrvController namesrv = nameServer(root);
        BrokerController broker = broker(root, namesrv.getNettyServerConfig().getListenPort());
        for (String topic : topics) {
            String[] pair = topic.split("=");
            int queues = Integer.parseInt(pair[1]);
            broker.getTopicConfigManager().updateTopicConfig(new TopicConfig(pair[0], queues, queues));
        }
        for (int attempt = 0; namesrv.getRouteInfoManager().pickupTopicRouteData("TBW102") == null; attempt++) {
            if (attempt == REGISTER_ATTEMPTS) throw new IllegalStateException("the broker did not register");
            broker.registerBrokerAll(true, false, true);
            Thread.sleep(PAUSE_MS);
        }
        figure.print("listening", topics.length, 1, ",\"port\":" + namesrv.getNettyServerConfig().getListenPort());
        System.out.flush();
        while (System.in.read() >= 0) { }
    }

    private static NamesrvController nameServer(String root) throws Exception {
        NettyServerConfig net = new NettyServerConfig();
        net.setBindAddress(HOST);
        net.setListenPort(freePort());
        NamesrvConfig config = new NamesrvConfig();
        config.setKvConfigPath(new File(root, "namesrv-kv.json").getPath());
        config.setConfigStorePath(new File(root, "namesrv.properties").getPath());
        NamesrvController controller = new NamesrvController(config, net);
        if (!controller.initialize()) throw new IllegalStateException("the name server did not initialize");
        controller.start();
        return controller;
    }

    private static BrokerController broker(String root, int namesrvPort) throws Exception {
        BrokerConfig config = new BrokerConfig();
        config.setBrokerName("broker-a");
        config.setBrokerIP1(HOST);
        config.setBrokerIP2(HOST);
        config.setNamesrvAddr(HOST + ":" + namesrvPort);
        config.setWaitTimeMillsInSendQueue(BUSY_MS);
        NettyServerConfig net = new NettyServerConfig();
        net.setBindAddress(HOST);
        net.setListenPort(freePort());
        MessageStoreConfig store = JavaBaseline.config(root);
        store.setStorePathCommitLog(new File(root, "commitlog").getPath());
        BrokerController controller = new BrokerController(config, net, new NettyClientConfig(), store);
        if (!controller.initialize()) throw new IllegalStateException("the broker did not initialize");
        controller.start();
        return controller;
    }

    /** A broker also listens two below. */
    private static int freePort() throws IOException {
        while (true) {
            try (ServerSocket one = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
                ServerSocket fast = new ServerSocket(one.getLocalPort() - 2, 1, InetAddress.getLoopbackAddress())) {
                return one.getLocalPort();
            } catch (java.net.BindException e) {
                continue;
            }
        }
    }
}
