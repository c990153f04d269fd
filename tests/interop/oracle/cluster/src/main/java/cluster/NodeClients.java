// SPDX-License-Identifier: Apache-2.0
package cluster;

import com.alibaba.fastjson.JSONObject;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.netty.TlsSystemConfig;

/** The servers and the account of this JVM's clients. */
final class NodeClients {
    private String nameServers;
    private RPCHook hook;
    private boolean tls;
    private int connection;

    /**
     * connect: namesrv_addr, access_key and secret_key and security_token (or none), tls, certificate and key and trust
     * (paths, in place of the tls.client.… properties; an empty one: none). Clients that follow are new ones, admin
     * and pullers too.
     */
    Object connect(JSONObject given) {
        connection++;
        if (given.containsKey("certificate")) {
            TlsSystemConfig.tlsClientCertPath = given.getString("certificate");
            TlsSystemConfig.tlsClientKeyPath = given.getString("key");
        }
        if (given.containsKey("trust")) {
            TlsSystemConfig.tlsClientTrustCertPath = given.getString("trust");
        }
        nameServers = given.getString("namesrv_addr");
        hook = hook(given);
        tls = given.getBooleanValue("tls");
        return Json.row();
    }

    private static RPCHook hook(JSONObject given) {
        if (given.getString("access_key") == null) {
            return null;
        }
        SessionCredentials credentials =
            new SessionCredentials(given.getString("access_key"), given.getString("secret_key"));
        credentials.setSecurityToken(given.getString("security_token"));
        return new AclClientRPCHook(credentials);
    }

    /** Counts the calls of connect; stored clients belong to one of them. */
    int connection() {
        return connection;
    }

    RPCHook hook() {
        return hook;
    }

    /** Seconds instead of half minutes between what a client does by itself. */
    <T extends ClientConfig> T configure(T client, JSONObject given) {
        client.setNamesrvAddr(nameServers);
        client.setClientIP(given.getOrDefault("client_ip", "127.0.0.1").toString());
        client.setInstanceName(given.getOrDefault("instance", given.getString("name")).toString());
        client.setVipChannelEnabled(false);
        client.setUseTLS(tls);
        client.setPollNameServerInterval(1000);
        client.setHeartbeatBrokerInterval(1000);
        client.setPersistConsumerOffsetInterval(1000);
        return client;
    }
}
