"""Memories: entries, the policies that govern them and the arms that these compose."""
