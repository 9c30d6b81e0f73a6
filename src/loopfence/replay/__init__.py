"""Recorded transcripts run through the very same engine: what would have happened, and which settings fit."""
