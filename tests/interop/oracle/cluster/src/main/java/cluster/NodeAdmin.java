// SPDX-License-Identifier: Apache-2.0
package cluster;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** RocketMQ's own admin: queries and changes. */
final class NodeAdmin {
    private final NodeClients clients;
    private DefaultMQAdminExt admin;
    private int connection;

    NodeAdmin(NodeClients clients) {
        this.clients = clients;
    }

    private DefaultMQAdminExt admin() throws Exception {
        if (connection != clients.connection()) {
            close();
            connection = clients.connection();
            admin = clients.configure(new DefaultMQAdminExt(clients.hook(), 10_000L),
                (JSONObject) new JSONObject().fluentPut("name", "admin-" + connection));
            admin.start();
        }
        return admin;
    }

    /** Every answer of RocketMQ's classes as its getters say it; not for maps with queues as keys. */
    private static Object plain(Object answer) {
        return JSON.parse(JSON.toJSONString(answer, SerializerFeature.WriteMapNullValue,
            SerializerFeature.DisableCircularReferenceDetect));
    }

    /** Addresses of all masters, by their names. */
    private Map<String, String> masters() throws Exception {
        Map<String, String> masters = new TreeMap<>();
        admin().examineBrokerClusterInfo().getBrokerAddrTable().forEach((name, broker) ->
            masters.put(name, broker.getBrokerAddrs().get(0L)));
        return masters;
    }

    /** The broker of a command, by its name, or all of them. */
    private List<String> addresses(JSONObject given) throws Exception {
        String broker = given.getString("broker");
        return broker == null ? new ArrayList<>(masters().values()) : List.of(masters().get(broker));
    }

    /** create_topic: topic, broker or all, queues or read_queues and write_queues, perm, order, attributes. */
    Object createTopic(JSONObject given) throws Exception {
        TopicConfig config = new TopicConfig(given.getString("topic"));
        int queues = given.getIntValue("queues") > 0 ? given.getIntValue("queues") : 4;
        config.setReadQueueNums(given.containsKey("read_queues") ? given.getIntValue("read_queues") : queues);
        config.setWriteQueueNums(given.containsKey("write_queues") ? given.getIntValue("write_queues") : queues);
        config.setPerm(given.containsKey("perm") ? given.getIntValue("perm") : 6);
        config.setOrder(given.getBooleanValue("order"));
        if (given.containsKey("attributes")) {
            Compat.setAttributes(config, Commands.texts(given, "attributes"));
        }
        for (String address : addresses(given)) {
            admin().createAndUpdateTopicConfig(address, config);
        }
        return Json.row();
    }

    /** delete_topic: topic, cluster. */
    Object deleteTopic(JSONObject given) throws Exception {
        String cluster = given.getOrDefault("cluster", LocalCluster.CLUSTER_NAME).toString();
        admin().deleteTopicInBroker(new TreeSet<>(masters().values()), given.getString("topic"));
        for (String nameServer : admin().getNameServerAddressList()) {
            Compat.deleteTopicInNameServer(admin(), nameServer, cluster, given.getString("topic"));
        }
        return Json.row();
    }

    /** create_group: group, broker or all, and setters of SubscriptionGroupConfig in "settings". */
    Object createGroup(JSONObject given) throws Exception {
        for (String address : addresses(given)) {
            var config = Compat.newGroup(given.getString("group"));
            Properties settings = new Properties();
            settings.putAll(Commands.texts(given, "settings"));
            org.apache.rocketmq.common.MixAll.properties2Object(settings, config);
            admin().createAndUpdateSubscriptionGroupConfig(address, config);
        }
        return Json.row();
    }

    /** topic_configs, groups: broker; every one by its name. */
    Object topicConfigs(JSONObject given) throws Exception {
        Map<String, Object> rows = new TreeMap<>();
        admin().getAllTopicConfig(addresses(given).get(0), 5_000).getTopicConfigTable().forEach((name, config) ->
            rows.put(name, plain(config)));
        return rows;
    }

    Object groups(JSONObject given) throws Exception {
        Map<String, Object> rows = new TreeMap<>();
        admin().getAllSubscriptionGroup(addresses(given).get(0), 5_000).getSubscriptionGroupTable()
            .forEach((name, config) -> rows.put(name, plain(config)));
        return rows;
    }

    /** topics: all that the name server knows. */
    Object topics(JSONObject given) throws Exception {
        return new TreeSet<>(admin().fetchAllTopicList().getTopicList());
    }

    /** route: topic. */
    Object route(JSONObject given) throws Exception {
        return plain(admin().examineTopicRouteInfo(given.getString("topic")));
    }

    /** cluster. */
    Object cluster(JSONObject given) throws Exception {
        return plain(admin().examineBrokerClusterInfo());
    }

    /** consume_stats: group, topic or all; a row a queue. */
    Object consumeStats(JSONObject given) throws Exception {
        var stats = given.getString("topic") == null ? admin().examineConsumeStats(given.getString("group"))
            : admin().examineConsumeStats(given.getString("group"), given.getString("topic"));
        List<Map<String, Object>> rows = new ArrayList<>();
        for (MessageQueue queue : new TreeSet<>(stats.getOffsetTable().keySet())) {
            var wrapper = stats.getOffsetTable().get(queue);
            Map<String, Object> row = NodeMessages.row(queue);
            row.put("broker_offset", wrapper.getBrokerOffset());
            row.put("consumer_offset", wrapper.getConsumerOffset());
            row.put("last_timestamp", wrapper.getLastTimestamp());
            rows.add(row);
        }
        return rows;
    }

    /** topic_stats: topic; a row a queue. */
    Object topicStats(JSONObject given) throws Exception {
        var stats = admin().examineTopicStats(given.getString("topic"));
        List<Map<String, Object>> rows = new ArrayList<>();
        for (MessageQueue queue : new TreeSet<>(stats.getOffsetTable().keySet())) {
            var offsets = stats.getOffsetTable().get(queue);
            Map<String, Object> row = NodeMessages.row(queue);
            row.put("min_offset", offsets.getMinOffset());
            row.put("max_offset", offsets.getMaxOffset());
            row.put("last_update_timestamp", offsets.getLastUpdateTimestamp());
            rows.add(row);
        }
        return rows;
    }

    /** consumer_connections: group. */
    Object consumerConnections(JSONObject given) throws Exception {
        return plain(admin().examineConsumerConnectionInfo(given.getString("group")));
    }

    /** producer_connections: group, topic. */
    Object producerConnections(JSONObject given) throws Exception {
        return plain(admin().examineProducerConnectionInfo(given.getString("group"), given.getString("topic")));
    }

    /** running_info: group, client_id; properties, subscriptions, and a row a queue. */
    Object runningInfo(JSONObject given) throws Exception {
        var info = admin().getConsumerRunningInfo(given.getString("group"), given.getString("client_id"),
            given.getBooleanValue("jstack"));
        List<Map<String, Object>> queues = new ArrayList<>();
        info.getMqTable().forEach((queue, process) -> {
            Map<String, Object> row = NodeMessages.row(queue);
            row.put("info", plain(process));
            queues.add(row);
        });
        return Json.row("properties", info.getProperties(), "subscriptions", plain(info.getSubscriptionSet()),
            "queues", queues, "status", plain(info.getStatusTable()), "jstack", info.getJstack());
    }

    /** consume_status: topic, group, client_id; the offsets that clients keep. */
    Object consumeStatus(JSONObject given) throws Exception {
        Map<String, Object> rows = new TreeMap<>();
        admin().getConsumeStatus(given.getString("topic"), given.getString("group"),
            given.getOrDefault("client_id", "").toString()).forEach((client, table) ->
                rows.put(client, NodeMessages.rows(table, "offset")));
        return rows;
    }

    /** consume_directly: group, client_id, topic, msg_id. */
    Object consumeDirectly(JSONObject given) throws Exception {
        return plain(admin().consumeMessageDirectly(given.getString("group"), given.getString("client_id"),
            given.getString("topic"), given.getString("msg_id")));
    }

    /** reset_offset: topic, group, timestamp, force; the new offsets. */
    Object resetOffset(JSONObject given) throws Exception {
        return NodeMessages.rows(admin().resetOffsetByTimestamp(given.getString("topic"), given.getString("group"),
            given.getLongValue("timestamp"), given.getBooleanValue("force")), "offset");
    }

    /** who_consumes: topic. */
    Object whoConsumes(JSONObject given) throws Exception {
        return plain(admin().queryTopicConsumeByWho(given.getString("topic")));
    }

    /** offsets: topic, timestamp or none; a row a queue with minimum, maximum and the offset of the time. */
    Object offsets(JSONObject given) throws Exception {
        List<Map<String, Object>> rows = new ArrayList<>();
        var stats = admin().examineTopicStats(given.getString("topic"));
        for (MessageQueue queue : new TreeSet<>(stats.getOffsetTable().keySet())) {
            Map<String, Object> row = NodeMessages.row(queue);
            row.put("min_offset", admin().minOffset(queue));
            row.put("max_offset", admin().maxOffset(queue));
            row.put("earliest_ms", admin().earliestMsgStoreTime(queue));
            if (given.containsKey("timestamp")) {
                row.put("at_timestamp", admin().searchOffset(queue, given.getLongValue("timestamp")));
            }
            rows.add(row);
        }
        return rows;
    }

    /** view: topic, msg_id (either id). */
    Object view(JSONObject given) throws Exception {
        return NodeMessages.received(admin().viewMessage(given.getString("topic"), given.getString("msg_id")));
    }

    /** query: topic, key, max, begin, end. */
    Object query(JSONObject given) throws Exception {
        List<Map<String, Object>> rows = new ArrayList<>();
        long end = given.getLongValue("end") > 0 ? given.getLongValue("end") : Long.MAX_VALUE;
        int max = given.getIntValue("max") > 0 ? given.getIntValue("max") : 64;
        for (MessageExt message : admin().queryMessage(given.getString("topic"), given.getString("key"), max,
            given.getLongValue("begin"), end).getMessageList()) {
            rows.add(NodeMessages.received(message));
        }
        return rows;
    }

    /** broker_config: broker; update_broker_config: broker or all, settings. */
    Object brokerConfig(JSONObject given) throws Exception {
        return new TreeMap<>(admin().getBrokerConfig(addresses(given).get(0)));
    }

    Object updateBrokerConfig(JSONObject given) throws Exception {
        Properties settings = new Properties();
        settings.putAll(Commands.texts(given, "settings"));
        for (String address : addresses(given)) {
            admin().updateBrokerConfig(address, settings);
        }
        return Json.row();
    }

    /** put_kv, get_kv: namespace, key, value. */
    Object putKv(JSONObject given) throws Exception {
        admin().createAndUpdateKvConfig(given.getString("namespace"), given.getString("key"), given.getString("value"));
        return Json.row();
    }

    Object getKv(JSONObject given) throws Exception {
        return plain(Set.of(admin().getKVConfig(given.getString("namespace"), given.getString("key"))));
    }

    void close() {
        if (admin != null) {
            admin.shutdown();
        }
    }
}
