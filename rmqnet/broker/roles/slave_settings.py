"""Settings of a slave that have to be those of its master."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rmqnet.broker.roles.master_calls import MasterCalls
from rmqnet.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqnet.remoting.acl import AclCredentials

logger = logging.getLogger(__name__)

_MASTERS_OWN = (
    "brokerName",
    "brokerClusterName",
    "namesrvAddr",
    "mappedFileSizeCommitLog",
    "mappedFileSizeConsumeQueue",
    "messageDelayLevel",
    "enableConsumeQueueExt",
    "enableMultiDispatch",
    "enableLmq",
)
_SLAVES_OWN = {"brokerRole": "SLAVE", "brokerId": "1", "slaveReadEnable": "true"}


def settings_of_slave(
    master: str, given: Mapping[str, str], credentials: AclCredentials | None = None
) -> dict[str, str]:
    """Return the settings of a slave, by RocketMQ's keys: what is given, else what has to be.

    Parameters
    ----------
    master
        ``host:port``; it is asked.
    given
        Settings that count more.
    credentials
        Of an account there, if it wants one.

    Raises
    ------
    ClientError
        The master does not answer, and its name and name servers are not given; or it is none.
    """
    try:
        with MasterCalls(credentials) as calls:
            found = calls.settings(master)
    except ClientError as err:
        if not (given.get("brokerName") and given.get("namesrvAddr")):
            raise ClientError(
                f"{err}; a slave that starts without its master needs the setting brokerName, and "
                "name servers (namesrv_addr)"
            ) from err
        logger.warning("%s; this slave goes by the settings that are given", err)
        found = {}
    if found.get("brokerId", "0") != "0":
        raise ClientError(f"{master} is no master: its brokerId is {found['brokerId']}")
    taken = {key: found[key] for key in _MASTERS_OWN if found.get(key)}
    return {**taken, **_SLAVES_OWN, **{key: text for key, text in given.items() if text}}
