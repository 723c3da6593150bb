"""Connector hosts: the process that a connector lives in, between its source and the commit log. No Spark."""
