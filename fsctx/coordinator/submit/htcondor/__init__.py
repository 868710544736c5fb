"""Pilots as HTCondor jobs."""
