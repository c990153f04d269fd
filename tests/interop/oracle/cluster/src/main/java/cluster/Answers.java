// SPDX-License-Identifier: Apache-2.0
package cluster;

import org.apache.rocketmq.client.impl.producer.TopicPublishInfo;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** A producer of a group: leaves its transactions open, and answers checks by property "answer". */
final class Answers implements TransactionListener {
    private final Journal journal;
    private final TransactionMQProducer producer;

    Answers(Clients clients, Journal journal, String group, String topic) throws Exception {
        this.journal = journal;
        producer = new TransactionMQProducer(group);
        producer.setTransactionListener(this);
        clients.start(producer, "answers-" + group);
        // It asks for the route of what it publishes to: only then does it know the broker, and the broker it.
        producer.getDefaultMQProducerImpl().getTopicPublishInfoTable().put(topic, new TopicPublishInfo());
    }

    /** Opens transactions; every third is rolled back when it is checked. */
    void prepare(String topic, int count) throws Exception {
        for (int i = 0; i < count; i++) {
            Message message = new Message(topic, "tx", "B" + i, ("of the broker " + i).getBytes("UTF-8"));
            message.putUserProperty("answer", i % 3 == 2 ? "rollback" : "commit");
            journal.sent("transaction", message, message.getBody(), producer.sendMessageInTransaction(message, null));
        }
    }

    @Override
    public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
        return LocalTransactionState.UNKNOW;
    }

    @Override
    public LocalTransactionState checkLocalTransaction(MessageExt half) {
        String answer = String.valueOf(half.getProperty("answer"));
        Serve.say("event", "checked", "id", half.getTransactionId(), "answer", answer,
            "topic", half.getTopic(), "check_times", half.getProperty("TRANSACTION_CHECK_TIMES"));
        switch (answer) {
            case "commit":
                return LocalTransactionState.COMMIT_MESSAGE;
            case "rollback":
                return LocalTransactionState.ROLLBACK_MESSAGE;
            default:
                return LocalTransactionState.UNKNOW;
        }
    }
}
