"""Starting agents, as pilots of a batch system or in the background of this host."""
