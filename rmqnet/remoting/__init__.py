"""RocketMQ's remoting protocol: frames, headers, connections."""
