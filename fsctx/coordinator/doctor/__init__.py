"""`fsctx doctor`: whether a filesystem keeps the promises that runs rest on.

examine   one host looks: probes, and races of its own processes
meeting   two hosts look, by files alone
findings  what was found, and the verdict
"""
