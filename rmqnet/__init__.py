"""RocketMQ on the network: its protocol, and a client of running clusters."""
