"""Words: what people read of findings, alerts and incidents, made from facts, last of all."""
