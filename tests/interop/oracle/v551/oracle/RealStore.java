// SPDX-License-Identifier: Apache-2.0
package oracle;

import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.common.BoundaryType;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.SystemClock;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.remoting.protocol.filter.FilterAPI;
import org.apache.rocketmq.store.ConsumeQueue;
import org.apache.rocketmq.store.ConsumeQueueExt;
import org.apache.rocketmq.store.DefaultMessageFilter;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageFilter;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.StoreCheckpoint;
import org.apache.rocketmq.store.index.QueryOffsetResult;
import org.apache.rocketmq.store.queue.BatchConsumeQueue;
import org.apache.rocketmq.store.queue.ConsumeQueueInterface;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** RocketMQ 5.5's store. */
final class RealStore extends DefaultMessageStore implements StoreApi {
    private static final String SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX";
    private final CountDownLatch never = new CountDownLatch(1);
    private volatile Clock clock;
    private volatile boolean held;

    RealStore(Settings settings, Path root) throws Exception {
        super(settings.toRocketmq(root), new BrokerStatsManager("oracle", true),
            (topic, queueId, offset, tagsCode, time, bitmap, properties) -> { }, new BrokerConfig(), topics(settings));
        getDispatcherList().addFirst(request -> waitWhileHeld());
        if (Boolean.parseBoolean(String.valueOf(settings.store.get("enableConsumeQueueExt")))) {
            // A broker's bloom filter needs its consumers; any bitmap will do for the format. Two of three get one.
            getDispatcherList().addFirst(request -> {
                long seed = request.getCommitLogOffset();
                if (seed % 3 != 0) {
                    byte[] bitmap = new byte[8 + (int) (seed % 7)];
                    Arrays.fill(bitmap, (byte) (seed * 31));
                    request.setBitMap(bitmap);
                }
            });
        }
    }

    private static ConcurrentMap<String, TopicConfig> topics(Settings settings) {
        ConcurrentMap<String, TopicConfig> topics = new ConcurrentHashMap<>();
        settings.topicQueueTypes.forEach((name, type) -> {
            TopicConfig topic = new TopicConfig(name);
            topic.getAttributes().put("queue.type", type);
            topics.put(name, topic);
        });
        return topics;
    }

    @Override
    public String rocketmqVersion() {
        return org.apache.rocketmq.common.MQVersion.getVersionDesc(org.apache.rocketmq.common.MQVersion.CURRENT_VERSION);
    }

    @Override
    public SystemClock getSystemClock() {
        return clock == null ? super.getSystemClock() : clock;
    }

    @Override
    public void useClock(Clock newClock) {
        clock = newClock;
    }

    @Override
    public PutMessageResult put(Msg message) {
        return putMessage(inner(new MessageExtBrokerInner(), message));
    }

    @Override
    public PutMessageResult putBatch(Msg head, List<Message> items) {
        MessageExtBatch batch = new MessageExtBatch();
        inner(batch, head);
        batch.setBody(MessageDecoder.encodeMessages(items));
        return putMessages(batch);
    }

    @Override
    public PutMessageResult putInnerBatch(Msg head, List<Message> items) {
        // What a broker's SendMessageProcessor does for a batch on a BatchCQ topic.
        MessageExtBatch batch = new MessageExtBatch();
        inner(batch, head);
        batch.setBody(MessageDecoder.encodeMessages(items));
        batch.setSysFlag(batch.getSysFlag() | MessageSysFlag.NEED_UNWRAP_FLAG | MessageSysFlag.INNER_BATCH_FLAG);
        batch.setInnerBatch(true);
        MessageAccessor.putProperty(batch, MessageConst.PROPERTY_INNER_NUM, String.valueOf(items.size()));
        batch.setPropertiesString(MessageDecoder.messageProperties2String(batch.getProperties()));
        return putMessage(batch);
    }

    private static MessageExtBrokerInner inner(MessageExtBrokerInner inner, Msg message) {
        inner.setTopic(message.getTopic());
        inner.setQueueId(message.getQueueId());
        inner.setBody(message.getBody());
        inner.setFlag(message.getFlag());
        inner.setSysFlag(message.getSysFlag());
        inner.setBornTimestamp(message.getBornTimestamp());
        inner.setBornHost(message.getBornHost());
        inner.setStoreHost(message.getStoreHost());
        inner.setReconsumeTimes(message.getReconsumeTimes());
        inner.setPreparedTransactionOffset(message.getPreparedTransactionOffset());
        MessageAccessor.setProperties(inner, message.getProperties());
        if (inner.getDelayTimeLevel() > 0 && !SCHEDULE_TOPIC.equals(inner.getTopic())) {
            // In 5.x it is a hook of the broker that moves delayed messages to the schedule topic.
            MessageAccessor.putProperty(inner, MessageConst.PROPERTY_REAL_TOPIC, inner.getTopic());
            MessageAccessor.putProperty(inner, MessageConst.PROPERTY_REAL_QUEUE_ID, String.valueOf(inner.getQueueId()));
            inner.setTopic(SCHEDULE_TOPIC);
            inner.setQueueId(inner.getDelayTimeLevel() - 1);
        }
        inner.setPropertiesString(message.propertiesString());
        return inner;
    }

    @Override
    public long minPhyOffset() {
        return getMinPhyOffset();
    }

    @Override
    public long maxPhyOffset() {
        return getMaxPhyOffset();
    }

    @Override
    public long confirmOffset() {
        return getConfirmOffset();
    }

    @Override
    public long reputFromOffset() {
        return getReputFromOffset();
    }

    @Override
    public long flushedWhere() {
        return getFlushedWhere();
    }

    @Override
    public SelectMappedBufferResult commitLogData(long offset) {
        return getCommitLogData(offset);
    }

    @Override
    public SortedMap<String, SortedMap<Integer, QueueView>> queues() {
        SortedMap<String, SortedMap<Integer, QueueView>> queues = new TreeMap<>();
        getConsumeQueueTable().forEach((topic, byId) -> byId.forEach((id, queue) ->
            queues.computeIfAbsent(topic, t -> new TreeMap<>()).put(id, new View(queue))));
        return queues;
    }

    @Override
    public MessageFilter tagFilter(String topic, String expression) throws Exception {
        return new DefaultMessageFilter(FilterAPI.buildSubscriptionData(topic, expression));
    }

    @Override
    public QueryOffsetResult queryOffset(String topic, String key, int maxNum, long begin, long end) {
        return indexService.queryOffset(topic, key, maxNum, begin, end);
    }

    @Override
    public QueryMessageResult queryMessage(String topic, String key, int maxNum, long begin, long end) {
        return super.queryMessage(topic, key, maxNum, begin, end);
    }

    @Override
    public QueryMessageResult queryTags(String topic, String tags, int maxNum, long begin, long end) {
        return super.queryMessage(topic, tags, maxNum, begin, end, "T", null);
    }

    @Override
    public Long offsetByTime(String topic, int queueId, long timestamp, String boundary) {
        return boundary.equals("default") ? getOffsetInQueueByTime(topic, queueId, timestamp)
            : getOffsetInQueueByTime(topic, queueId, timestamp, BoundaryType.valueOf(boundary.toUpperCase()));
    }

    @Override
    public Map<String, Object> checkpoint() {
        StoreCheckpoint checkpoint = getStoreCheckpoint();
        Map<String, Object> map = new LinkedHashMap<>();
        map.put("physic_msg_timestamp", checkpoint.getPhysicMsgTimestamp());
        map.put("logics_msg_timestamp", checkpoint.getLogicsMsgTimestamp());
        map.put("index_msg_timestamp", checkpoint.getIndexMsgTimestamp());
        map.put("master_flushed_offset", checkpoint.getMasterFlushedOffset());
        map.put("confirm_phy_offset", checkpoint.getConfirmPhyOffset());
        return map;
    }

    @Override
    public void holdDispatch() {
        held = true;
    }

    private void waitWhileHeld() {
        if (held) {
            try {
                never.await();
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }
    }

    @Override
    public void cleanExpiredFiles() throws Exception {
        executeDeleteFilesManually();
        runService(this, DefaultMessageStore.class, "cleanCommitLogService");
        runService(consumeQueueStore, org.apache.rocketmq.store.queue.ConsumeQueueStore.class, "correctLogicOffsetService");
        runService(consumeQueueStore, org.apache.rocketmq.store.queue.ConsumeQueueStore.class, "cleanConsumeQueueService");
    }

    private void runService(Object of, Class<?> type, String name) throws Exception {
        Field field = type.getDeclaredField(name);
        field.setAccessible(true);
        Object service = field.get(of);
        Method run = service.getClass().getMethod("run");
        run.setAccessible(true);
        run.invoke(service);
    }

    private static final class View implements QueueView {
        private final ConsumeQueueInterface queue;

        View(ConsumeQueueInterface queue) {
            this.queue = queue;
        }

        @Override
        public String type() {
            return queue.getCQType().name();
        }

        @Override
        public long minOffset() {
            return queue.getMinOffsetInQueue();
        }

        @Override
        public long maxOffset() {
            return queue.getMaxOffsetInQueue();
        }

        @Override
        public long maxPhysicOffset() {
            return queue.getMaxPhysicOffset();
        }

        @Override
        public Map<String, Object> content() {
            return queue instanceof BatchConsumeQueue ? batchUnits((BatchConsumeQueue) queue) : simpleUnits((ConsumeQueue) queue);
        }

        private static Map<String, Object> simpleUnits(ConsumeQueue queue) {
            List<Object> units = new ArrayList<>();
            List<Object> ext = new ArrayList<>();
            boolean anyExt = false;
            for (long q = queue.getMinOffsetInQueue(); q < queue.getMaxOffsetInQueue(); q++) {
                SelectMappedBufferResult found = queue.getIndexBuffer(q);
                if (found == null) {
                    units.add(null);
                    ext.add(null);
                    continue;
                }
                ByteBuffer buffer = found.getByteBuffer();
                long offset = buffer.getLong();
                int size = buffer.getInt();
                long tagsCode = buffer.getLong();
                found.release();
                units.add(Arrays.asList(offset, size, tagsCode));
                ConsumeQueueExt.CqExtUnit unit = queue.isExtAddr(tagsCode) ? queue.getExt(tagsCode) : null;
                anyExt |= unit != null;
                ext.add(unit == null ? null : Arrays.asList(unit.getTagsCode(), unit.getMsgStoreTime(),
                    unit.getFilterBitMap() == null ? null : Base64.getEncoder().encodeToString(unit.getFilterBitMap())));
            }
            Map<String, Object> map = new LinkedHashMap<>();
            map.put("units", units);
            if (anyExt) {
                map.put("ext_units", ext);
            }
            return map;
        }

        private static Map<String, Object> batchUnits(BatchConsumeQueue queue) {
            List<Object> units = new ArrayList<>();
            long q = queue.getMinOffsetInQueue();
            while (q < queue.getMaxOffsetInQueue()) {
                SelectMappedBufferResult found = queue.getBatchMsgIndexBuffer(q);
                if (found == null) {
                    break;
                }
                ByteBuffer buffer = found.getByteBuffer();
                List<Object> unit = new ArrayList<>();
                unit.add(buffer.getLong());
                unit.add(buffer.getInt());
                unit.add(buffer.getLong());
                unit.add(buffer.getLong());
                long base = buffer.getLong();
                short batchSize = buffer.getShort();
                unit.add(base);
                unit.add(batchSize);
                unit.add(buffer.getInt());
                found.release();
                units.add(unit);
                q = base + batchSize;
            }
            Map<String, Object> map = new LinkedHashMap<>();
            map.put("batch_units", units);
            return map;
        }
    }
}
