// SPDX-License-Identifier: Apache-2.0
package bench;

import java.util.ArrayList;
import java.util.List;

import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.processor.EndTransactionProcessor;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.ResponseCode;
import org.apache.rocketmq.remoting.protocol.header.EndTransactionRequestHeader;
import org.apache.rocketmq.store.AppendMessageResult;

import org.apache.rocketmq.store.config.MessageStoreConfig;

/** A broker's own commit of open transactions, one after the other, without a network. */
final class CommitLoop {
    private static final int ROUNDS = 2;

    private CommitLoop() { }

    /** Prints how long the commits took; the half messages, and the requests, are made before. */
    static void run(MessageStoreConfig storeConfig, int count, int bodySize, FilterLoop.Figure figure) throws Exception {
        NettyServerConfig server = new NettyServerConfig();
        server.setListenPort(0);
        BrokerController broker =
            new BrokerController(new BrokerConfig(), server, new NettyClientConfig(), storeConfig);
        if (!broker.initialize()) throw new IllegalStateException("initialize");
        broker.getMessageStore().start();
        for (int round = 0; round < ROUNDS; round++) {
            List<RemotingCommand> requests = open(broker, count, bodySize);
            EndTransactionProcessor processor = new EndTransactionProcessor(broker);
            int failed = 0;
            long start = System.nanoTime();
            for (RemotingCommand request : requests) {
                if (processor.processRequest(null, request).getCode() != ResponseCode.SUCCESS) failed++;
            }
            long nanos = System.nanoTime() - start;
            figure.print("commit", count, nanos, ",\"failed\":" + failed + ",\"round\":" + round);
        }
    }

    /** Opens transactions, and returns the requests that commit them. */
    private static List<RemotingCommand> open(BrokerController broker, int count, int bodySize) throws Exception {
        byte[] body = new byte[bodySize];
        List<RemotingCommand> requests = new ArrayList<>(count);
        for (int i = 0; i < count; i++) {
            MessageExtBrokerInner message = JavaBaseline.message(0, i, body);
            MessageAccessor.putProperty(message, "TRAN_MSG", "true");
            MessageAccessor.putProperty(message, "PGROUP", "writers");
            AppendMessageResult half =
                broker.getTransactionalMessageService().prepareMessage(message).getAppendMessageResult();
            EndTransactionRequestHeader header = new EndTransactionRequestHeader();
            header.setProducerGroup("writers");
            header.setTranStateTableOffset(half.getLogicsOffset());
            header.setCommitLogOffset(half.getWroteOffset());
            header.setCommitOrRollback(MessageSysFlag.TRANSACTION_COMMIT_TYPE);
            header.setFromTransactionCheck(false);
            header.setMsgId(half.getMsgId());
            header.setTransactionId(message.getProperty("UNIQ_KEY"));
            RemotingCommand request = RemotingCommand.createRequestCommand(RequestCode.END_TRANSACTION, header);
            request.makeCustomHeaderToNet();
            requests.add(request);
        }
        return requests;
    }
}
