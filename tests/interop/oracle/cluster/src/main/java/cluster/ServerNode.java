// SPDX-License-Identifier: Apache-2.0
package cluster;

import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.common.TlsMode;
import org.apache.rocketmq.remoting.exception.RemotingException;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyRemotingClient;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.netty.TlsSystemConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** A real name server or broker that obeys standard input. Its parent may kill it at any moment. */
final class ServerNode {
    private static final int GET_ROUTE_BY_TOPIC = 105;
    private static final int ANSWER_MS = 3_000;
    private static final int REGISTER_SECONDS = 90;
    private static final boolean ENCRYPTED = TlsSystemConfig.tlsMode == TlsMode.ENFORCING;

    private BrokerController broker;

    private ServerNode() { }

    /** server-node: commands name_server, broker, stop. */
    static boolean run() throws Exception {
        ServerNode node = new ServerNode();
        Commands.serve(Map.of(
            "name_server", node::nameServer,
            "broker", node::broker,
            "stop", node::stop));
        return true;
    }

    private Object nameServer(JSONObject given) throws Exception {
        Properties settings = new Properties();
        settings.setProperty("bindAddress", "127.0.0.1");
        settings.putAll(Commands.texts(given, "settings"));
        NettyServerConfig net = new NettyServerConfig();
        NamesrvConfig config = new NamesrvConfig();
        MixAll.properties2Object(settings, net);
        MixAll.properties2Object(settings, config);
        net.setListenPort(given.getIntValue("port"));
        Path directory = Path.of(given.getString("directory"));
        Files.createDirectories(directory);
        config.setKvConfigPath(directory.resolve("kvConfig.json").toString());
        config.setConfigStorePath(directory.resolve("namesrv.properties").toString());
        NamesrvController controller = new NamesrvController(config, net);
        if (!controller.initialize()) {
            throw new IllegalStateException("the name server did not initialize");
        }
        controller.start();
        return Json.row("port", net.getListenPort());
    }

    private Object broker(JSONObject given) throws Exception {
        Path store = Main.absolute(given.getString("store"));
        int port = given.getIntValue("port");
        Properties settings = LocalCluster.quickSettings();
        settings.putAll(Commands.texts(given, "settings"));
        settings.setProperty("namesrvAddr", given.getString("namesrv_addr"));
        settings.setProperty("listenPort", Integer.toString(port));
        settings.setProperty("haListenPort", Integer.toString(port + 1));
        settings.setProperty("storePathRootDir", store.toString());
        settings.setProperty("storePathCommitLog", store.resolve("commitlog").toString());
        BrokerConfig config = new BrokerConfig();
        NettyServerConfig net = new NettyServerConfig();
        NettyClientConfig client = new NettyClientConfig();
        MessageStoreConfig storeConfig = new MessageStoreConfig();
        client.setUseTLS(ENCRYPTED);
        for (Object each : new Object[] {config, net, client, storeConfig}) {
            MixAll.properties2Object(settings, each);
        }
        BrokerController controller = Compat.newBroker(config, net, client, storeConfig, settings);
        if (!controller.initialize()) {
            throw new IllegalStateException("the broker did not initialize on " + store);
        }
        controller.start();
        broker = controller;
        awaitRegistration(config, given.getString("namesrv_addr"));
        return Json.row("settings", settings);
    }

    /**
     * A 5.x broker registers only with name servers that it has already probed, else again 10 s later; a topic
     * created in between is refused by the name server. So register until each name server knows this broker.
     */
    private void awaitRegistration(BrokerConfig config, String nameServers) throws Exception {
        NettyClientConfig net = new NettyClientConfig();
        net.setUseTLS(ENCRYPTED);
        NettyRemotingClient client = new NettyRemotingClient(net);
        client.start();
        try {
            String own = config.getBrokerIP1() + ":" + broker.getNettyServerConfig().getListenPort();
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(REGISTER_SECONDS);
            for (String address : nameServers.split(";")) {
                do {
                    if (System.nanoTime() > deadline) {
                        throw new IllegalStateException("the broker did not register with " + address);
                    }
                    broker.registerBrokerAll(true, false, true);
                    TimeUnit.MILLISECONDS.sleep(50);
                } while (!isKnown(client, address, own));
            }
        } finally {
            client.shutdown();
        }
    }

    private static boolean isKnown(NettyRemotingClient client, String nameServer, String broker)
        throws InterruptedException {
        RemotingCommand request = RemotingCommand.createRequestCommand(GET_ROUTE_BY_TOPIC, null);
        request.addExtField("topic", "TBW102");
        try {
            RemotingCommand answer = client.invokeSync(nameServer, request, ANSWER_MS);
            String route = new String(answer.getBody() == null ? new byte[0] : answer.getBody(), StandardCharsets.UTF_8);
            return answer.getCode() == 0 && route.contains("\"" + broker + "\"");
        } catch (RemotingException e) {
            return false;  // too busy to answer in time: the caller has a deadline
        }
    }

    /** Stops the broker cleanly, without the seconds that RocketMQ sleeps meanwhile. */
    private Object stop(JSONObject given) throws Exception {
        long begin = System.nanoTime();
        if (broker != null) {
            CleanStop.run(broker::shutdown);
            broker = null;
        }
        return Json.row("millis", TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - begin));
    }
}
