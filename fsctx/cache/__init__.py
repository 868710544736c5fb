"""The node cache: model files on the disk of the node."""
