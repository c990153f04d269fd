# SPDX-License-Identifier: Apache-2.0
"""Advice to a consumer which broker of a set to pull from next: the master or a slave.

Source: RocketMQ ``PullMessageProcessor.composeResponseHeader``,
``DefaultPullMessageResultHandler`` (release 5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rmqnet.remoting.codes import ResponseCode
from store_core.results import GetMessageStatus

if TYPE_CHECKING:
    from rmqnet.broker.broker import Broker
    from store_core.config.config_files import SubscriptionGroupConfig
    from store_core.read.pull_records import PulledRecords

MASTER_ID = 0


class Advice(NamedTuple):
    """Code of the answer to a pull, and the broker to pull from next."""

    code: ResponseCode
    broker_id: int


def advise(
    broker: Broker, group: SubscriptionGroupConfig, found: PulledRecords, code: ResponseCode
) -> Advice:
    """Return the advice for the result of a pull; ``code`` is its code without advice."""
    config, broker_id = broker.config, MASTER_ID
    if not config.slave_read_enable and config.broker_id == MASTER_ID:
        return Advice(code, MASTER_ID)
    is_far_behind = found.suggest_pulling_from_slave
    if config.slave_read_enable:
        broker_id = group.which_broker_when_consume_slowly if is_far_behind else group.broker_id
    if config.broker_id == MASTER_ID or not broker.store.config.is_slave:
        return Advice(code, broker_id)
    has_master = broker.min_broker_id == MASTER_ID
    if has_master and not is_far_behind:
        broker_id = MASTER_ID
        if found.status is not GetMessageStatus.FOUND:
            code = ResponseCode.PULL_RETRY_IMMEDIATELY
    if code is ResponseCode.PULL_OFFSET_MOVED:  # only a master knows
        return Advice(ResponseCode.PULL_RETRY_IMMEDIATELY, group.broker_id)
    return Advice(code, broker_id)
