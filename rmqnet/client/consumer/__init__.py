"""Pull and push consumers, with rebalancing, retries and offsets."""
