# SPDX-License-Identifier: Apache-2.0
"""Clusters that require signatures and encrypted connections."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.interop.client_node import ClientNode
from tests.interop.java_cluster import java_options
from tests.interop.live_cluster import BROKER, LiveCluster

ACCESS_KEY, SECRET_KEY = "accountOfTests", "secretOfTests-9f3b7"
LIMITED_KEY, LIMITED_SECRET = "limitedAccount", "limitedSecret-71c0e"
DENIED_TOPIC = "denied"
"""With 4.9.7 the limited account must not touch this topic."""

_PROVIDER = "org.apache.rocketmq.auth.authentication.provider."
_SETTINGS_5 = {
    "authenticationEnabled": "true",
    "authenticationProvider": _PROVIDER + "DefaultAuthenticationProvider",
    "authenticationMetadataProvider": _PROVIDER + "LocalAuthenticationMetadataProvider",
    "initAuthenticationUser": json.dumps({"username": ACCESS_KEY, "password": SECRET_KEY}),
    "innerClientAuthenticationCredentials": json.dumps(
        {"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}
    ),
}
_ACCOUNTS_4 = f"""
accounts:
  - accessKey: {ACCESS_KEY}
    secretKey: {SECRET_KEY}
    admin: true
  - accessKey: {LIMITED_KEY}
    secretKey: {LIMITED_SECRET}
    admin: false
    defaultTopicPerm: PUB|SUB
    defaultGroupPerm: PUB|SUB
    topicPerms:
      - {DENIED_TOPIC}=DENY
"""


def make_certificates(directory: Path, release: str) -> None:
    """Write ``ca.pem``, ``server.pem``, ``client.pem``, their keys, and ``other-ca.pem``."""
    options = java_options(directory.parent, release)
    subprocess.run([*options, "certificates", str(directory)], check=True, timeout=120)


def secured_cluster(directory: Path, release: str) -> LiveCluster:
    """Return a cluster of one broker that takes no request without signature and TLS.

    Clients need no certificate, but one that they show must come from the known authority.
    """
    certificates = directory / "certificates"
    make_certificates(certificates, release)
    properties = [
        "tls.server.mode=enforcing",
        "tls.test.mode.enable=false",
        f"tls.server.certPath={certificates / 'server.pem'}",
        f"tls.server.keyPath={certificates / 'server.key'}",
        "tls.server.need.client.auth=optional",
        "tls.server.authClient=true",
        f"tls.server.trustCertPath={certificates / 'ca.pem'}",
        f"tls.config.file={directory / 'none'}",
    ]
    if release.startswith("4"):
        home = directory / "home"
        (home / "conf" / "acl").mkdir(parents=True)
        (home / "conf" / "plain_acl.yml").write_text(_ACCOUNTS_4)
        properties.append(f"rocketmq.home.dir={home}")
    settings = {"aclEnable": "true"} if release.startswith("4") else _SETTINGS_5
    return LiveCluster(
        directory / "cluster",
        release,
        settings_of={BROKER: settings},
        properties=properties,
    )


def secured_judge(directory: Path, cluster: LiveCluster, certificates: Path) -> ClientNode:
    """Return RocketMQ's own clients with the right keys; they check the server's certificate."""
    return ClientNode(
        directory,
        cluster.release,
        cluster.namesrv_addr,
        credentials=(ACCESS_KEY, SECRET_KEY),
        tls=True,
        properties=[
            "tls.enable=true",
            "tls.test.mode.enable=false",
            "tls.client.authServer=true",
            f"tls.client.trustCertPath={certificates / 'ca.pem'}",
            f"tls.config.file={directory / 'none'}",
        ],
    )
