"""The commands a person runs: plan, submit, status, retry, stop, collect. Never imports the agent."""
