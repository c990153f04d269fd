// SPDX-License-Identifier: Apache-2.0
package cluster;

import java.util.TreeMap;
import java.util.Map;

/** RocketMQ's own clients, which obey standard input and report their results. */
final class ClientNode {
    private ClientNode() { }

    /** client-node: each command is described at its method; see README.md. */
    static boolean run() throws Exception {
        NodeClients clients = new NodeClients();
        Map<String, Commands.Action> actions = new TreeMap<>();
        actions.put("connect", clients::connect);
        NodeProducers producers = new NodeProducers(clients);
        addProducers(actions, producers);
        actions.putAll(new NodeReplies(clients, producers).actions());
        addConsumers(actions, new NodeConsumers(clients));
        addAdmin(actions, new NodeAdmin(clients));
        Commands.serve(actions);
        return true;
    }

    private static void addProducers(Map<String, Commands.Action> actions, NodeProducers producers) {
        actions.put("producer", producers::producer);
        actions.put("send", producers::send);
        actions.put("start_sending", producers::startSending);
        actions.put("sent", producers::sent);
        actions.put("join_sending", producers::joinSending);
        actions.put("checks", producers::checks);
        actions.put("close_producer", producers::close);
    }

    private static void addConsumers(Map<String, Commands.Action> actions, NodeConsumers consumers) {
        actions.put("consumer", consumers::consumer);
        actions.put("received", consumers::received);
        actions.put("received_count", consumers::receivedCount);
        actions.put("allocation", consumers::allocation);
        actions.put("allocate", consumers::allocate);
        actions.put("own_offsets", consumers::ownOffsets);
        actions.put("suspend", consumers::suspend);
        actions.put("resume", consumers::resume);
        actions.put("close_consumer", consumers::close);
        actions.put("pull", consumers::pull);
        actions.put("pull_all", consumers::pullAll);
    }

    private static void addAdmin(Map<String, Commands.Action> actions, NodeAdmin admin) {
        actions.put("create_topic", admin::createTopic);
        actions.put("delete_topic", admin::deleteTopic);
        actions.put("create_group", admin::createGroup);
        actions.put("topic_configs", admin::topicConfigs);
        actions.put("groups", admin::groups);
        actions.put("topics", admin::topics);
        actions.put("route", admin::route);
        actions.put("cluster", admin::cluster);
        actions.put("consume_stats", admin::consumeStats);
        actions.put("topic_stats", admin::topicStats);
        actions.put("consumer_connections", admin::consumerConnections);
        actions.put("producer_connections", admin::producerConnections);
        actions.put("running_info", admin::runningInfo);
        actions.put("consume_status", admin::consumeStatus);
        actions.put("consume_directly", admin::consumeDirectly);
        actions.put("reset_offset", admin::resetOffset);
        actions.put("who_consumes", admin::whoConsumes);
        actions.put("offsets", admin::offsets);
        actions.put("view", admin::view);
        actions.put("query", admin::query);
        actions.put("broker_config", admin::brokerConfig);
        actions.put("update_broker_config", admin::updateBrokerConfig);
        actions.put("put_kv", admin::putKv);
        actions.put("get_kv", admin::getKv);
    }
}
