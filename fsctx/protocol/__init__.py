"""What the coordinator and the agent share: the files of a run. See docs/protocol.md."""
