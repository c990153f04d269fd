# SPDX-License-Identifier: Apache-2.0
"""Fields of every request that a client sends or receives, and of the answers that have fields.

Each request has a class, named as in RocketMQ; requests that are not listed have no fields.
``bname`` is the name of the broker that the request is for. Source: RocketMQ
``remoting/protocol/header`` (release 5.3.3), and requests observed from clients of 5.3.3 and 4.9.7.
"""

from __future__ import annotations

from dataclasses import field

from rmqnet.remoting.codes import RequestCode
from rmqnet.remoting.header_fields import Header, Long, RequestHeader, one_of, short_name, wire_name


class SendMessageRequestHeader(RequestHeader, code=RequestCode.SEND_MESSAGE):
    """Store a message; its body is the request's body."""

    producer_group: str = field(metadata=short_name("a"))
    topic: str = field(metadata=short_name("b"))
    default_topic: str = field(metadata=short_name("c"))
    default_topic_queue_nums: int = field(metadata=short_name("d"))
    queue_id: int = field(metadata=short_name("e"))
    sys_flag: int = field(metadata=short_name("f"))
    born_timestamp: Long = field(metadata=short_name("g"))
    flag: int = field(metadata=short_name("h"))
    properties: str | None = field(default=None, metadata=short_name("i"))
    reconsume_times: int | None = field(default=None, metadata=short_name("j"))
    unit_mode: bool | None = field(default=None, metadata=short_name("k"))
    batch: bool | None = field(default=None, metadata=short_name("m"))
    max_reconsume_times: int | None = field(default=None, metadata=short_name("l"))
    bname: str | None = field(default=None, metadata=short_name("n"))


class SendMessageRequestHeaderV2(SendMessageRequestHeader, code=RequestCode.SEND_MESSAGE_V2):
    """The same fields under one-letter names, as clients send them."""

    HAS_SHORT_NAMES = True


class PullMessageRequestHeader(RequestHeader, code=RequestCode.PULL_MESSAGE):
    """Pull messages of one queue, from an offset on."""

    consumer_group: str
    topic: str
    queue_id: int
    queue_offset: Long
    max_msg_nums: int
    sys_flag: int
    commit_offset: Long
    suspend_timeout_millis: Long
    sub_version: Long
    subscription: str | None = None
    expression_type: str | None = None
    max_msg_bytes: int | None = None
    request_source: int | None = None
    proxy_forward_client_id: str | None = field(
        default=None, metadata=wire_name("proxyFrowardClientId")
    )
    bname: str | None = None


class QueryMessageRequestHeader(RequestHeader, code=RequestCode.QUERY_MESSAGE):
    """Query messages by key or by unique key."""

    topic: str
    key: str
    max_num: int
    begin_timestamp: Long
    end_timestamp: Long
    index_type: str | None = None
    """``K`` for key, ``U`` for unique key, ``T`` for tag; since 5.4."""
    last_key: str | None = None
    """End of the previous page; since 5.4, for indexes in RocksDB."""
    unique_key_query: bool | None = field(default=None, metadata=wire_name("_UNIQUE_KEY_QUERY"))
    bname: str | None = None


class QueryConsumerOffsetRequestHeader(RequestHeader, code=RequestCode.QUERY_CONSUMER_OFFSET):
    """Query a group's offset in a queue."""

    consumer_group: str
    topic: str
    queue_id: int
    set_zero_if_not_found: bool | None = None
    bname: str | None = None


class UpdateConsumerOffsetRequestHeader(RequestHeader, code=RequestCode.UPDATE_CONSUMER_OFFSET):
    """Set a group's offset in a queue."""

    consumer_group: str
    topic: str
    queue_id: int
    commit_offset: Long
    bname: str | None = None


class CreateTopicRequestHeader(RequestHeader, code=RequestCode.UPDATE_AND_CREATE_TOPIC):
    """Create or change a topic."""

    topic: str
    default_topic: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_filter_type: str = field(metadata=one_of("SINGLE_TAG", "MULTI_TAG"))
    order: bool
    topic_sys_flag: int | None = None
    attributes: str | None = None
    force: bool | None = None
    bname: str | None = None


class SearchOffsetRequestHeader(RequestHeader, code=RequestCode.SEARCH_OFFSET_BY_TIMESTAMP):
    """Query the offset in a queue at a time."""

    topic: str
    queue_id: int
    timestamp: Long
    boundary_type: str | None = None
    bname: str | None = None


class GetMaxOffsetRequestHeader(RequestHeader, code=RequestCode.GET_MAX_OFFSET):
    """Query the end of a queue."""

    topic: str
    queue_id: int
    committed: bool | None = None
    bname: str | None = None


class GetMinOffsetRequestHeader(RequestHeader, code=RequestCode.GET_MIN_OFFSET):
    """Query the start of a queue."""

    topic: str
    queue_id: int
    bname: str | None = None


class GetEarliestMsgStoretimeRequestHeader(
    RequestHeader, code=RequestCode.GET_EARLIEST_MSG_STORETIME
):
    """Query when the first message of a queue was stored."""

    topic: str
    queue_id: int
    bname: str | None = None


class ViewMessageRequestHeader(RequestHeader, code=RequestCode.VIEW_MESSAGE_BY_ID):
    """Read one message by its offset in the commit log."""

    offset: Long
    topic: str | None = None


class UnregisterClientRequestHeader(RequestHeader, code=RequestCode.UNREGISTER_CLIENT):
    """Remove a client that leaves from these groups."""

    client_id: str = field(metadata=wire_name("clientID"))
    producer_group: str | None = None
    consumer_group: str | None = None
    bname: str | None = None


class ConsumerSendMsgBackRequestHeader(RequestHeader, code=RequestCode.CONSUMER_SEND_MSG_BACK):
    """Return a message that could not be consumed, for a later retry."""

    offset: Long
    group: str
    delay_level: int
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool | None = None
    max_reconsume_times: int | None = None
    bname: str | None = None


class EndTransactionRequestHeader(RequestHeader, code=RequestCode.END_TRANSACTION):
    """Report how a transaction ended."""

    producer_group: str
    tran_state_table_offset: Long
    commit_log_offset: Long
    commit_or_rollback: int = field(metadata=one_of("0", "8", "12"))
    msg_id: str
    topic: str | None = None
    from_transaction_check: bool | None = None
    transaction_id: str | None = None
    bname: str | None = None


class GetConsumerListByGroupRequestHeader(
    RequestHeader, code=RequestCode.GET_CONSUMER_LIST_BY_GROUP
):
    """Query the ids of a group's clients."""

    consumer_group: str
    bname: str | None = None


class CheckTransactionStateRequestHeader(RequestHeader, code=RequestCode.CHECK_TRANSACTION_STATE):
    """A broker asks a producer how a transaction ended; its message is the body."""

    tran_state_table_offset: Long
    commit_log_offset: Long
    topic: str | None = None
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    bname: str | None = None


class NotifyConsumerIdsChangedRequestHeader(
    RequestHeader, code=RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
):
    """A broker notifies a consumer that its group has changed."""

    consumer_group: str
    bname: str | None = None


class PutKVConfigRequestHeader(RequestHeader, code=RequestCode.PUT_KV_CONFIG):
    """Store a value in a name server."""

    namespace: str
    key: str
    value: str


class GetKVConfigRequestHeader(RequestHeader, code=RequestCode.GET_KV_CONFIG):
    """Query a value of a name server by its key."""

    namespace: str
    key: str


class DeleteKVConfigRequestHeader(RequestHeader, code=RequestCode.DELETE_KV_CONFIG):
    """Delete a value from a name server."""

    namespace: str
    key: str


class RegisterBrokerRequestHeader(RequestHeader, code=RequestCode.REGISTER_BROKER):
    """A broker registers with a name server; its topics are the body."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Long
    heartbeat_timeout_millis: Long | None = None
    enable_acting_master: bool | None = None
    compressed: bool | None = None
    body_crc32: int | None = None


class UnRegisterBrokerRequestHeader(RequestHeader, code=RequestCode.UNREGISTER_BROKER):
    """A broker that leaves unregisters."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class GetRouteInfoRequestHeader(RequestHeader, code=RequestCode.GET_ROUTEINFO_BY_TOPIC):
    """Query the brokers and queues of a topic."""

    topic: str
    accept_standard_json_only: bool | None = None
    bname: str | None = None


class GetTopicStatsInfoRequestHeader(RequestHeader, code=RequestCode.GET_TOPIC_STATS_INFO):
    """Query offsets and last store times of a topic's queues."""

    topic: str
    bname: str | None = None


class ViewBrokerStatsDataRequestHeader(RequestHeader, code=RequestCode.VIEW_BROKER_STATS_DATA):
    """Query a statistic (such as ``TOPIC_PUT_NUMS``) of a topic or group."""

    stats_name: str
    stats_key: str


class GetConsumerConnectionListRequestHeader(
    RequestHeader, code=RequestCode.GET_CONSUMER_CONNECTION_LIST
):
    """Query connections and subscriptions of a consumer group."""

    consumer_group: str
    bname: str | None = None


class GetProducerConnectionListRequestHeader(
    RequestHeader, code=RequestCode.GET_PRODUCER_CONNECTION_LIST
):
    """Query connections of a producer group."""

    producer_group: str
    bname: str | None = None


class WipeWritePermOfBrokerRequestHeader(RequestHeader, code=RequestCode.WIPE_WRITE_PERM_OF_BROKER):
    """Remove write permission from a broker's topics."""

    broker_name: str


class DeleteSubscriptionGroupRequestHeader(
    RequestHeader, code=RequestCode.DELETE_SUBSCRIPTIONGROUP
):
    """Delete a group."""

    group_name: str
    clean_offset: bool | None = None
    remove_offset: bool | None = None
    """Name of ``clean_offset`` in release 4.9."""
    bname: str | None = None


class GetConsumeStatsRequestHeader(RequestHeader, code=RequestCode.GET_CONSUME_STATS):
    """Query offsets of a group and of the queues that it reads."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None
    bname: str | None = None


class DeleteTopicRequestHeader(RequestHeader, code=RequestCode.DELETE_TOPIC_IN_BROKER):
    """Delete a topic from a broker."""

    topic: str
    bname: str | None = None


class DeleteTopicFromNamesrvRequestHeader(RequestHeader, code=RequestCode.DELETE_TOPIC_IN_NAMESRV):
    """Delete a topic from a name server."""

    topic: str
    cluster_name: str | None = None
    bname: str | None = None


class RegisterTopicRequestHeader(RequestHeader, code=RequestCode.REGISTER_TOPIC_IN_NAMESRV):
    """Register one topic of a broker with a name server; its route is the body."""

    topic: str


class GetBrokerMemberGroupRequestHeader(RequestHeader, code=RequestCode.GET_BROKER_MEMBER_GROUP):
    """Query master and slaves of a broker name."""

    cluster_name: str
    broker_name: str


class BrokerHeartbeatRequestHeader(RequestHeader, code=RequestCode.BROKER_HEARTBEAT):
    """A broker reports that it is up."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Long | None = None
    epoch: int | None = None
    max_offset: Long | None = None
    confirm_offset: Long | None = None
    heartbeat_timeout_mills: Long | None = None
    election_priority: int | None = None


class GetKVListByNamespaceRequestHeader(RequestHeader, code=RequestCode.GET_KVLIST_BY_NAMESPACE):
    """Query all values of a namespace of a name server."""

    namespace: str


class ResetOffsetRequestHeader(RequestHeader, code=RequestCode.INVOKE_BROKER_TO_RESET_OFFSET):
    """Reset a group's offsets; the broker sends its clients the same fields (code 220)."""

    group: str
    topic: str
    timestamp: Long
    is_force: bool
    queue_id: int | None = None
    offset: Long | None = None
    bname: str | None = None


class GetConsumerStatusRequestHeader(
    RequestHeader, code=RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
):
    """Query the offsets of a group's clients; the broker asks them with the same fields (221)."""

    topic: str
    group: str
    client_addr: str | None = None
    bname: str | None = None


class GetTopicsByClusterRequestHeader(RequestHeader, code=RequestCode.GET_TOPICS_BY_CLUSTER):
    """Query the topics of a cluster."""

    cluster: str


class QueryTopicConsumeByWhoRequestHeader(
    RequestHeader, code=RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
):
    """Query the groups that read a topic."""

    topic: str
    bname: str | None = None


class QueryConsumeTimeSpanRequestHeader(RequestHeader, code=RequestCode.QUERY_CONSUME_TIME_SPAN):
    """Query the time range of a topic's messages, and a group's position in it."""

    topic: str
    group: str
    bname: str | None = None


class GetConsumerRunningInfoRequestHeader(
    RequestHeader, code=RequestCode.GET_CONSUMER_RUNNING_INFO
):
    """Query a consumer's state; the broker asks it with the same fields."""

    consumer_group: str
    client_id: str
    jstack_enable: bool | None = None
    bname: str | None = None


class ConsumeMessageDirectlyResultRequestHeader(
    RequestHeader, code=RequestCode.CONSUME_MESSAGE_DIRECTLY
):
    """Make a client consume one message now; the broker sends it the same fields."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: int | None = None
    group_sys_flag: int | None = None
    bname: str | None = None


class QueryConsumeQueueRequestHeader(RequestHeader, code=RequestCode.QUERY_CONSUME_QUEUE):
    """Query entries of a consume queue."""

    topic: str | None = None
    queue_id: int | None = None
    index: Long | None = None
    count: int | None = None
    consumer_group: str | None = None
    bname: str | None = None


class QueryDataVersionRequestHeader(RequestHeader, code=RequestCode.QUERY_DATA_VERSION):
    """Query whether a name server's data on a broker is outdated."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class ReplyMessageRequestHeader(RequestHeader, code=RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT):
    """A broker delivers the reply to a request between clients; its body is the body."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: int
    queue_id: int
    sys_flag: int
    born_timestamp: Long
    flag: int
    born_host: str
    store_host: str
    store_timestamp: Long
    properties: str | None = None
    reconsume_times: int | None = None
    unit_mode: bool | None = None
    bname: str | None = None


class AddWritePermOfBrokerRequestHeader(RequestHeader, code=RequestCode.ADD_WRITE_PERM_OF_BROKER):
    """Give write permission to a broker's topics again."""

    broker_name: str


class QueryTopicsByConsumerRequestHeader(RequestHeader, code=RequestCode.QUERY_TOPICS_BY_CONSUMER):
    """Query the topics that a group reads."""

    group: str
    bname: str | None = None


class QuerySubscriptionByConsumerRequestHeader(
    RequestHeader, code=RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER
):
    """Query a group's subscription to a topic."""

    group: str
    topic: str | None = None
    bname: str | None = None


class GetAllTopicConfigRequestHeader(RequestHeader, code=RequestCode.GET_ALL_TOPIC_CONFIG):
    """Query the configuration of all topics; brokers before 5.5 ignore the fields."""

    topic_seq: int | None = None
    data_version: str | None = None
    max_topic_num: int | None = None


class GetAllSubscriptionGroupRequestHeader(
    RequestHeader, code=RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
):
    """Query the configuration of all groups; brokers before 5.5 ignore the fields."""

    group_seq: int | None = None
    data_version: str | None = None
    max_group_num: int | None = None


class GetTopicConfigRequestHeader(RequestHeader, code=RequestCode.GET_TOPIC_CONFIG):
    """Query the configuration of a topic."""

    topic: str
    bname: str | None = None
    lo: bool | None = None


class GetSubscriptionGroupConfigRequestHeader(
    RequestHeader, code=RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
):
    """Query the configuration of a group."""

    group: str
    bname: str | None = None


class UpdateGroupForbiddenRequestHeader(
    RequestHeader, code=RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN
):
    """Set whether a group may read a topic; without `readable`, query it."""

    group: str
    topic: str
    readable: bool | None = None
    bname: str | None = None


class CloneGroupOffsetRequestHeader(RequestHeader, code=RequestCode.CLONE_GROUP_OFFSET):
    """Copy offsets of a group to another, for one topic or, without it, for all."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool | None = None
    bname: str | None = None


class GetConsumeStatsInBrokerHeader(RequestHeader, code=RequestCode.GET_BROKER_CONSUME_STATS):
    """Query offsets of all groups, for all topics or only for order topics."""

    is_order: bool


class RecallMessageRequestHeader(RequestHeader, code=RequestCode.RECALL_MESSAGE):
    """Cancel the delivery of a timer message."""

    topic: str
    recall_handle: str
    producer_group: str | None = None
    bname: str | None = None


class SendMessageResponseHeader(Header):
    """Where a message was stored; several ids are separated by commas."""

    msg_id: str
    queue_id: int
    queue_offset: Long
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None
    msg_region: str | None = field(default=None, metadata=wire_name("MSG_REGION"))
    trace_on: bool | None = field(default=None, metadata=wire_name("TRACE_ON"))


class PullMessageResponseHeader(Header):
    """Where to pull next; the body is the messages."""

    suggest_which_broker_id: Long
    next_begin_offset: Long
    min_offset: Long
    max_offset: Long
    offset_delta: Long | None = None
    topic_sys_flag: int | None = None
    group_sys_flag: int | None = None
    forbidden_type: int | None = None


class HeartbeatResponseHeader(Header):
    """How the broker handles heartbeats; release 5 only."""

    is_support_heart_beat_v2: bool | None = field(
        default=None, metadata=wire_name("IS_SUPPORT_HEART_BEAT_V2")
    )
    is_sub_change: bool | None = field(default=None, metadata=wire_name("IS_SUB_CHANGE"))


class QueryMessageResponseHeader(Header):
    """Where the index ends; the body is the messages."""

    index_last_update_timestamp: Long
    index_last_update_phyoffset: Long


class QueryConsumerOffsetResponseHeader(Header):
    """Offset of a group in a queue."""

    offset: Long


class SearchOffsetResponseHeader(Header):
    """Offset at a time."""

    offset: Long


class GetMaxOffsetResponseHeader(Header):
    """End of a queue."""

    offset: Long


class GetMinOffsetResponseHeader(Header):
    """Start of a queue."""

    offset: Long


class GetEarliestMsgStoretimeResponseHeader(Header):
    """Time in ms when the first message was stored; -1 if there is none."""

    timestamp: Long


class GetKVConfigResponseHeader(Header):
    """The value."""

    value: str | None = None


class GetBrokerConfigResponseHeader(Header):
    """Version of the configuration; the body is its text."""

    version: str


class RegisterBrokerResponseHeader(Header):
    """Addresses of a slave's master."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class QueryDataVersionResponseHeader(Header):
    """Whether the broker has to register again."""

    changed: bool


class WipeWritePermOfBrokerResponseHeader(Header):
    """Number of topics changed."""

    wipe_topic_count: int


class AddWritePermOfBrokerResponseHeader(Header):
    """Number of topics changed."""

    add_topic_count: int


class RecallMessageResponseHeader(Header):
    """Id of the recalled message."""

    msg_id: str


class GetAllTopicConfigResponseHeader(Header):
    """Number of topics; since 5.5."""

    total_topic_num: int | None = None


class GetAllSubscriptionGroupResponseHeader(Header):
    """Number of groups; since 5.5."""

    total_group_num: int | None = None


_ALSO: dict[int, type[RequestHeader]] = {
    RequestCode.SEND_BATCH_MESSAGE: SendMessageRequestHeaderV2,
    RequestCode.SEND_REPLY_MESSAGE: SendMessageRequestHeader,
    RequestCode.SEND_REPLY_MESSAGE_V2: SendMessageRequestHeaderV2,
    RequestCode.LITE_PULL_MESSAGE: PullMessageRequestHeader,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET: ResetOffsetRequestHeader,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: GetConsumerStatusRequestHeader,
}

_CLASSES: list[type[RequestHeader]] = [
    *RequestHeader.__subclasses__(),
    SendMessageRequestHeaderV2,
]

REQUEST_HEADERS: dict[int, type[RequestHeader]] = {
    **{cls.REQUEST_CODE: cls for cls in _CLASSES},
    **_ALSO,
}
"""Class of a request's fields, by request code; requests not listed have no fields."""

RESPONSE_HEADERS: dict[int, type[Header]] = {
    RequestCode.SEND_MESSAGE: SendMessageResponseHeader,
    RequestCode.SEND_MESSAGE_V2: SendMessageResponseHeader,
    RequestCode.SEND_BATCH_MESSAGE: SendMessageResponseHeader,
    RequestCode.SEND_REPLY_MESSAGE: SendMessageResponseHeader,
    RequestCode.SEND_REPLY_MESSAGE_V2: SendMessageResponseHeader,
    RequestCode.PULL_MESSAGE: PullMessageResponseHeader,
    RequestCode.LITE_PULL_MESSAGE: PullMessageResponseHeader,
    RequestCode.QUERY_MESSAGE: QueryMessageResponseHeader,
    RequestCode.QUERY_CONSUMER_OFFSET: QueryConsumerOffsetResponseHeader,
    RequestCode.HEART_BEAT: HeartbeatResponseHeader,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: SearchOffsetResponseHeader,
    RequestCode.GET_MAX_OFFSET: GetMaxOffsetResponseHeader,
    RequestCode.GET_MIN_OFFSET: GetMinOffsetResponseHeader,
    RequestCode.GET_EARLIEST_MSG_STORETIME: GetEarliestMsgStoretimeResponseHeader,
    RequestCode.GET_KV_CONFIG: GetKVConfigResponseHeader,
    RequestCode.GET_BROKER_CONFIG: GetBrokerConfigResponseHeader,
    RequestCode.REGISTER_BROKER: RegisterBrokerResponseHeader,
    RequestCode.QUERY_DATA_VERSION: QueryDataVersionResponseHeader,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: WipeWritePermOfBrokerResponseHeader,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: AddWritePermOfBrokerResponseHeader,
    RequestCode.GET_ALL_TOPIC_CONFIG: GetAllTopicConfigResponseHeader,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: GetAllSubscriptionGroupResponseHeader,
    RequestCode.RECALL_MESSAGE: RecallMessageResponseHeader,
}
"""Class of the fields of a successful answer, by request code."""
